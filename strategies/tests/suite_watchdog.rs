//! Goal: a strategy that never yields does not hang the conformance suite silently.
//! Method: this test program starts itself again, for a case whose lock call blocks its thread.
#![allow(clippy::disallowed_methods, reason = "the watchdog runs by real time")]
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::{
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use gaggle_strategies::{
    BootClock, Capabilities, Clock, Error, Inspection, KeyedMutex, Lock, LockOptions,
    implement::LossWatch,
    testing::{self, Fixture},
};

/// Blocks its thread in `lock`.
struct Blocking;

#[async_trait]
impl KeyedMutex for Blocking {
    async fn lock(&self, _: &str, _: LockOptions) -> Result<Lock, Error> {
        loop {
            thread::sleep(Duration::from_secs(1));
        }
    }

    async fn unlock(&self, _: &Lock) -> Result<(), Error> {
        Ok(())
    }

    async fn extend(&self, _: &Lock, _: Duration) -> Result<Lock, Error> {
        Err(Error::NotHolder)
    }

    async fn inspect(&self, _: &str) -> Result<Option<Inspection>, Error> {
        Ok(None)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none("blocking")
    }

    async fn close(&self) {}

    fn release(&self, _: &Lock) {}

    fn watch(&self, _: &Lock) -> LossWatch {
        unreachable!("it grants nothing")
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(BootClock)
    }
}

struct Blocked;

#[async_trait]
impl Fixture for Blocked {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(Blocking)
    }

    async fn residue(&self) -> Option<u64> {
        None
    }

    fn time_limit(&self) -> Duration {
        Duration::from_millis(250)
    }
}

#[tokio::test]
#[ignore = "hangs until the watchdog ends it; the test below runs it"]
async fn hangs() {
    testing::run_case(&Blocked, 1).await;
}

#[test]
fn suite_names_a_case_that_never_yields() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "hangs"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() && Instant::now() < limit {
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(101), "{said}");
    assert!(said.contains("case 1 a_free_key_is_granted_at_once"), "{said}");
}
