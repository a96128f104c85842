//! Goal: a strategy that never yields does not hang the conformance suite silently.
//! Method: this test program starts itself again, for a case that blocks its thread.
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
    KeyedMutex,
    testing::{self, Fixture},
};

struct Blocked;

#[async_trait]
impl Fixture for Blocked {
    /// Blocks its thread, as a strategy that never yields.
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        loop {
            thread::sleep(Duration::from_secs(1));
        }
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
