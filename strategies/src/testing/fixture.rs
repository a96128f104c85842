//! The access of the suite to a strategy and its backend.

use std::{process::Command, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::mutex::KeyedMutex;

/// How the suite reaches a strategy and its backend.
///
/// Only [`open`](Self::open) and [`residue`](Self::residue) are required. The powers over the
/// backend default to [`Lacking`]; a case that needs one which is lacking is reported as
/// [`Outcome::Untried`](super::Outcome::Untried) and counts as not passed, unless the strategy's
/// capabilities say that the contract asks nothing there.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Another process' handle on the same backend.
    ///
    /// It may be shared between calls (the members of a cluster in turn); then
    /// [`done`](Self::done) must not close it.
    async fn open(&self) -> Arc<dyn KeyedMutex>;

    /// A handle on the same backend that the case closes itself. By default it is that of
    /// [`open`](Self::open); after the close it stays closed, also if all handles are one.
    async fn open_alone(&self) -> Arc<dyn KeyedMutex> {
        self.open().await
    }

    /// Takes back a handle of [`open`](Self::open), after the case. By default it is closed.
    async fn done(&self, handle: Arc<dyn KeyedMutex>) {
        handle.close().await;
    }

    /// Brings the backend to full strength; called before every case. By default nothing.
    async fn settle(&self) {}

    /// How many keys and waiters the granting side keeps now, apart from what the contract lets it
    /// keep (token counters, finished nonces). `None` where it cannot be counted: cases that need
    /// it are then untried.
    async fn residue(&self) -> Option<u64>;

    /// How much later than promised a reply may come: scheduling, the network, an election. 2 s
    /// by default, for real servers on a busy machine; a few milliseconds in virtual time. Lower
    /// bounds know no slack.
    fn slack(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The lease that cases let run out, 1 s by default.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The time within which the service must work again after
    /// [`backend_up`](Self::backend_up), a restart or a change of leader, 20 s by default.
    fn recovery(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// The time within which free keys must have left the granting side, 15 s by default.
    fn sweep(&self) -> Duration {
        Duration::from_secs(15)
    }

    /// The limit of one case, 3 min by default; when it has passed the case has failed.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(180)
    }

    /// How many waiters case 32 queues on one key, 1,000 by default. Say why if you lower it.
    fn waiters(&self) -> usize {
        1_000
    }

    /// How many keys case 35 locks, 100,000 by default. Say why if you lower it.
    fn keys(&self) -> usize {
        100_000
    }

    /// Starts this test again, as another process on the same backend. There the test must call
    /// [`run`](super::run) with a fixture whose [`open`](Self::open) reaches that backend.
    ///
    /// ```
    /// use std::process::Command;
    ///
    /// fn this_test(name: &str, url: &str) -> std::io::Result<Command> {
    ///     let mut worker = Command::new(std::env::current_exe()?);
    ///     worker.args([name, "--exact", "--nocapture"]).env("MY_SERVER", url);
    ///     Ok(worker)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lacking`], also the default, where the fixture cannot do it.
    fn worker(&self) -> Result<Command, Lacking> {
        Err(Lacking("the fixture cannot start another process"))
    }

    /// Takes the backend away from every handle: the server is stopped, the members have no
    /// quorum. Handles stay open.
    ///
    /// # Errors
    ///
    /// [`Lacking`], also the default, where the fixture cannot do it.
    async fn backend_down(&self) -> Result<(), Lacking> {
        Err(Lacking("the fixture cannot take the backend down"))
    }

    /// Gives it back.
    ///
    /// # Errors
    ///
    /// As [`backend_down`](Self::backend_down).
    async fn backend_up(&self) -> Result<(), Lacking> {
        Err(Lacking("the fixture cannot bring the backend back"))
    }

    /// Restarts the granting side so that it loses its memory. Handles opened before may be dead
    /// afterwards; the suite opens new ones. In virtual time, let a moment pass: tokens start at
    /// the wall clock.
    ///
    /// # Errors
    ///
    /// As [`backend_down`](Self::backend_down).
    async fn restart_backend(&self) -> Result<(), Lacking> {
        Err(Lacking("the fixture cannot restart the backend"))
    }

    /// Has another member lead, and returns once one does. Handles keep working.
    ///
    /// # Errors
    ///
    /// As [`backend_down`](Self::backend_down).
    async fn change_leader(&self) -> Result<(), Lacking> {
        Err(Lacking("the fixture cannot change the leader"))
    }
}

/// A fixture lacks an ability that a case needs; says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking(pub &'static str);
