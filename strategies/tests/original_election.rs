//! Goal: the original's election tests, and its fault that three members less one elected nobody.
//! Method: members in one runtime over Memory, in virtual time.

mod support {
    pub(crate) mod cluster;
    pub(crate) mod connect;
    pub(crate) mod gate;
}

use std::time::Duration;

use gaggle_strategies::{Error, Gaggle, KeyedMutex, LockOptions};
use tokio::time::{Instant, sleep};

use crate::support::{cluster::Cluster, connect};

async fn cluster(size: usize) -> Cluster<Gaggle> {
    Cluster::in_virtual_time(size, connect::memory()).started().await
}

fn leaders(cluster: &Cluster<Gaggle>) -> usize {
    cluster.running().iter().filter(|member| member.status().leads).count()
}

#[tokio::test(start_paused = true)]
async fn elects_exactly_one_leader() {
    for size in [1, 2, 3, 5, 7] {
        let cluster = cluster(size).await;
        cluster.leader().await;
        for _ in 0..200 {
            assert_eq!(leaders(&cluster), 1, "of {size} members");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn re_elects_when_a_leader_fails() {
    let cluster = cluster(3).await;
    let old = cluster.leader().await;
    cluster.stop(old).await;
    let began = Instant::now();
    let new = cluster.agreed_leader(&cluster.others(old)).await;
    assert_ne!(new, old);
    assert!(began.elapsed() < Duration::from_secs(1), "took {:?}", began.elapsed());
    // The one that failed comes back as another incarnation and follows.
    cluster.start_all().await;
    assert_eq!(leaders(&cluster), 1);
}

/// Stops the leader and then others until `stopped` are gone; the rest must go on serving.
async fn survives(size: usize, stopped: usize) {
    let cluster = cluster(size).await;
    let leader = cluster.leader().await;
    let mut rest = cluster.others(leader);
    cluster.stop(leader).await;
    for _ in 1..stopped {
        let index = rest.pop().expect("less than half are stopped");
        cluster.stop(index).await;
    }
    let began = Instant::now();
    cluster.agreed_leader(&rest).await;
    for &index in &rest {
        let member = cluster.member(index);
        let lock = member.lock("k", LockOptions::default()).await.expect("a majority is left");
        member.unlock(&lock).await.expect("a majority is left");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{size} − {stopped} took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn three_members_less_one_elect_a_leader() {
    survives(3, 1).await;
}

#[tokio::test(start_paused = true)]
async fn five_members_less_two_elect_a_leader() {
    survives(5, 2).await;
}

#[tokio::test(start_paused = true)]
async fn four_members_less_one_and_seven_less_three_elect_a_leader() {
    survives(4, 1).await;
    survives(7, 3).await;
}

/// The other side of the rule: without a majority nobody is granted anything.
#[tokio::test(start_paused = true)]
async fn less_than_a_majority_grants_nothing() {
    for (size, cut_off) in [(3, 2), (5, 3), (4, 2)] {
        let cluster = cluster(size).await;
        (0..cut_off).for_each(|index| cluster.isolate(index));
        sleep(Duration::from_secs(1)).await;
        for index in [0, cut_off - 1] {
            let options = LockOptions::default().max_wait(Duration::from_secs(2));
            let result = cluster.member(index).lock("k", options).await;
            let refused = matches!(result, Err(Error::Unavailable { .. } | Error::Unknown));
            assert!(refused, "{size} members, {cut_off} alone: {result:?}");
        }
    }
}
