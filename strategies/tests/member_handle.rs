//! Goal: edge cases of a member's handle: a dropped guard, a close with and without a quorum,
//! pending requests, locks of a lost group.
//!
//! Method: three members over the Memory channel on one paused runtime; nothing sleeps for real.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

#[path = "support/memory.rs"]
mod memory;

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use futures_util::FutureExt as _;
use gaggle_channels::{Channel, ChannelError, Hub, NodeName};
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, Lock, LockOptions, MaxWait, MemberOptions, clock::TokioClock,
};
use memory::{cluster, names, options};
use tokio::{
    task::unconstrained,
    time::{Instant, sleep},
};

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
    assert!(members[1..].iter().any(|(_, member)| member.status().leads), "before any timeout");
}

#[tokio::test(start_paused = true)]
async fn close_without_a_quorum_ends_in_time() {
    let hub = Hub::new();
    let members = cluster(&hub).await;
    let leader = &members[0].1;
    let lock = leader.lock("k", LockOptions::default()).await.unwrap();
    let watch = leader.watch(&lock);
    names().iter().for_each(|name| hub.isolate(name));
    let began = Instant::now();
    leader.close().await;
    assert!(watch.is_lost());
    let took = began.elapsed();
    assert!(took >= ms(1000) && took <= ms(1200), "{took:?}");
}

/// The member receives from the leader, but its own frames are lost.
#[tokio::test(start_paused = true)]
async fn lock_without_reply_times_out_or_is_unknown() {
    let hub = Hub::new();
    let members = cluster(&hub).await;
    let (mute, member) = &members[2];
    members[..2].iter().for_each(|(name, _)| hub.cut(mute, name));
    let ends = async |options: LockOptions| {
        let began = Instant::now();
        (member.lock("k", options).await.unwrap_err(), began.elapsed().as_millis())
    };
    let wait = |wait: Duration| LockOptions::default().max_wait(MaxWait::AtMost(wait));
    let waited = ends(wait(ms(2000))).await;
    assert!(matches!(waited, (Error::TimedOut(_), 2000)), "{waited:?}");
    let tried = ends(wait(Duration::ZERO)).await;
    assert!(matches!(tried, (Error::Unknown, 1000)), "{tried:?}");
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
    let only_watched = members[0].1.lock("only watched", long.clone()).await.unwrap();
    let only_watched = survivor.watch(&only_watched);
    let unwatched = survivor.lock("unwatched", long.clone()).await.unwrap();
    let between = survivor.lock("between", long.clone()).await.unwrap();
    let mut unread = Box::pin(survivor.lock("unread", long.clone()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(unread.as_mut().poll(&mut context).is_pending());
    sleep(ms(200)).await;
    assert!(members[0].1.inspect("unread").await.unwrap().is_some(), "granted, and not taken");

    // More than half of the members lose the memory.
    let former = survivor.status().group;
    let lost: Vec<NodeName> = members.iter().map(|(name, _)| name.clone()).collect();
    drop(members);
    sleep(ms(100)).await;
    let mut restarted = Vec::new();
    for (name, seed) in lost.into_iter().zip(10..) {
        let channel: Arc<dyn Channel> = Arc::new(hub.channel(name));
        restarted.push(Gaggle::open(channel, options(seed)).await.unwrap());
    }
    while survivor.status().group == former {
        sleep(ms(1)).await;
    }
    assert_eq!(survivor.status().group, None, "it is in no group for a moment");
    let between = survivor.watch(&between);
    sleep(ms(1)).await;
    assert!(between.is_lost());
    for member in &restarted {
        member.ready().await.unwrap();
    }
    assert!(survivor.status().group.is_some_and(|group| Some(group) != former), "a new group");
    for key in ["adopted", "unwatched", "unread"] {
        let _ = restarted[0].lock(key, LockOptions::default().duration(ms(600_000))).await.unwrap();
    }
    assert!(adopted.is_lost() && only_watched.is_lost());
    let unwatched = survivor.watch(&unwatched);
    for _ in 0..5 {
        assert!(unread.as_mut().poll(&mut context).is_pending(), "it is another's now");
        sleep(ms(20)).await;
    }
    assert!(unwatched.is_lost());
}

/// A process adopts a lock, its former process unlocks it, and the watch begins only then. Other
/// locks are not lost.
#[tokio::test(start_paused = true)]
async fn late_watch_of_a_lost_lock_is_lost() {
    let members = cluster(&Hub::new()).await;
    let [(_, first), (_, second), _] = &members[..] else { unreachable!() };
    let long = LockOptions::default().duration(ms(600_000));
    let lives = first.lock("lives", long.clone()).await.unwrap();
    let transferred = first.lock("adopted", long.clone()).await.unwrap();
    let own = second.lock("own", long).await.unwrap();
    let adopted = second.extend(&transferred, ms(600_000)).await.unwrap();
    first.unlock(&transferred).await.unwrap();
    while second.inspect("adopted").await.unwrap().is_some() {
        sleep(ms(1)).await;
    }
    let adopted = second.watch(&adopted);
    let others = [second.watch(&lives), second.watch(&own)];
    sleep(ms(20)).await;
    assert!(adopted.is_lost());
    assert!(others.iter().all(|watch| !watch.is_lost()));
}

/// A forgotten nonce may name a later acquisition, which must not be extended.
#[tokio::test(start_paused = true)]
async fn extend_with_a_former_token_is_refused() {
    let members = cluster(&Hub::new()).await;
    for (_, member) in &members {
        let lock = member.lock("k", LockOptions::default()).await.unwrap();
        let watch = member.watch(&lock);
        let former = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token() - 1, None);
        let outcome = member.extend(&former, ms(1000)).await;
        assert!(matches!(outcome, Err(Error::NotHolder)), "{outcome:?}");
        assert!(!watch.is_lost());
        member.extend(&lock, ms(1000)).await.unwrap();
        member.unlock(&lock).await.unwrap();
    }
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

/// The first close waits for unlocks that no quorum confirms.
#[tokio::test(start_paused = true)]
async fn second_close_takes_no_longer() {
    let mut members = cluster(&Hub::new()).await;
    let (_, member) = members.pop().unwrap();
    let lock = member.lock("k", LockOptions::default()).await.unwrap();
    let _watch = member.watch(&lock);
    drop(members);
    sleep(ms(2000)).await;
    let before = Instant::now();
    while tokio::time::timeout(ms(300), member.close()).await.is_err() {
        assert!(before.elapsed() < ms(3000), "it never ends");
    }
    assert!(before.elapsed() < ms(1500), "{:?}", before.elapsed());
}
