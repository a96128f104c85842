//! Goal: the HTTP strategy passes the conformance suite over each kind of server.
//! Method: the suite's cases over servers on free ports, each in a separate runtime; "down" is a
//! server that has ended.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use gaggle_strategies::{
    Http, HttpOptions, KeyedMutex,
    testing::{self, Fixture, Lacking},
};
use support::server::Service;

struct Served {
    service: Service,
    keys: usize,
}

#[async_trait]
impl Fixture for Served {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(Http::open(HttpOptions::new(self.service.addresses())).await.unwrap())
    }

    async fn residue(&self) -> Option<u64> {
        Some(self.service.residue().await)
    }

    fn keys(&self) -> usize {
        self.keys
    }

    async fn backend_down(&self) -> Result<(), Lacking> {
        self.service.down().await;
        Ok(())
    }

    async fn backend_up(&self) -> Result<(), Lacking> {
        self.service.up().await;
        Ok(())
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.backend_down().await?;
        self.backend_up().await
    }
}

async fn assert_passed(service: Service, keys: usize) {
    let report = testing::run(&Served { service, keys }).await;
    // `conformance_processes` of the strategies has it.
    report.assert_passed_but_untried(&[42]);
    report.assert_not_applicable(&[27]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_of_one_machine_passes_the_suite() {
    assert_passed(Service::local().await, 20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_a_redis_pass_the_suite() {
    assert_passed(Service::redis().await, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_a_group_pass_the_suite() {
    assert_passed(Service::group().await, 10_000).await;
}
