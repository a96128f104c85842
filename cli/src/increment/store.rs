//! The store of the counters, which has only GET and SET.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use redis::{ErrorKind, RedisError, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};

use crate::{cluster, failure::Failure};

/// The store of the counters, which has only GET and SET.
pub(super) enum Store {
    /// In this process.
    Memory(Memory),
    /// A Redis, or a [`Server`](super::server::Server) with its protocol.
    Redis { connection: MultiplexedConnection, address: String },
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
                let address = cluster::redis_address(url);
                let connection = connect.await.map_err(|error| failed(&address, &error))?;
                Ok(Self::Redis { connection, address })
            }
        }
    }

    /// The value of a counter; 0 if it was never set.
    pub(super) async fn get(&mut self, key: &str) -> Result<u64, Failure> {
        let text: Option<String> = match self {
            Self::Memory(memory) => memory.get(key),
            Self::Redis { connection, address } => {
                let got = redis::cmd("GET").arg(key).query_async(connection).await;
                got.map_err(|error| failed(address, &error))?
            }
        };
        let Some(text) = text else { return Ok(0) };
        text.parse().map_err(|_| Failure::new(format!("the counter holds {text:?}")))
    }

    pub(super) async fn set(&mut self, key: &str, value: u64) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => memory.set(key, &value.to_string()),
            Self::Redis { connection, address } => {
                let set = redis::cmd("SET").arg(key).arg(value).exec_async(connection).await;
                set.map_err(|error| failed(address, &error))?;
            }
        }
        Ok(())
    }

    /// Deletes a counter after the run.
    pub(super) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => memory.delete(key),
            Self::Redis { connection, address } => {
                let deleted = redis::cmd("DEL").arg(key).exec_async(connection).await;
                deleted.map_err(|error| failed(address, &error))?;
            }
        }
        Ok(())
    }
}

/// The sentences of the library.
fn failed(address: &str, error: &RedisError) -> Failure {
    match (error.code(), error.kind()) {
        (Some("NOAUTH"), _) => Failure::new(format!(
            "Redis at {address} requires a password: write :PASSWORD@ before the host"
        )),
        (Some("WRONGPASS"), _) | (None, ErrorKind::AuthenticationFailed) => {
            Failure::new(format!("Redis at {address} refused the user name or the password"))
        }
        _ if error.is_connection_refusal() => {
            Failure::new(format!("cannot reach Redis at {address}: connection refused"))
        }
        (None, ErrorKind::Io) => {
            Failure::new(format!("cannot reach Redis at {address}")).because(error)
        }
        _ => Failure::new(format!("the counter in Redis at {address}")).because(error),
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
