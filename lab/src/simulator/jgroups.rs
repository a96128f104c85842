//! Goal: the scenarios of JGroups' lock service, in which it resets its locks, end as stated here.
//! Method: a simulated group without random faults, whose processes and network each test controls.
//! Every invariant is checked after every event, and each test runs with several seeds.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use gaggle_strategies::{
    Error, Lock, LockOptions,
    clock::{Clock, Instant},
    error::UnavailableKind,
    member::{GroupView, Policy},
};

use super::{
    clock::MS, hostile::calm, machine::Member, network::Ways, process::Process,
    recorder::Observation, world::World,
};

const SEEDS: u64 = 10;
/// A group without faults has formed by then.
const FORMED_WITHIN: u64 = 20_000;
/// Beyond the election of a leader that has been cut off, and of a first one after a merge.
const ELECTED_WITHIN: u64 = 5_000;
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

/// A group whose processes and network a test controls.
struct Group {
    world: World,
    calls: u32,
}

/// The state of a call, and of the lock that it was granted.
#[derive(Default)]
struct State {
    outcome: Option<Result<Lock, Error>>,
    granted_at: u64,
    /// When its holder no longer relied on it.
    lost_at: Option<u64>,
}

/// A call of `lock`, which the test observes.
#[derive(Clone, Default)]
struct Call {
    client: u32,
    state: Arc<Mutex<State>>,
}

impl Call {
    fn state<T>(&self, of: impl FnOnce(&mut State) -> T) -> T {
        of(&mut self.state.lock().expect("no call panics"))
    }

    fn has_ended(&self) -> bool {
        self.state(|state| state.outcome.is_some())
    }

    /// The lock that it was granted.
    fn lock(&self) -> Option<Lock> {
        self.state(|state| state.outcome.as_ref()?.as_ref().ok().cloned())
    }

    fn token(&self) -> u64 {
        self.lock().expect("it was granted").fencing_token()
    }

    fn is_lost(&self) -> bool {
        self.state(|state| state.lost_at.is_some())
    }
}

impl Group {
    /// A group of as many members, before any of them has started.
    fn starting(members: usize, seed: u64) -> Self {
        let mut plan = calm(seed, members);
        plan.policy = Policy::Queue;
        (plan.options.outside_ms, plan.options.heartbeat_ms) = (0, 50);
        (plan.options.waiters_max, plan.options.nonces_max) = (1_000, 100_000);
        plan.options.nonce_memory_ms = 30_000;
        Self { world: World::new(plan, false), calls: 0 }
    }

    fn new(members: usize, seed: u64) -> Self {
        let mut group = Self::starting(members, seed);
        group.until(FORMED_WITHIN, "the group forms", |group| group.is_settled());
        group
    }

    fn is_settled(&self) -> bool {
        self.world.is_settled()
    }

    fn run(&mut self, ms: u64) {
        self.world.run_until(self.world.now() + ms * MS, |_| false);
    }

    fn until(&mut self, ms: u64, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..ms {
            if done(self) {
                return;
            }
            self.run(1);
        }
        panic!("{what}: not within {ms} ms\n{}", self.world.state());
    }

    fn process(&self, slot: usize) -> &Process {
        self.world.slots[slot].process.as_ref().expect("it runs")
    }

    fn view(&self, slot: usize) -> GroupView {
        self.process(slot).member().and_then(Member::view).expect("it is in a group")
    }

    /// The leader of the greatest term.
    fn leader(&self) -> usize {
        let leads = |slot: &usize| {
            let process = self.world.slots[*slot].process.as_ref();
            process.and_then(Process::member).and_then(Member::view).is_some_and(|view| view.leads)
        };
        let leaders = (0..self.world.slots.len()).filter(leads);
        leaders.max_by_key(|slot| self.view(*slot).term).expect("a member leads")
    }

    /// The members but this one.
    fn others(&self, slot: usize) -> Vec<usize> {
        (0..self.world.slots.len()).filter(|other| *other != slot).collect()
    }

    /// Both ways between members of different sides.
    fn between(&self, sides: &[&[usize]]) -> Ways {
        let side = |slot: usize| sides.iter().position(|side| side.contains(&slot));
        let slots = 0..self.world.slots.len();
        let all = slots.clone().flat_map(|from| slots.clone().map(move |to| (from, to)));
        all.filter(|(from, to)| from != to && (side(*from).is_none() || side(*from) != side(*to)))
            .collect()
    }

    /// Leaves only members of one side in reach of each other; a member of none is alone.
    fn split(&mut self, sides: &[&[usize]]) {
        self.merge();
        let ways = self.between(sides);
        self.world.network.cut(&ways);
    }

    fn merge(&mut self) {
        let all = self.between(&[]);
        self.world.network.reconnect(&all);
    }

    /// Calls `lock` in a process. The call relies on its lock until it is lost.
    fn lock(&mut self, slot: usize, key: &'static str, lease: Duration, wait: Duration) -> Call {
        self.calls += 1;
        let client = self.calls;
        let call = Call { client, ..Call::default() };
        let (op, recorder) = (self.world.recorder.next_op(), self.world.recorder.clone());
        let Process { strategy, clock, .. } = self.process(slot);
        let (strategy, clock, shared) = (strategy.clone(), clock.clone(), call.clone());
        let options = LockOptions::default().duration(lease).max_wait(wait).label(op.label());
        self.world.spawn(slot, client, async move {
            let outcome = strategy.lock(key, options).await;
            let lock = outcome.as_ref().ok().cloned();
            let virtual_now = || clock.virtual_time(clock.now());
            shared.state(|state| {
                (state.granted_at, state.outcome) = (virtual_now(), Some(outcome));
            });
            let Some(lock) = lock else { return };
            let (watch, seen) = (strategy.watch(&lock), strategy.watch(&lock));
            let until = lock.deadline().unwrap_or(Instant::from_origin(Duration::ZERO));
            recorder.note(Observation::Holds { client, op, lock, watch: seen });
            tokio::select! {
                biased;
                () = watch.lost() => {}
                () = clock.sleep_until(until) => {}
            }
            shared.state(|state| state.lost_at = Some(virtual_now()));
        });
        self.run(1);
        call
    }

    /// A call that is granted at once.
    fn hold(&mut self, slot: usize, key: &'static str, lease: Duration) -> Call {
        let call = self.lock(slot, key, lease, Duration::from_secs(1));
        self.until(1_000, "a free key is granted", |_| call.lock().is_some());
        call
    }

    /// A call that waits in the queue.
    fn wait(&mut self, slot: usize, key: &'static str) -> Call {
        let call = self.lock(slot, key, LONG, LONG);
        self.run(500);
        assert!(!call.has_ended(), "it waits");
        call
    }

    /// Whether the granting side still knows the lock of this call, and extends it.
    fn is_extended(&mut self, slot: usize, call: &Call) -> bool {
        let (lock, outcome) = (call.lock().expect("it was granted"), Arc::new(Mutex::new(None)));
        let (strategy, result) = (self.process(slot).strategy.clone(), outcome.clone());
        self.world.spawn(slot, 0, async move {
            let extended = strategy.extend(&lock, LONG).await;
            *result.lock().expect("no call panics") = Some(extended);
        });
        let ended = || outcome.lock().expect("no call panics").is_some();
        self.until(2_000, "an extend ends", |_| ended());
        let extended = outcome.lock().expect("no call panics").take();
        extended.is_some_and(|it| it.is_ok_and(|it| it.fencing_token() == call.token()))
    }

    fn unlock(&mut self, slot: usize, call: &Call) {
        let (client, lock) = (call.client, call.lock().expect("it was granted"));
        let (strategy, recorder) =
            (self.process(slot).strategy.clone(), self.world.recorder.clone());
        self.world.spawn(slot, client, async move {
            recorder.note(Observation::LetsGo { client, nonce: lock.nonce() });
            let _ = strategy.unlock(&lock).await;
        });
    }

    /// Asserts that a lock of a free key ends as `NoQuorum`.
    fn assert_no_quorum(&mut self, slot: usize) {
        let call = self.lock(slot, "free", SHORT, Duration::from_millis(500));
        self.until(2_000, "the call ends", |_| call.has_ended());
        let refused = call.state(|state| {
            matches!(
                state.outcome,
                Some(Err(Error::Unavailable { kind: UnavailableKind::NoQuorum, .. }))
            )
        });
        assert!(refused, "slot {slot} has no majority: {:?}", call.state(|it| it.outcome.take()));
    }
}

fn with_seeds(scenario: impl Fn(u64)) {
    (0..SEEDS).for_each(scenario);
}

/// Scenario 1.1: a group forms when the last of its members starts. Its table is empty, as after
/// JGroups' reset, and nothing was granted before.
#[test]
fn majority_reached_by_a_new_member_begins_empty() {
    with_seeds(|seed| {
        let mut group = Group::starting(3, seed);
        group.split(&[&[0, 1]]);
        group.run(500);
        group.world.kill(2);
        group.merge();
        group.assert_no_quorum(0);
        group.assert_no_quorum(1);

        group.world.start(2);
        group.until(FORMED_WITHIN, "the group forms", |group| group.is_settled());

        for slot in 0..3 {
            let table = group.process(slot).member().and_then(Member::table);
            assert!(table.is_some_and(|table| table.sizes().keys == 0), "slot {slot}");
        }
        group.hold(0, "k", SHORT);
    });
}

/// No side of `split` has a majority until `merged` connects two. JGroups resets all locks. Here a
/// lease that ended was lost before its key was granted again, and a longer one stays held.
fn minorities_merge(members: usize, split: &[&[usize]], merged: &[&[usize]]) {
    with_seeds(|seed| {
        let mut group = Group::new(members, seed);
        let long = group.hold(0, "long", LONG);
        let short = group.hold(0, "short", SHORT);
        let waiting = group.lock(1, "short", LONG, LONG);

        group.split(split);
        group.run(4_000);
        assert!(
            short.is_lost() && !waiting.has_ended(),
            "the holder gave up, and no member grants"
        );
        for slot in 0..members {
            group.assert_no_quorum(slot);
        }

        group.split(merged);
        group.until(ELECTED_WITHIN, "the waiter is granted", |_| waiting.lock().is_some());
        let granted_at = waiting.state(|state| state.granted_at);
        assert!(short.state(|state| state.lost_at).is_some_and(|lost_at| lost_at < granted_at));
        assert!(waiting.token() > short.token());
        assert!(!long.is_lost() && group.is_extended(0, &long), "the longer lease goes on");
    });
}

/// Scenario 1.2.
#[test]
fn majority_reached_by_a_returning_member_keeps_leases() {
    minorities_merge(3, &[], &[&[0, 1]]);
}

/// Scenario 1.3.
#[test]
fn majority_reached_by_a_merge_keeps_leases() {
    minorities_merge(5, &[&[0, 2], &[1, 3]], &[&[0, 1, 2, 3]]);
}

/// Ends a leader that holds a key, while a majority remains. Returns the call that then gets the
/// key.
fn leader_ends(group: &mut Group, lease: Duration, end: impl Fn(&mut World, usize)) -> Call {
    let leader = group.leader();
    let [holder, waiter] = group.others(leader)[..] else { unreachable!("three members") };
    group.hold(leader, "of the leader", lease);
    let other = group.hold(holder, "of another", LONG);
    let waiting = group.wait(waiter, "of the leader");
    end(&mut group.world, leader);
    group.until(ELECTED_WITHIN, "the waiter is granted", |_| waiting.lock().is_some());
    assert!(!other.is_lost() && group.is_extended(holder, &other), "other locks stay");
    waiting
}

/// Scenario 2, orderly shutdown: the leader unlocks what it holds.
#[test]
fn leaving_leader_unlocks_its_keys() {
    with_seeds(|seed| {
        let mut group = Group::new(3, seed);
        leader_ends(&mut group, LONG, World::leave);
    });
}

/// Scenario 2, by a crash: the leader's locks end with their leases, and its waiters at once. A
/// process of its name resumes none of them.
#[test]
fn locks_of_a_crashed_leader_end_with_their_leases() {
    with_seeds(|seed| {
        let mut group = Group::new(3, seed);
        let begun = group.world.now();
        let lease = 2 * SHORT;
        let waiting = leader_ends(&mut group, lease, |world, slot| {
            world.kill(slot);
            world.start(slot);
        });
        let granted_at = waiting.state(|state| state.granted_at);
        assert!(granted_at >= begun + lease.as_millis() as u64 * MS * 98 / 100, "the lease lasts");
    });
}

/// Scenario 3.1: a member that was away does not depose the leader when it comes back.
#[test]
fn returning_member_does_not_depose_the_leader() {
    with_seeds(|seed| {
        let mut group = Group::new(3, seed);
        let leader = group.leader();
        let [away, holder] = group.others(leader)[..] else { unreachable!("three members") };
        let (held, term) = (group.hold(holder, "k", LONG), group.view(leader).term);
        let of_away = group.hold(away, "away", LONG);

        group.split(&[&[leader, holder]]);
        group.run(3_000);
        group.merge();
        group.run(3_000);

        assert!(group.is_settled());
        assert_eq!((group.leader(), group.view(leader).term), (leader, term));
        for (slot, call) in [(holder, &held), (away, &of_away)] {
            assert!(!call.is_lost() && group.is_extended(slot, call));
        }
    });
}

/// Scenario 3.2: a leader that is elected again, in a later term, ends nothing: not even the order
/// of the waiters.
#[test]
fn leader_of_a_later_term_keeps_locks_and_queue() {
    let mut elected_again = 0;
    for seed in 0..3 * SEEDS {
        let mut group = Group::new(3, seed);
        let leader = group.leader();
        let [holder, other] = group.others(leader)[..] else { unreachable!("three members") };
        let (held, term) = (group.hold(holder, "k", LONG), group.view(leader).term);
        let waiting = [other, leader].map(|slot| group.wait(slot, "k"));

        group.split(&[]);
        group.until(ELECTED_WITHIN, "the leader steps down", |group| !group.view(leader).leads);
        group.merge();
        group.until(ELECTED_WITHIN, "a leader is elected", |group| group.is_settled());
        assert!(group.view(leader).term > term);
        elected_again += u64::from(group.leader() == leader);

        assert!(!held.is_lost() && group.is_extended(holder, &held));
        group.unlock(holder, &held);
        group.until(2_000, "the first waiter is granted", |_| waiting[0].lock().is_some());
        assert!(!waiting[1].has_ended(), "the second waits");
        group.unlock(other, &waiting[0]);
        group.until(2_000, "the second waiter is granted", |_| waiting[1].lock().is_some());
    }
    assert!(elected_again > 0, "no leader was elected again");
}
