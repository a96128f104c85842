//! Goal: scopes, `unlock_all`, `lock_all` and `wait_for_release` keep their promises on every
//! strategy. Method: the same test on `Local`, a Redis and a group of one; what depends on time runs
//! on `Local` in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod common;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use common::{Stub, ms};
use gaggle::{
    Error, KeyedMutex, LockOptions, Locker, LossCause, MaxWait, open,
    operator::{ForcedUnlock, ListOptions},
    strategies::{
        Local,
        clock::TokioClock,
        testing::{self, Fixture, Lacking},
    },
};
use gaggle_fixtures::RedisServer;
use tokio::time::Instant;

/// Runs a test on each strategy.
async fn on_each_strategy<T: Future<Output = ()>>(test: impl Fn(Locker) -> T) {
    let server = RedisServer::start();
    // Tests of one process share the hubs of groups: the port of the server names the group.
    let group = format!("gaggle+memory://words-{}?name=a&members=a", server.port());
    for url in ["local:", &group, &server.url()] {
        let locker = open(url).await.unwrap();
        test(locker.clone()).await;
        locker.close().await;
    }
}

fn local() -> Locker {
    Locker::new(Local::with_clock(Arc::new(TokioClock::new())))
}

fn forever() -> LockOptions {
    LockOptions::default().max_wait(MaxWait::Forever)
}

/// Starts a call that waits for a held key, and returns once it is in the queue.
async fn waiting(locker: &Locker, key: &str) -> tokio::task::JoinHandle<Result<(), Error>> {
    let request = locker.lock_with(key, forever()).into_future();
    let call = tokio::spawn(async { request.await.map(drop) });
    while locker.inspect(key).await.unwrap().is_none_or(|held| held.waiters == 0) {
        tokio::time::sleep(ms(1)).await;
    }
    call
}

#[tokio::test]
async fn unlock_all_ends_guards_and_waits_of_the_prefix() {
    on_each_strategy(|locker| async move {
        let [first, second, other] = ["a/1", "a/2", "b"].map(|key| locker.lock(key));
        let (first, second, other) =
            (first.await.unwrap(), second.await.unwrap(), other.await.unwrap());
        let (ended, kept) = (waiting(&locker, "a/1").await, waiting(&locker, "b").await);

        locker.unlock_all("a/").await.unwrap();

        assert!(matches!(ended.await.unwrap(), Err(Error::Withdrawn)));
        for guard in [first, second] {
            assert!(!guard.is_valid());
            assert_eq!(guard.loss(), Some(LossCause::Ended));
            assert!(locker.inspect(&guard.key()).await.unwrap().is_none(), "{}", guard.key());
        }
        assert!(other.is_valid());
        other.unlock().await.unwrap();
        kept.await.unwrap().unwrap();
    })
    .await;
}

/// A strategy without a queue retries: a call ends at its next attempt, or before.
#[tokio::test]
async fn unlock_all_ends_calls_that_retry() {
    let server = RedisServer::start();
    let group = format!("raft+memory://retries-{}?name=a&members=a", server.port());
    for url in [group, format!("{}?queue=none", server.url())] {
        let locker = open(&url).await.unwrap();
        let held = [locker.lock("a/1").await.unwrap(), locker.lock("b").await.unwrap()];
        let [mut ended, mut kept] = ["a/1", "b"].map(|key| {
            let locker = locker.clone();
            tokio::spawn(async move { locker.lock_with(key, forever()).await })
        });
        for call in [&mut ended, &mut kept] {
            let early = tokio::time::timeout(ms(50), call).await;
            assert!(early.is_err(), "{url}: a lock of a held key did not wait");
        }

        locker.unlock_all("a/").await.unwrap();

        let ended = tokio::time::timeout(ms(5000), ended).await.unwrap().unwrap();
        assert!(matches!(ended, Err(Error::Withdrawn)), "{url}: {ended:?}");
        let [ended, other] = held;
        assert!(!ended.is_valid() && other.is_valid(), "{url}");
        other.unlock().await.unwrap();
        kept.await.unwrap().unwrap().unlock().await.unwrap();
        locker.close().await;
    }
}

#[tokio::test]
async fn transferred_lock_survives_unlock_all() {
    on_each_strategy(|locker| async move {
        let lock = locker.lock("a").await.unwrap().into_lock();
        locker.unlock_all("").await.unwrap();
        locker.unlock(&lock).await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn strategy_without_unlock_all_says_so() {
    let locker = Locker::new(Stub::new());
    let _guard = locker.lock("a").await.unwrap();
    let refused = locker.unlock_all("").await.unwrap_err();
    assert_eq!(refused.to_string(), "this strategy does not support unlock_all");
    assert!(refused.is_permanent());
}

#[tokio::test]
async fn scope_names_its_keys_without_the_prefix() {
    on_each_strategy(|locker| async move {
        let (orders, outer) = (locker.scope("orders"), locker.lock("42").await.unwrap());
        let guard = orders.lock("42").await.unwrap();
        assert_eq!(&*guard.key(), "42");
        assert!(locker.inspect("orders/42").await.unwrap().is_some());
        assert!(orders.inspect("42").await.unwrap().is_some());

        let at_once = orders.lock_with("42", LockOptions::default()).try_now().await;
        let refused = at_once.unwrap_err().to_string();
        assert!(refused.starts_with("\"42\" is held by"), "{refused}");

        let operator = orders.operator().expect("each strategy has one");
        let page = operator.list(ListOptions::default().prefix("4")).await.unwrap();
        assert_eq!(page.entries.iter().map(|it| &*it.key).collect::<Vec<_>>(), ["42"]);
        let forced = operator.force_unlock("42", None, "test").await.unwrap();
        assert!(matches!(forced, ForcedUnlock::Unlocked(_)));
        guard.lost().await;
        assert!(outer.is_valid(), "another key");
        outer.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn closed_scope_ends_its_own_locks_alone() {
    on_each_strategy(|locker| async move {
        let (orders, users) = (locker.scope("orders"), locker.scope("users"));
        let (guard, other) = (orders.lock("1").await.unwrap(), users.lock("1").await.unwrap());
        let wait = waiting(&orders, "1").await;

        orders.close().await;

        assert!(matches!(wait.await.unwrap(), Err(Error::Closed)));
        assert!(!guard.is_valid());
        assert!(locker.inspect("orders/1").await.unwrap().is_none());
        assert!(matches!(orders.lock("2").await, Err(Error::Closed)));
        assert!(other.is_valid());
        other.unlock().await.unwrap();
        orders.close().await;
    })
    .await;
}

#[tokio::test]
async fn scope_counts_its_name_in_the_length_of_keys() {
    let scope = local().scope("s");
    let longest = "k".repeat(1022);
    scope.lock(&longest).await.unwrap().unlock().await.unwrap();
    let refused = scope.lock(longest + "k").await.unwrap_err();
    assert!(matches!(refused, Error::InvalidKey { bytes: 1025, limit: 1024 }));
    assert!(matches!(scope.lock("").await, Err(Error::InvalidKey { bytes: 0, .. })));
}

/// A `Local`, and a scope of it as a strategy.
struct Scoped(std::sync::Mutex<(Arc<Local>, Arc<dyn KeyedMutex>)>);

impl Scoped {
    fn fresh() -> (Arc<Local>, Arc<dyn KeyedMutex>) {
        let local = Arc::new(Local::with_clock(Arc::new(TokioClock::new())));
        let scope = Locker::from_arc(local.clone()).scope("scope").strategy().clone();
        (local, scope)
    }

    fn scope(&self) -> Arc<dyn KeyedMutex> {
        self.0.lock().unwrap().1.clone()
    }
}

#[async_trait]
impl Fixture for Scoped {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        self.scope()
    }

    async fn done(&self, _: Arc<dyn KeyedMutex>) {}

    async fn settle(&self) {
        if matches!(self.scope().inspect("k").await, Err(Error::Closed)) {
            *self.0.lock().unwrap() = Self::fresh();
        }
    }

    async fn residue(&self) -> Option<u64> {
        let sizes = self.0.lock().unwrap().0.sizes();
        Some(sizes.keys + sizes.waiters)
    }

    fn slack(&self) -> Duration {
        ms(5)
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.scope().close().await;
        *self.0.lock().unwrap() = Self::fresh();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn scope_passes_the_conformance_suite() {
    let fixture = Scoped(std::sync::Mutex::new(Scoped::fresh()));
    let report = testing::run(&fixture).await;
    // Case 34 locks a key of 1,024 bytes: the name of the scope is a part of it.
    assert_eq!(report.failed(), [34], "{report}");
}

#[tokio::test]
async fn calls_for_the_same_keys_in_other_orders_all_end() {
    on_each_strategy(|locker| async move {
        let calls = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]].map(|keys| {
            let locker = locker.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let guards = locker.lock_all(keys, forever()).await.unwrap();
                    let order = guards.iter().map(|it| it.key()).collect::<Vec<_>>();
                    assert_eq!(order.iter().map(|key| &**key).collect::<Vec<_>>(), keys);
                    for guard in guards {
                        guard.unlock().await.unwrap();
                    }
                }
            })
        });
        for call in calls {
            call.await.unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lock_all_locks_all_or_none_by_one_deadline() {
    let locker = local();
    let _held = locker.lock_with("b", LockOptions::default().duration(ms(60_000))).await.unwrap();
    let first = locker.lock_with("a", LockOptions::default().duration(ms(700))).await.unwrap();
    let options = LockOptions::default().max_wait(ms(1000));
    let (keys, began) = (["c", "b", "a"], Instant::now());

    let refused = locker.lock_all(keys, options.clone()).await.unwrap_err();

    assert!(began.elapsed() <= ms(1010), "one deadline for all: {:?}", began.elapsed());
    assert!(refused.to_string().starts_with("timed out after 1s waiting for \"b\""), "{refused}");
    drop(first);
    for key in ["a", "c"] {
        assert!(locker.inspect(key).await.unwrap().is_none(), "{key}");
    }
    let refused = locker.lock_all(keys, options.max_wait(Duration::ZERO)).await.unwrap_err();
    assert!(matches!(refused, Error::Held(_)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn lock_all_extends_what_waits_for_the_rest() {
    let locker = local();
    let held = locker.lock_with("b", LockOptions::default().duration(ms(60_000))).await.unwrap();
    let all = {
        let locker = locker.clone();
        let options = LockOptions::default().duration(ms(900)).max_wait(ms(60_000));
        tokio::spawn(async move { locker.lock_all(["a", "b"], options).await })
    };
    tokio::time::sleep(ms(10_000)).await;
    drop(held);
    for guard in all.await.unwrap().unwrap() {
        assert!(guard.remaining() >= ms(440), "{guard:?}");
    }
}

/// An operator ends the lock of the first key while the second is awaited, or just before its grant.
#[tokio::test(start_paused = true)]
async fn lock_lost_during_lock_all_ends_the_call() {
    for is_granted in [false, true] {
        let locker = local();
        let lasting = LockOptions::default().duration(ms(60_000));
        let held = locker.lock_with("b", lasting).await.unwrap();
        let all = {
            let locker = locker.clone();
            let options = forever().duration(ms(900));
            tokio::spawn(async move { locker.lock_all(["a", "b"], options).await })
        };
        tokio::time::sleep(ms(1000)).await;
        let operator = locker.operator().expect("each strategy has one");
        operator.force_unlock("a", None, "test").await.unwrap();
        let held = if is_granted { held.unlock().await.map(|()| None) } else { Ok(Some(held)) };

        let ended = tokio::time::timeout(ms(301), all).await.expect("by the next extension");
        let lost = ended.unwrap().unwrap_err();

        assert!(matches!(lost, Error::NotHolder), "{lost}");
        drop(held);
        tokio::task::yield_now().await;
        for key in ["a", "b"] {
            assert!(locker.inspect(key).await.unwrap().is_none(), "{key}");
        }
    }
}

#[tokio::test]
async fn lock_all_refuses_invalid_keys_before_it_locks() {
    let (stub, options) = (Stub::new(), LockOptions::default());
    let locker = Locker::new(stub.clone());
    let twice = locker.lock_all(["a", "b", "a"], options.clone()).await.unwrap_err();
    assert_eq!(twice.to_string(), "invalid keys: a, the limit is each key once");
    assert!(matches!(
        locker.lock_all(["a", ""], options.clone()).await,
        Err(Error::InvalidKey { .. })
    ));
    assert!(stub.calls().is_empty());
    let none: [&str; 0] = [];
    assert!(locker.lock_all(none, options).await.unwrap().is_empty());
}

#[tokio::test]
async fn release_is_noticed() {
    on_each_strategy(|locker| async move {
        let guard = locker.lock("a").await.unwrap();
        let wait = {
            let locker = locker.clone();
            tokio::spawn(async move { locker.wait_for_release("a", ms(5000)).await })
        };
        tokio::time::sleep(ms(20)).await;
        assert!(!wait.is_finished());
        guard.unlock().await.unwrap();
        wait.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_release_ends_by_max_wait_and_with_the_lease() {
    let locker = local();
    let short = LockOptions::default().duration(ms(120));
    let _guard = locker.lock_with("a", short).await.unwrap();
    let began = Instant::now();
    let late = locker.wait_for_release("a", ms(50)).await.unwrap_err();
    assert!(
        late.to_string().starts_with("timed out after 50ms waiting for \"a\", held by"),
        "{late}"
    );
    assert!(began.elapsed() <= ms(51), "{:?}", began.elapsed());
    locker.wait_for_release("a", MaxWait::Forever).await.unwrap();
    assert!(began.elapsed() <= ms(122), "{:?}", began.elapsed());
    let too_long = locker.wait_for_release("a", Duration::from_secs(90_000)).await;
    assert!(matches!(too_long, Err(Error::InvalidOptions { field: "max_wait", .. })));
}
