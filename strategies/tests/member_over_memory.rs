//! The async shell of a member: Gaggle and Raft over the Memory channel, in virtual time.
//!
//! Method: whole clusters on one paused runtime; nothing sleeps for real.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

#[path = "support/memory.rs"]
mod memory;

use std::{sync::Arc, time::Duration};

use gaggle_channels::{Channel, Hub, NodeName};
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, Lock, LockOptions, MemberOptions,
    capabilities::{Exclusion, Order, Survives},
    clock::{Clock, TokioClock},
    lock::Nonce,
    operator::ForcedUnlock,
};
use memory::{cluster, names, options};
use tokio::time::{Instant, sleep};

/// A clock that breaks the turn in which it is asked for the wall time.
#[derive(Debug)]
struct Breaking {
    inner: TokioClock,
    broken: std::sync::atomic::AtomicBool,
}

impl Clock for Breaking {
    fn now(&self) -> gaggle_strategies::clock::Instant {
        self.inner.now()
    }

    fn wall_nanos(&self) -> u64 {
        let broken = self.broken.load(std::sync::atomic::Ordering::Relaxed);
        assert!(!broken, "an invariant is broken");
        1
    }
}

/// Engines, section 6: the engine panics on broken invariants.
#[tokio::test(start_paused = true)]
async fn panic_ends_only_that_member() {
    let hub = Hub::new();
    let breaking = Arc::new(Breaking { inner: TokioClock::new(), broken: false.into() });
    let mut members = Vec::new();
    for (name, seed) in names().into_iter().zip(1..) {
        let options = if seed == 1 { options(seed).clock(breaking.clone()) } else { options(seed) };
        let channel: Arc<dyn Channel> = Arc::new(hub.channel(name));
        members.push(Gaggle::open(channel, options).await.unwrap());
    }
    for member in &members {
        member.ready().await.unwrap();
    }
    let held = members[0].lock("k", LockOptions::default()).await.unwrap();
    let watch = members[0].watch(&held);
    breaking.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    // A member at rest sleeps over some ticks.
    sleep(Duration::from_millis(100)).await;
    assert!(watch.is_lost());
    let outcome = members[0].lock("k", LockOptions::default()).await;
    let Err(Error::Failed { cause: source }) = outcome else { panic!("it was {outcome:?}") };
    assert!(source.to_string().contains("an invariant is broken"), "{source}");
    members[0].close().await;
    let other = members[1].lock("other", LockOptions::default()).await.unwrap();
    members[1].unlock(&other).await.unwrap();
}

/// A lock value may come from outside: one with a key that no frame holds must not reach the log.
#[tokio::test(start_paused = true)]
async fn too_long_key_is_refused_everywhere() {
    let members = cluster(&Hub::new()).await;
    let huge = Lock::new("q".repeat(3_000_000), Nonce::random(), 1, None);
    for (_, member) in &members {
        let refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::InvalidKey { .. }));
        assert!(refused(member.unlock(&huge).await));
        assert!(refused(member.extend(&huge, Duration::from_secs(1)).await.map(drop)));
        member.release(&huge);
    }
    for (_, member) in &members {
        let lock = member.lock("k", LockOptions::default()).await.unwrap();
        member.unlock(&lock).await.unwrap();
    }
}

/// The request went out, and only its reply is missing: it may have taken effect.
#[tokio::test(start_paused = true)]
async fn unlock_or_extend_without_reply_is_unknown() {
    let hub = Hub::new();
    let members = cluster(&hub).await;
    let [(other_name, other), (name, deaf), (third, _)] = &members[..] else { unreachable!() };
    let lease = LockOptions::default().duration(Duration::from_secs(20));
    let freed = deaf.lock("freed", lease.clone()).await.unwrap();
    let extended = deaf.lock("extended", lease).await.unwrap();
    hub.cut(other_name, name);
    hub.cut(third, name);
    let (unlocked, longer) =
        tokio::join!(deaf.unlock(&freed), deaf.extend(&extended, Duration::from_secs(60)));
    assert!(matches!(unlocked, Err(Error::Unknown)), "{unlocked:?}");
    assert!(matches!(longer, Err(Error::Unknown)), "{longer:?}");
    assert!(other.inspect("freed").await.unwrap().is_none(), "it did take effect");
}

/// A member inspects its own table, which may not have the grant yet.
#[tokio::test(start_paused = true)]
async fn force_unlock_at_a_late_member_ends_the_grant() {
    let hub = Hub::new();
    let members = cluster(&hub).await;
    let [(leads, leader), (name, late), _] = &members[..] else { unreachable!() };
    hub.cut(leads, name);
    let held = leader.lock("k", LockOptions::default()).await.unwrap();
    assert_eq!(late.inspect("k").await.unwrap(), None);
    hub.heal();
    let forced = late.operator().unwrap().force_unlock("k", None, "a test").await.unwrap();
    let token = held.fencing_token();
    let is_it = matches!(&forced, ForcedUnlock::Unlocked(was) if was.fencing_token == token);
    assert!(is_it, "{forced:?}");
}

/// Contract, the trait: `close` ends local waits with `Closed` and leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn close_unlocks_a_grant_not_yet_returned() {
    let members = cluster(&Hub::new()).await;
    let lease = LockOptions::default().duration(Duration::from_secs(60));
    let mut waiting = Box::pin(members[0].1.lock("k", lease));
    assert!(futures_util::FutureExt::now_or_never(&mut waiting).is_none());
    sleep(Duration::from_millis(300)).await;
    members[0].1.close().await;
    assert!(matches!(waiting.await, Err(Error::Closed)));
    let began = Instant::now();
    members[1].1.lock("k", LockOptions::default()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// The driver goes with the runtime that it was opened in; the group goes on without it.
#[test]
fn guards_are_lost_with_their_runtime() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (first, hub) = (runtime(), Hub::new());
    let (member, watch) = first.block_on(async {
        let name = NodeName::new("a").unwrap();
        let options = MemberOptions::named("test", [name.clone()]);
        let member = Gaggle::open(Arc::new(hub.channel(name)), options).await.unwrap();
        let lock = member.lock("k", LockOptions::default()).await.unwrap();
        let watch = member.watch(&lock);
        (member, watch)
    });
    assert!(!watch.is_lost());
    drop(first);
    assert!(watch.is_lost());
    drop(member);
}

/// A lease that may be held outside members is bounded more tightly, wherever it is asked for.
#[tokio::test(start_paused = true)]
async fn outside_max_bounds_every_lease() {
    let name = NodeName::new("a").unwrap();
    let outside = Duration::from_secs(5);
    let options = MemberOptions::named("test", [name.clone()])
        .clock(Arc::new(TokioClock::new()))
        .outside_max(outside);
    let member = Gaggle::open(Arc::new(Hub::new().channel(name)), options).await.unwrap();
    let lease = |duration| LockOptions::default().duration(duration);
    let longer = outside + Duration::from_millis(1);
    let is_refused = |error| matches!(error, Error::InvalidOptions { field: "duration", .. });
    assert!(is_refused(member.lock("k", lease(longer)).await.unwrap_err()));
    let wait = Duration::from_secs(20);
    let lock = member.lock("k", lease(outside).max_wait(wait)).await.unwrap();
    assert!(is_refused(member.extend(&lock, longer).await.unwrap_err()));
    member.extend(&lock, outside).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn capabilities_differ_by_names_or_size() {
    let open = |options: MemberOptions, name: &str| {
        let channel = Hub::new().channel(NodeName::new(name).unwrap());
        Gaggle::open(Arc::new(channel), options.clock(Arc::new(TokioClock::new())))
    };
    let named = open(options(1), "a").await.unwrap().capabilities();
    assert_eq!(named.exclusion, Exclusion::Always);
    assert_eq!((named.order, named.survives), (Order::Fifo, Survives::Minority));
    assert!(named.distributed && named.waits_for_leader);
    let sized = open(MemberOptions::sized("test", 3), "a").await.unwrap().capabilities();
    assert_eq!(sized.exclusion, Exclusion::WithinOneGroup);
}

/// Contract, rule 3: leases due are ended at once where someone waits, also where that comes before
/// whatever else the member would wake for.
#[tokio::test(start_paused = true)]
async fn waiter_is_granted_at_lease_end() {
    let name = NodeName::new("a").unwrap();
    let options =
        MemberOptions::named("test", [name.clone()]).clock(Arc::new(TokioClock::new())).seed(1);
    let member = Gaggle::open(Arc::new(Hub::new().channel(name)), options).await.unwrap();
    member.ready().await.unwrap();
    for ms in 3..30 {
        let key = format!("k{ms}");
        let lease = LockOptions::default().duration(Duration::from_millis(ms));
        let began = Instant::now();
        member.lock(&key, lease.clone()).await.unwrap();
        member.lock(&key, lease).await.unwrap();
        let took = began.elapsed().as_millis();
        assert!((u128::from(ms)..=u128::from(ms) + 1).contains(&took), "{took} ms of {ms}");
    }
}
