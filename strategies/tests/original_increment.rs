//! Goal: the original's atomic increment, on each strategy, and its negative control. Method: five
//! processes increment one counter twenty times in a store that knows only GET and SET.

mod support {
    pub(crate) mod cluster;
    pub(crate) mod connect;
    pub(crate) mod gate;
}

use std::sync::Arc;

use gaggle_strategies::{
    Gaggle, KeyedMutex, Local, Noop, Raft, TokioClock,
    testing::increment::{self, Counted, Plan},
};

use crate::support::{
    cluster::{Cluster, Member},
    connect,
};

async fn of_a_cluster<S: Member>() -> Counted {
    let cluster = Cluster::<S>::in_virtual_time(5, connect::memory()).started().await;
    increment::run(&cluster.handles(), &Plan::default()).await.expect("every lock is granted")
}

fn five(mutex: impl KeyedMutex) -> Vec<Arc<dyn KeyedMutex>> {
    let mutex = Arc::new(mutex);
    (0..5).map(|_| mutex.clone() as Arc<dyn KeyedMutex>).collect()
}

const ALL_COUNTED: Counted = Counted { expected: 100, got: 100 };

#[tokio::test(start_paused = true)]
async fn atomic_increment_on_local() {
    let members = five(Local::with_clock(Arc::new(TokioClock::new())));
    assert_eq!(increment::run(&members, &Plan::default()).await.expect("granted"), ALL_COUNTED);
}

#[tokio::test(start_paused = true)]
async fn atomic_increment_on_raft() {
    assert_eq!(of_a_cluster::<Raft>().await, ALL_COUNTED);
}

#[tokio::test(start_paused = true)]
async fn atomic_increment_on_gaggle() {
    assert_eq!(of_a_cluster::<Gaggle>().await, ALL_COUNTED);
}

#[tokio::test(start_paused = true)]
async fn atomic_increment_test_fails_when_mutual_exclusion_is_faulty() {
    let members = five(Noop::with_clock(Arc::new(TokioClock::new())));
    let counted = increment::run(&members, &Plan::default()).await.expect("noop grants all");
    assert_eq!(counted.expected, 100);
    assert!(counted.lost() > 0, "the test did not see that nobody was excluded: {counted:?}");
}
