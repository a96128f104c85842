//! The store of the counters, which has only GET and SET.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

use crate::{cluster, failure::Failure};

/// The store of the counters, which has only GET and SET.
pub(super) enum Store {
    /// In this process.
    Memory(Memory),
    /// A Redis, or a [`Server`](super::server::Server) with its protocol.
    Redis(MultiplexedConnection),
}

/// Where a member finds the store.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Address {
    /// In this process.
    Memory,
    /// At a Redis URL.
    Redis(String),
}

/// Keys and values of one process.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<BTreeMap<String, String>>>);

impl Store {
    pub(super) async fn open(address: &Address, memory: &Memory) -> Result<Self, Failure> {
        match address {
            Address::Memory => Ok(Self::Memory(memory.clone())),
            Address::Redis(url) => {
                let connect = async {
                    let client = redis::Client::open(url.as_str())?;
                    client.get_multiplexed_async_connection().await
                };
                let failed = |error| {
                    let address = cluster::redis_address(url);
                    let problem = format!("cannot reach Redis at {address} for the counter");
                    Failure::new(problem).because(&error)
                };
                connect.await.map(Self::Redis).map_err(failed)
            }
        }
    }

    /// The value of a counter; 0 if it was never set.
    pub(super) async fn get(&mut self, key: &str) -> Result<u64, Failure> {
        let text: Option<String> = match self {
            Self::Memory(memory) => memory.get(key),
            Self::Redis(redis) => {
                let mut get = redis::cmd("GET");
                get.arg(key).query_async(redis).await.map_err(failed)?
            }
        };
        let Some(text) = text else { return Ok(0) };
        text.parse().map_err(|_| Failure::new(format!("the counter holds {text:?}")))
    }

    pub(super) async fn set(&mut self, key: &str, value: u64) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => memory.set(key, &value.to_string()),
            Self::Redis(redis) => {
                let mut set = redis::cmd("SET");
                set.arg(key).arg(value).exec_async(redis).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Deletes a counter after the run.
    pub(super) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => memory.delete(key),
            Self::Redis(redis) => {
                redis::cmd("DEL").arg(key).exec_async(redis).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn failed(error: redis::RedisError) -> Failure {
    match error.code() {
        Some("NOAUTH") => Failure::new("Redis requires a password: redis://:PASSWORD@host"),
        _ => Failure::new("the counter").because(&error),
    }
}

impl Memory {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.lock().get(key).cloned()
    }

    pub(super) fn set(&self, key: &str, value: &str) {
        self.lock().insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn delete(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
