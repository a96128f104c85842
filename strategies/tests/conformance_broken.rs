//! Goal: the conformance suite can fail. Method: a plain strategy that passes every case in
//! virtual time is broken in one way at a time, and the cases that must notice are written down.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use gaggle_strategies::{
    KeyedMutex,
    testing::{
        self, Fixture, Lacking, Outcome,
        broken::{Fault, Server},
    },
};

/// The case with processes, which `conformance_processes` shows to fail: this server is in one.
const PROCESSES: u8 = 42;

/// A server for each case, so that no case suffers from the residue of another.
struct Plain {
    fault: Option<Fault>,
    server: Mutex<Server>,
}

impl Plain {
    fn new(fault: Option<Fault>) -> Self {
        Self { fault, server: Mutex::new(Server::sound()) }
    }

    fn server(&self) -> Server {
        self.server.lock().expect("no test panics with it").clone()
    }
}

#[async_trait]
impl Fixture for Plain {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(self.server().open())
    }
    async fn residue(&self) -> Option<u64> {
        Some(self.server().residue())
    }
    async fn settle(&self) {
        *self.server.lock().expect("no test panics with it") =
            self.fault.map_or_else(Server::sound, Server::with);
    }
    fn slack(&self) -> Duration {
        Duration::from_millis(20)
    }
    fn recovery(&self) -> Duration {
        Duration::from_secs(2)
    }
    fn waiters(&self) -> usize {
        200
    }
    fn keys(&self) -> usize {
        1_000
    }
    async fn backend_down(&self) -> Result<(), Lacking> {
        self.server().stop();
        Ok(())
    }
    async fn backend_up(&self) -> Result<(), Lacking> {
        self.server().start();
        Ok(())
    }
    async fn restart_backend(&self) -> Result<(), Lacking> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.server().restart();
        Ok(())
    }
    async fn change_leader(&self) -> Result<(), Lacking> {
        self.server().change_leader();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn strategy_without_a_fault_passes() {
    let report = testing::run(&Plain::new(None)).await;
    report.assert_passed_but_untried(&[PROCESSES]);
    report.assert_not_applicable(&[]);
}

/// Which cases must notice which fault. Derived by running, then read: every line says what a user
/// of such a lock would suffer from.
const FOUND_BY: &[(Fault, &[u8])] = &[
    (
        Fault::NeverGrants,
        &[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
            25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 43,
        ],
    ),
    (
        Fault::RefusesContended,
        &[2, 3, 11, 12, 13, 14, 16, 20, 22, 23, 28, 29, 30, 31, 32, 38, 39, 40, 43],
    ),
    (Fault::OneLockForAll, &[4, 27, 34, 35, 38, 39, 43]),
    (Fault::FoldsKeys, &[34]),
    (Fault::UnlockIgnoresNonce, &[9, 21, 22, 40]),
    (Fault::UnlockWakesNoWaiter, &[3, 11, 12, 16, 20, 22, 23, 28, 29, 30, 32, 40, 43]),
    (Fault::UnlockAlwaysSucceeds, &[9, 10, 21, 22, 40]),
    (Fault::ReleaseDoesNothing, &[7]),
    (Fault::ZeroWaitNeverTries, &[5, 6, 8, 36]),
    (Fault::TryWaits, &[6, 8, 34]),
    (Fault::NeverExpires, &[1, 8, 11, 12, 14, 15, 19, 20, 22, 25, 28, 39]),
    (Fault::ExpiresLate, &[1, 8, 11, 12, 14, 15, 19, 20, 22, 25, 28, 39]),
    (Fault::ExpiresEarly, &[8, 11, 12, 14, 20, 22, 28]),
    (Fault::GrantsSpentLease, &[15]),
    (Fault::DeadlineFromReply, &[1, 17]),
    (Fault::OverrunsMaxWait, &[2, 13]),
    (Fault::ChecksNothing, &[15, 16, 17, 34, 36]),
    (Fault::ExtendShortens, &[18]),
    (Fault::ExtendCreates, &[19]),
    (Fault::ExtendsPastDeadline, &[19]),
    (Fault::ExtendIgnoresNonce, &[20]),
    (Fault::Reentrant, &[6, 12, 23, 29, 32, 33, 43]),
    (Fault::ConstantTokens, &[3, 8, 23, 24, 25, 26, 27, 28, 32, 37, 40]),
    (Fault::TokensFromClock, &[24, 27, 32]),
    (Fault::TokensPerTableRow, &[8, 24, 25, 26, 27, 37]),
    (Fault::TokensRestart, &[26]),
    (Fault::TokensRestartWithLeader, &[27]),
    (Fault::LastComeFirstServed, &[29]),
    (Fault::Starves, &[29]),
    (Fault::GhostWaiters, &[30, 31, 33, 38, 43]),
    (Fault::GhostGrants, &[31, 43]),
    (Fault::GrantsTwo, &[29, 32]),
    (Fault::LeaksKeys, &[25, 33, 35]),
    (Fault::HangsWhenDown, &[36, 37]),
    (Fault::DownIsHeld, &[36, 37]),
    (Fault::NeverReconnects, &[36, 37]),
    (Fault::CloseForgetsWaiters, &[38]),
    (Fault::CloseUnlocksNothing, &[38]),
    (Fault::CloseLeavesTask, &[38]),
    (Fault::UnlockAllForgetsWaiters, &[43]),
    (Fault::UnlockAllGrantsEndedWaits, &[43]),
    (Fault::ListHidesWaiters, &[39]),
    (Fault::ForceIsSilent, &[40]),
    (Fault::ForceIgnoresToken, &[41]),
];

#[tokio::test(start_paused = true)]
async fn every_fault_fails_its_cases() {
    let mut wrong = Vec::new();
    for &(fault, cases) in FOUND_BY {
        let report = testing::run(&Plain::new(Some(fault))).await;
        if report.failed() != cases {
            wrong.push(format!(
                "{fault:?}: expected {cases:?}, failed {:?}\n{report}",
                report.failed()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn table_of_faults_is_complete() {
    let faults: BTreeSet<_> = FOUND_BY.iter().map(|(fault, _)| *fault).collect();
    assert_eq!(faults, Fault::ALL.iter().copied().collect());
}

/// A case that nothing but a strategy without any function could fail would prove nothing.
#[test]
fn every_case_finds_a_fault_of_its_own_kind() {
    let faults = FOUND_BY.iter().filter(|(fault, _)| *fault != Fault::NeverGrants);
    let found: BTreeSet<u8> = faults.flat_map(|(_, cases)| cases.iter().copied()).collect();
    let all = testing::cases().map(|case| case.number).filter(|number| *number != PROCESSES);
    let all: BTreeSet<u8> = all.collect();
    assert_eq!(found, all);
}

#[tokio::test(start_paused = true)]
async fn cases_beyond_the_fixture_are_untried() {
    struct Bare(Server);

    #[async_trait]
    impl Fixture for Bare {
        async fn open(&self) -> Arc<dyn KeyedMutex> {
            Arc::new(self.0.open())
        }
        async fn residue(&self) -> Option<u64> {
            None
        }
    }

    let fixture = Bare(Server::sound());
    let untried = [25, 26, 27, 33, 35, 36, 37, PROCESSES];
    for number in untried {
        let outcome = testing::run_case(&fixture, number).await.outcome;
        assert!(matches!(outcome, Outcome::Untried(_)), "{number}: {outcome}");
    }
    let report = testing::run(&fixture).await;
    report.assert_passed_but_untried(&untried);
}
