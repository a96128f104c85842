//! The store of the counters, which has only GET and SET.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use gaggle::Nonce;
use redis::{ErrorKind, RedisError, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, redis_url, utf8::temporary_directory};

/// A killed run leaves its counter. An increment takes less than this.
const COUNTER_EXPIRY: Duration = Duration::from_secs(24 * 60 * 60);

/// The store of the counters, which has only GET and SET.
pub(super) enum Store {
    /// In this process.
    Memory(Memory),
    /// A file for each counter. Its few bytes need no thread of their own.
    Folder(PathBuf),
    Redis {
        connection: MultiplexedConnection,
        address: String,
    },
}

/// Where a member finds the store.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Address {
    /// In this process.
    Memory,
    /// In this [`Folder`].
    Folder(PathBuf),
    /// At a Redis URL.
    Redis(String),
}

/// Keys and values of one process.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<BTreeMap<String, String>>>);

/// A folder of this user for the workers of one run, removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self, Failure> {
        let path = temporary_directory()?.join(format!("gaggle-increment-{}", Nonce::random()));
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| in_folder(&path, &error))?;
        Ok(Self(path))
    }

    /// In a worker: the folder of its parent.
    pub(super) fn of_parent(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for _ in 0..100 {
            match fs::remove_dir_all(&self.0) {
                // A killed worker may create a file while its folder is emptied.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    thread::sleep(Duration::from_millis(10));
                }
                _ => break,
            }
        }
    }
}

impl Store {
    pub(super) async fn open(address: &Address, memory: &Memory) -> Result<Self, Failure> {
        match address {
            Address::Memory => Ok(Self::Memory(memory.clone())),
            Address::Folder(folder) => Ok(Self::Folder(folder.clone())),
            Address::Redis(url) => {
                let connect = async {
                    let client = redis::Client::open(url.as_str())?;
                    client.get_multiplexed_async_connection().await
                };
                let address = redis_url::address(url);
                let connection = connect.await.map_err(|error| failed(&address, &error))?;
                Ok(Self::Redis { connection, address })
            }
        }
    }

    /// The value of a counter; 0 if it was never set.
    pub(super) async fn get(&mut self, key: &str) -> Result<u64, Failure> {
        let text: Option<String> = match self {
            Self::Memory(memory) => memory.lock().get(key).cloned(),
            Self::Folder(folder) => match fs::read_to_string(folder.join(key)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                read => Some(read.map_err(|error| in_folder(folder, &error))?),
            },
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
            Self::Memory(memory) => _ = memory.lock().insert(key.to_owned(), value.to_string()),
            Self::Folder(folder) => {
                // Replaced whole: no reader sees a part of it.
                let new = folder.join(format!("{key}.{}", process::id()));
                let written = fs::write(&new, value.to_string());
                let replaced = written.and_then(|()| fs::rename(new, folder.join(key)));
                replaced.map_err(|error| in_folder(folder, &error))?;
            }
            Self::Redis { connection, address } => {
                let mut set = redis::cmd("SET");
                set.arg(key).arg(value).arg("EX").arg(COUNTER_EXPIRY.as_secs());
                set.exec_async(connection).await.map_err(|error| failed(address, &error))?;
            }
        }
        Ok(())
    }

    /// Deletes a counter after the run.
    pub(super) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        match self {
            // Counters in memory and in files end with the run.
            Self::Memory(_) | Self::Folder(_) => {}
            Self::Redis { connection, address } => {
                let deleted = redis::cmd("DEL").arg(key).exec_async(connection).await;
                deleted.map_err(|error| failed(address, &error))?;
            }
        }
        Ok(())
    }
}

fn in_folder(folder: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("the counter in {}", folder.display())).because(error)
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
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn member_reads_what_another_wrote() {
        let (folder, memory) = (Folder::new().unwrap(), Memory::default());
        let address = Address::Folder(folder.path().to_owned());
        let mut one = Store::open(&address, &memory).await.unwrap();
        let mut other = Store::open(&address, &memory).await.unwrap();
        assert_eq!(other.get("n").await.unwrap(), 0);
        one.set("n", 41).await.unwrap();
        one.set("m", 7).await.unwrap();
        assert_eq!((other.get("n").await.unwrap(), other.get("m").await.unwrap()), (41, 7));
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
