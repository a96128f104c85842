//! Goal: what a member's handle promises beyond the client core: fair turns, how it closes, locks
//! of a lost group, leases that end on time.
//!
//! Method: three members over the Memory channel on one paused runtime; nothing sleeps for real.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use futures_util::FutureExt as _;
use gaggle_channels::{Channel, ChannelError, Hub, NodeName};
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, Lock, LockOptions, MemberOptions, clock::TokioClock, lock::Nonce,
};
use tokio::{
    task::unconstrained,
    time::{Instant, sleep},
};

fn names() -> [NodeName; 3] {
    ["a", "b", "c"].map(|name| NodeName::new(name).unwrap())
}

fn options() -> MemberOptions {
    MemberOptions::named("test", names()).clock(Arc::new(TokioClock::new()))
}

/// The members by name; the leader comes first.
async fn cluster(hub: &Hub) -> Vec<(NodeName, Gaggle)> {
    let mut members = Vec::new();
    for name in names() {
        let channel = Arc::new(hub.channel(name.clone()));
        members.push((name, Gaggle::open(channel, options()).await.unwrap()));
    }
    for (_, member) in &members {
        member.ready().await.unwrap();
    }
    members.sort_by_key(|(_, member)| !member.group_status().unwrap().leads);
    members
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Other tasks of the thread run while requests arrive faster than replies are sent.
#[tokio::test(start_paused = true)]
async fn loaded_member_yields() {
    let channel = Arc::new(Hub::new().channel(names()[0].clone()));
    let options = MemberOptions::named("test", [names()[0].clone()]);
    let member = Gaggle::open(channel, options.clock(Arc::new(TokioClock::new()))).await.unwrap();
    member.ready().await.unwrap();
    let keys = (0..5_000).map(|key| format!("k{key}")).collect::<Vec<_>>();
    let mut locks = keys
        .iter()
        .map(|key| Box::pin(unconstrained(member.lock(key, LockOptions::default()))))
        .collect::<Vec<_>>();
    let mut granted = || {
        let mut context = Context::from_waker(Waker::noop());
        locks.retain_mut(|lock| lock.as_mut().poll(&mut context).is_pending());
        5_000 - locks.len()
    };
    assert_eq!(granted(), 0);
    let (mut before, mut turns) = (0, 0);
    while before < 5_000 {
        tokio::task::yield_now().await;
        let now = granted();
        assert!(now - before <= 1_100, "{} in one turn", now - before);
        (before, turns) = (now, turns + 1);
        assert!(turns < 100, "only {now} are granted");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_leader_transfers_leadership() {
    let members = cluster(&Hub::new()).await;
    let began = Instant::now();
    members[0].1.close().await;
    assert!(began.elapsed() < ms(200), "no request was pending: {:?}", began.elapsed());
    sleep(ms(30)).await;
    assert!(
        members[1..].iter().any(|(_, member)| member.group_status().unwrap().leads),
        "before any timeout"
    );
}

/// Another process of its name must wait 300 ms for a reply of it if it may still run.
#[tokio::test(start_paused = true)]
async fn closed_member_keeps_its_name_no_longer() {
    let hub = Hub::new();
    let mut members = cluster(&hub).await;
    for place in [2, 0] {
        sleep(ms(1_000)).await;
        let (name, member) = members.remove(place);
        member.close().await;
        let began = Instant::now();
        let channel = Arc::new(hub.channel(name.clone()));
        let member = Gaggle::open(channel, options()).await.unwrap();
        member.ready().await.unwrap();
        assert!(began.elapsed() < ms(300), "{name} after {:?}", began.elapsed());
        members.insert(place, (name, member));
    }
}

/// Contract, the trait: `close` leaves no socket behind.
#[tokio::test(start_paused = true)]
async fn closed_member_has_left_its_channel() {
    let name = NodeName::new("a").unwrap();
    let channel: Arc<dyn Channel> = Arc::new(Hub::new().channel(name.clone()));
    let options = MemberOptions::named("test", [name.clone()]).clock(Arc::new(TokioClock::new()));
    let member = Gaggle::open(channel.clone(), options).await.unwrap();
    assert!(channel.send(&name, vec![1].into()).is_ok());
    member.close().await;
    let sent = channel.send(&name, vec![1].into());
    assert!(matches!(sent, Err(ChannelError::Disconnected)), "{sent:?}");
}

/// The next group may grant every lock of the former one. So each is lost to its holders: a process
/// that adopted it, a caller that has not polled its reply, and a watch that begins later.
#[tokio::test(start_paused = true)]
async fn locks_of_a_lost_group_are_lost_everywhere() {
    let hub = Hub::new();
    let mut members = cluster(&hub).await;
    let (_, survivor) = members.pop().unwrap();
    let long = LockOptions::default().duration(ms(600_000));
    let transferred = members[0].1.lock("adopted", long.clone()).await.unwrap();
    let adopted = survivor.extend(&transferred, ms(600_000)).await.unwrap();
    let adopted = survivor.watch(&adopted);
    let unwatched = survivor.lock("unwatched", long.clone()).await.unwrap();
    let between = survivor.lock("between", long.clone()).await.unwrap();
    let mut unread = Box::pin(survivor.lock("unread", long.clone()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(unread.as_mut().poll(&mut context).is_pending());
    sleep(ms(200)).await;
    assert!(members[0].1.inspect("unread").await.unwrap().is_some(), "granted, and not taken");

    // More than half of the members lose the memory.
    let former = survivor.group_status().unwrap().group;
    let lost: Vec<NodeName> = members.iter().map(|(name, _)| name.clone()).collect();
    drop(members);
    sleep(ms(100)).await;
    let mut restarted = Vec::new();
    for name in lost {
        // The former process has the name until its driver has ended.
        restarted.push(loop {
            let channel: Arc<dyn Channel> = Arc::new(hub.channel(name.clone()));
            match Gaggle::open(channel, options()).await {
                Ok(member) => break member,
                Err(_) => sleep(ms(10)).await,
            }
        });
    }
    while survivor.group_status().unwrap().group == former {
        sleep(ms(1)).await;
    }
    assert_eq!(survivor.group_status().unwrap().group, None, "it is in no group for a moment");
    let between = survivor.watch(&between);
    sleep(ms(1)).await;
    assert!(between.is_lost());
    for member in &restarted {
        member.ready().await.unwrap();
    }
    assert!(
        survivor.group_status().unwrap().group.is_some_and(|group| Some(group) != former),
        "a new group"
    );
    for key in ["adopted", "unwatched", "unread"] {
        let _ = restarted[0].lock(key, LockOptions::default().duration(ms(600_000))).await.unwrap();
    }
    assert!(adopted.is_lost());
    let unwatched = survivor.watch(&unwatched);
    for _ in 0..5 {
        assert!(unread.as_mut().poll(&mut context).is_pending(), "it is another's now");
        sleep(ms(20)).await;
    }
    assert!(unwatched.is_lost());
}

/// One task unlocks a lock that another task has just extended. The unlock's future is dropped
/// before its reply.
#[tokio::test(start_paused = true)]
async fn lock_ended_by_one_task_is_lost_to_others() {
    let members = cluster(&Hub::new()).await;
    let ended = async |member: &Gaggle, lock: &Lock| {
        let mut context = Context::from_waker(Waker::noop());
        assert!(member.unlock(lock).boxed().poll_unpin(&mut context).is_pending());
        sleep(ms(20)).await;
    };
    for (_, member) in &members {
        let lock = member.lock("watched", LockOptions::default()).await.unwrap();
        let watch = member.watch(&lock);
        ended(member, &lock).await;
        assert!(watch.is_lost());

        let lock = member.lock("not watched yet", LockOptions::default()).await.unwrap();
        let extended = member.extend(&lock, ms(600_000)).await.unwrap();
        ended(member, &lock).await;
        let watch = member.watch(&extended);
        sleep(ms(20)).await;
        assert!(watch.is_lost());

        let lock = member.lock("not read yet", LockOptions::default()).await.unwrap();
        let mut extended = member.extend(&lock, ms(600_000));
        let mut context = Context::from_waker(Waker::noop());
        assert!(extended.poll_unpin(&mut context).is_pending());
        sleep(ms(20)).await;
        ended(member, &lock).await;
        assert!(matches!(extended.await, Err(Error::NotHolder)));
    }
}

/// Contract, rule 3: leases due are ended at once where someone waits, also where that comes before
/// whatever else the member would wake for.
#[tokio::test(start_paused = true)]
async fn waiter_is_granted_at_lease_end() {
    let name = NodeName::new("a").unwrap();
    let options = MemberOptions::named("test", [name.clone()]).clock(Arc::new(TokioClock::new()));
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

/// A repeated LOCK of a given nonce moves the waiter to the process that repeats it, in its place.
/// The former process unlocks nothing as its call ends.
#[tokio::test(start_paused = true)]
async fn given_nonce_is_taken_over_in_its_position() {
    let members = cluster(&Hub::new()).await;
    let [a, b, c] = [0, 1, 2].map(|place| &members[place].1);
    let first = a.lock("k", LockOptions::default()).await.unwrap();
    let wait = LockOptions::default().max_wait(ms(9_000));
    let given = wait.clone().nonce(Nonce::given(7));
    let mut context = Context::from_waker(Waker::noop());
    let mut former = Box::pin(b.lock("k", given.clone().max_wait(ms(2_000))));
    assert!(former.as_mut().poll(&mut context).is_pending());
    sleep(ms(50)).await;
    let mut other = Box::pin(a.lock("k", wait));
    assert!(other.as_mut().poll(&mut context).is_pending());
    sleep(ms(50)).await;
    let mut moved = Box::pin(c.lock("k", given));
    assert!(moved.as_mut().poll(&mut context).is_pending());
    sleep(ms(50)).await;
    a.unlock(&first).await.unwrap();
    let lock = moved.await.unwrap();
    assert_eq!((lock.nonce(), lock.fencing_token()), (Nonce::given(7), first.fencing_token() + 1));
    assert!(matches!(former.await, Err(Error::TimedOut(None))));
    b.close().await;
    let held = a.inspect("k").await.unwrap().unwrap();
    assert_eq!(held.nonce, lock.nonce(), "nothing ended it");
    c.unlock(&lock).await.unwrap();
    assert_eq!(other.await.unwrap().fencing_token(), lock.fencing_token() + 1);
}
