//! Goal: a group at rest costs next to nothing, quiet ticks are missed by no member, and ticks may
//! be far apart.
//! Method: three drivers over a hub in memory, turned by hand whenever a frame waits or their own
//! time has come; turns are counted.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use futures_util::FutureExt;
use gaggle_channels::{Channel, Hub};

use super::{THREE, hand::Hand, seeded, world::name_of};
use crate::{
    client::{
        Driver,
        backend::Backend as _,
        calls::{Call, LockCall, Until},
        mailbox::Mail,
    },
    clock::{Clock, Instant},
    lock::{Lock, Nonce},
    member::{Member, MemberOptions, backend::Backend, node::Node, options::HEARTBEAT},
};

struct Process {
    driver: Driver<Backend>,
    turns: u64,
    /// When its next turn must come although nothing arrives.
    wake: Instant,
    stopped: bool,
    _member: Member,
}

struct Trio {
    hub: Hub,
    clock: Arc<Hand>,
    options: MemberOptions,
    processes: Vec<Process>,
}

impl Trio {
    fn formed() -> Self {
        let mut trio = Self::started(0, |options| options);
        trio.run(2_000);
        assert!(trio.is_ready());
        trio
    }

    /// Three processes, each started `apart` ms after the one before.
    fn started(apart: u64, change: impl FnOnce(MemberOptions) -> MemberOptions) -> Self {
        let (hub, clock) = (Hub::default(), Arc::new(Hand::default()));
        let options = MemberOptions::named("test", THREE.map(name_of)).clock(clock.clone());
        let mut trio = Self { hub, clock, options: change(options), processes: Vec::new() };
        for (seed, name) in (0..).zip(THREE) {
            let process = trio.process(name, seed);
            trio.processes.push(process);
            trio.run(apart);
        }
        trio
    }

    fn process(&self, name: &str, seed: u64) -> Process {
        let channel = Arc::new(self.hub.channel(name_of(name)));
        channel.connect().now_or_never().expect("nothing to wait for").unwrap();
        let (_member, driver) = seeded(channel, self.options.clone(), seed);
        Process { driver, turns: 0, wake: Instant::default(), stopped: false, _member }
    }

    fn is_ready(&self) -> bool {
        (0..self.processes.len()).all(|process| self.node(process).status().ready)
    }

    /// Lets `ms` pass: frames arrive at once, and a driver sleeps for as long as it says.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.clock.pass(1);
            while self.turn_all() {}
        }
    }

    fn turn_all(&mut self) -> bool {
        let (now, mut turned) = (self.clock.now(), false);
        let unwoken = &mut Context::from_waker(Waker::noop());
        for process in self.processes.iter_mut().filter(|process| !process.stopped) {
            let arrived = process.driver.backend_mut().poll_arrived(unwoken).is_ready();
            if !arrived && process.wake > now {
                continue;
            }
            let _ = process.driver.step();
            process.wake = process.driver.next_wake();
            process.turns += 1;
            turned = true;
        }
        turned
    }

    /// Waits for the key without an end.
    fn ask(&mut self, process: usize, nonce: u128) {
        self.call(
            process,
            Call::Lock(LockCall {
                id: u64::try_from(nonce).unwrap(),
                key: "k".into(),
                nonce: Nonce::from_u128(nonce),
                lease: Duration::from_secs(60),
                until: Until::Forever,
                limit: None,
                tries: false,
                owner: Arc::default(),
                unsafe_grant: None,
            }),
        );
    }

    fn call(&mut self, process: usize, call: Call) {
        let _ = self.processes[process].driver.step_with(Some(Mail { call, reply: None }));
        self.run(200);
    }

    fn node(&self, process: usize) -> &Node {
        self.processes[process].driver.backend().node()
    }

    fn leader(&self) -> usize {
        let mut living = (0..self.processes.len()).filter(|&at| !self.processes[at].stopped);
        living.find(|&at| self.node(at).status().leads).expect("one leads")
    }

    fn term(&self, process: usize) -> u64 {
        self.node(process).status().term
    }
}

#[test]
fn resting_member_turns_for_leader_frames_alone() {
    let mut trio = Trio::formed();
    let before: Vec<u64> = trio.processes.iter().map(|process| process.turns).collect();
    trio.run(10_000);
    // Twenty heartbeats a second and two stamps: each a frame to a follower, and two to the leader.
    for (at, process) in trio.processes.iter().enumerate() {
        let turns = process.turns - before[at];
        let most = if at == trio.leader() { 750 } else { 300 };
        assert!(turns <= most, "{turns} turns in ten seconds, where {most} do");
    }
}

#[test]
fn sleeping_follower_misses_its_leader() {
    let mut trio = Trio::formed();
    trio.run(1_000);
    let leader = trio.leader();
    trio.processes[leader].stopped = true;
    // Two election timeouts at the most.
    trio.run(600);
    assert_ne!(trio.leader(), leader);
}

#[test]
fn stalled_process_keeps_its_role() {
    let mut trio = Trio::formed();
    for stall in [60, 130, 1_000, 10_000] {
        let leader = trio.leader();
        let (term, follower) = (trio.term(leader), (leader + 1) % 3);
        trio.processes[follower].stopped = true;
        trio.run(stall);
        trio.processes[follower].stopped = false;
        trio.run(1_000);
        assert_eq!((trio.leader(), trio.term(leader)), (leader, term), "stalled for {stall} ms");
        // All stand still, and the leader is the first to go on.
        trio.clock.pass(stall);
        trio.run(1_000);
        assert_eq!((trio.leader(), trio.term(leader)), (leader, term), "all for {stall} ms");
    }
}

/// What its followers say was waiting all the time.
#[test]
fn stalled_leader_keeps_live_waiters() {
    let mut trio = Trio::formed();
    let leader = trio.leader();
    let (follower, down) = ((leader + 1) % 3, (leader + 2) % 3);
    // Two of three: while the leader stands still no other is elected.
    trio.processes[down].stopped = true;
    for (process, nonce) in [(leader, 1), (follower, 2), (leader, 3)] {
        trio.ask(process, nonce);
    }
    trio.processes[leader].stopped = true;
    trio.run(3_500);
    trio.processes[leader].stopped = false;
    trio.run(1_000);
    assert_eq!(trio.leader(), leader);
    trio.call(leader, unlock(1));
    let holder = trio
        .node(leader)
        .group()
        .and_then(|group| group.table().inspect(&"k".into()))
        .expect("two still waited");
    assert_eq!((holder.nonce, holder.waiters), (Nonce::from_u128(2), 1));
}

/// A process is heard at its ticks, and forms a group with those that it heard just before its own.
#[test]
fn longest_heartbeat_forms_and_replaces() {
    let longest = HEARTBEAT.1;
    let ms = u64::try_from(longest.as_millis()).unwrap();
    // The ticks of the three are a fifteenth of a heartbeat apart: a third of a tick.
    let mut trio = Trio::started(ms / 15, |options| {
        options.heartbeat(longest).election_timeout(longest * 3, longest * 4)
    });
    trio.run(15 * ms);
    assert!(trio.is_ready(), "it forms");
    let follower = (trio.leader() + 1) % 3;
    drop(trio.processes.remove(follower));
    let restarted = trio.process(THREE[follower], 7);
    trio.processes.insert(follower, restarted);
    trio.run(15 * ms);
    assert!(trio.is_ready(), "the restarted member votes");
}

fn unlock(nonce: u128) -> Call {
    let until = Instant::from_origin(Duration::from_secs(3600));
    let lock = Lock::new("k", Nonce::from_u128(nonce), 0, None);
    Call::Unlock { caller: None, lock, until, forced: None }
}
