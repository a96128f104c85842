//! Goal: the second account is no rubber stamp. Method: each rule is broken by effects that no
//! sound table emits, forged from what a real one did, and the account names the rule.

use gaggle_strategies::lock_table::{ClusterTime, Command, Effect, Ended, Grant, LockTable};

use super::{
    bounds::{Bounds, KEY, LEASE_TICKS, TICK_MS},
    ledger::{Ledger, broken},
    raft::Cmd,
    replay::{command, nonce_of},
};

/// A table and its account after client 0 was granted and client 1 queued, at time zero.
fn held_and_awaited() -> (LockTable, Ledger) {
    let bounds = bounds();
    let (mut table, mut ledger) = (LockTable::new(bounds.table()), Ledger::default());
    for client in [0, 1] {
        let command = command(Cmd::Lock { client, seen: 0 }, &bounds);
        let mut effects = Vec::new();
        table.apply(ClusterTime(0), &command, &mut effects);
        ledger.step(1, &command, &effects, &table);
    }
    assert_eq!(ledger.broken, 0, "what really happened breaks no rule");
    (table, ledger)
}

fn bounds() -> Bounds {
    Bounds::clients(&[gaggle_strategies::lock_table::Wait::Forever; 3])
}

fn grant(client: u8, token: u64) -> Effect {
    let at = ClusterTime(0);
    let expires_at = at.after(LEASE_TICKS * TICK_MS);
    let process = gaggle_strategies::lock_table::ProcessId(u64::from(client) + 1);
    let (key, nonce) = (KEY.into(), nonce_of(client));
    Effect::Granted(Grant {
        key,
        nonce,
        process,
        request: 0,
        token,
        asked_at: at,
        granted_at: at,
        expires_at,
    })
}

fn unlocked(client: u8, was: Ended) -> Effect {
    Effect::Unlocked { key: KEY.into(), nonce: nonce_of(client), request: 0, was }
}

/// The rules that the account finds broken by a step with these effects.
fn judged(cmd: Cmd, effects: &[Effect]) -> u16 {
    let (table, mut ledger) = held_and_awaited();
    ledger.step(1, &command(cmd, &bounds()), effects, &table);
    ledger.broken
}

#[test]
fn a_second_grant_breaks_one_lease() {
    let judged = judged(Cmd::Lock { client: 2, seen: 0 }, &[grant(2, 2)]);
    assert_ne!(judged & broken::TWO_LEASES, 0);
}

#[test]
fn a_repeated_grant_with_another_token_is_a_second_grant() {
    let judged = judged(Cmd::Lock { client: 0, seen: 0 }, &[grant(0, 2)]);
    assert_ne!(judged & broken::GRANTED_TWICE, 0);
}

#[test]
fn an_unlock_that_frees_another_is_noticed() {
    let judged = judged(Cmd::Unlock(2), &[unlocked(2, Ended::Held)]);
    assert_ne!(judged & broken::FREED_OTHER, 0);
}

#[test]
fn a_token_that_does_not_rise_is_noticed() {
    let judged = judged(Cmd::Unlock(0), &[unlocked(0, Ended::Held), grant(1, 1)]);
    assert_ne!(judged & broken::TOKEN_FELL, 0);
}

#[test]
fn a_grant_past_the_head_of_the_queue_is_noticed() {
    let judged = judged(Cmd::Unlock(0), &[unlocked(0, Ended::Held), grant(2, 2)]);
    assert_ne!(judged & broken::QUEUE, 0);
}

#[test]
fn a_grant_to_an_ended_nonce_is_noticed() {
    let judged = judged(Cmd::Unlock(0), &[unlocked(0, Ended::Held), grant(0, 2)]);
    assert_ne!(judged & broken::WITHDRAWN_GRANTED, 0);
}

#[test]
fn a_lost_wake_up_is_noticed() {
    let judged = judged(Cmd::Unlock(0), &[unlocked(0, Ended::Held)]);
    assert_ne!(judged & broken::QUEUE, 0, "a waiter without a holder");
    assert_ne!(judged & broken::INCONSISTENT, 0, "the table has another holder");
}

#[test]
fn a_lease_that_has_run_out_unnoticed_is_noticed() {
    let (mut table, mut ledger) = held_and_awaited();
    table.apply(ClusterTime(LEASE_TICKS * TICK_MS), &Command::Noop, &mut Vec::new());
    ledger.step(1, &Command::Noop, &[], &table);
    assert_ne!(ledger.broken & broken::PAST_LEASE, 0);
}
