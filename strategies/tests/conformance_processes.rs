//! Goal: case 42 of the conformance suite passes on one server for all processes, and fails a
//! strategy whose processes do not exclude each other. Method: each test starts itself again, as
//! the suite's worker processes.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{env, process::Command, sync::Arc};

use async_trait::async_trait;
use gaggle_fixtures::RedisServer;
use gaggle_strategies::{
    KeyedMutex, Redis, RedisOptions,
    testing::{self, Fixture, Lacking, Outcome, broken::Server},
};

const CASE: u8 = 42;

/// The URL of the server, in a worker process.
const URL: &str = "GAGGLE_TEST_URL";

fn this_test(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]);
    command
}

/// All processes use one Redis.
struct OneRedis(String);

#[async_trait]
impl Fixture for OneRedis {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(Redis::open(RedisOptions::new(&*self.0)).await.unwrap())
    }

    async fn residue(&self) -> Option<u64> {
        None
    }

    fn worker(&self) -> Result<Command, Lacking> {
        let mut worker = this_test("processes_on_one_redis_lose_no_increment");
        worker.env(URL, &self.0);
        Ok(worker)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_on_one_redis_lose_no_increment() {
    if let Ok(url) = env::var(URL) {
        testing::run(&OneRedis(url)).await;
    }
    let server = RedisServer::start();
    let report = testing::run_case(&OneRedis(server.url()), CASE).await;
    assert_eq!(report.outcome, Outcome::Passed, "{report}");
}

/// Each process has another server, and calls itself distributed.
struct Apart(Server);

#[async_trait]
impl Fixture for Apart {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(self.0.open())
    }

    async fn residue(&self) -> Option<u64> {
        Some(self.0.residue())
    }

    fn worker(&self) -> Result<Command, Lacking> {
        let mut worker = this_test("processes_without_a_common_server_fail");
        worker.env(URL, "");
        Ok(worker)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_without_a_common_server_fail() {
    let fixture = Apart(Server::sound());
    if env::var_os(URL).is_some() {
        testing::run(&fixture).await;
    }
    let report = testing::run_case(&fixture, CASE).await;
    let Outcome::Failed(problem) = &report.outcome else { panic!("{report}") };
    assert!(problem.starts_with("two processes held the key"), "{problem}");
}
