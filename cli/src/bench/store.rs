//! The store of the counters, which has only GET and SET.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use gaggle::Nonce;
use redis::{ErrorKind, RedisError, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, server_url, utf8::temporary_directory};

/// A killed run leaves its counter. An increment takes less than this.
const COUNTER_EXPIRY: Duration = Duration::from_secs(24 * 60 * 60);

/// The store of the counters, which has only GET and SET.
pub(super) enum Store {
    /// Counters in this process.
    Memory(Mutex<BTreeMap<String, u64>>),
    /// A file for each counter. Reading its few bytes on the runtime blocks it for microseconds.
    Folder(PathBuf),
    Redis {
        connection: MultiplexedConnection,
        address: String,
    },
}

/// The address of a store. No `Debug`, which would show a password.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Address {
    /// Counters in this process.
    Memory,
    /// Counters in this [`Folder`].
    Folder(PathBuf),
    /// Counters in the Redis of this URL.
    Redis(String),
}

/// A folder of this user for the workers of one command, removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self, Failure> {
        let path = temporary_directory()?.join(format!("gaggle-increment-{}", Nonce::random()));
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| in_folder(&path, &error))?;
        Ok(Self(path))
    }

    /// The folder of the parent, for a worker.
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
    pub(super) async fn open(address: &Address) -> Result<Self, Failure> {
        match address {
            Address::Memory => Ok(Self::Memory(Mutex::default())),
            Address::Folder(folder) => Ok(Self::Folder(folder.clone())),
            Address::Redis(url) => {
                let connect = async {
                    let client = redis::Client::open(url.as_str())?;
                    client.get_multiplexed_async_connection().await
                };
                let address = server_url::address(url);
                let connection = connect.await.map_err(|error| failed(&address, &error))?;
                Ok(Self::Redis { connection, address })
            }
        }
    }

    /// The value of a counter; 0 if it was never set.
    pub(super) async fn get(&self, key: &str) -> Result<u64, Failure> {
        let text: Option<String> = match self {
            Self::Memory(counters) => return Ok(lock(counters).get(key).copied().unwrap_or(0)),
            Self::Folder(folder) => match fs::read_to_string(file(folder, key)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                read => Some(read.map_err(|error| in_folder(folder, &error))?),
            },
            Self::Redis { connection, address } => {
                let got = redis::cmd("GET").arg(key).query_async(&mut connection.clone()).await;
                got.map_err(|error| failed(address, &error))?
            }
        };
        let Some(text) = text else { return Ok(0) };
        text.parse().map_err(|_| Failure::new(format!("the counter holds {text:?}")))
    }

    pub(super) async fn set(&self, key: &str, value: u64) -> Result<(), Failure> {
        match self {
            Self::Memory(counters) => _ = lock(counters).insert(key.to_owned(), value),
            Self::Folder(folder) => {
                // Replaced whole: no reader sees a part of it.
                let file = file(folder, key);
                let new = file.with_extension(process::id().to_string());
                let written = fs::write(&new, value.to_string());
                let replaced = written.and_then(|()| fs::rename(new, file));
                replaced.map_err(|error| in_folder(folder, &error))?;
            }
            Self::Redis { connection, address } => {
                let mut set = redis::cmd("SET");
                set.arg(key).arg(value).arg("EX").arg(COUNTER_EXPIRY.as_secs());
                let set = set.exec_async(&mut connection.clone()).await;
                set.map_err(|error| failed(address, &error))?;
            }
        }
        Ok(())
    }

    /// Deletes a counter in the user's Redis. Counters in memory and in files end with the command.
    pub(super) async fn delete(&self, key: &str) -> Result<(), Failure> {
        let Self::Redis { connection, address } = self else { return Ok(()) };
        let deleted = redis::cmd("DEL").arg(key).exec_async(&mut connection.clone()).await;
        deleted.map_err(|error| failed(address, &error))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file of a counter, whose key has slashes.
fn file(folder: &Path, key: &str) -> PathBuf {
    folder.join(key.replace('/', "-"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn member_reads_what_another_wrote() {
        let folder = Folder::new().unwrap();
        let address = Address::Folder(folder.path().to_owned());
        let one = Store::open(&address).await.unwrap();
        let other = Store::open(&address).await.unwrap();
        assert_eq!(other.get("a/n").await.unwrap(), 0);
        one.set("a/n", 41).await.unwrap();
        one.set("a/m", 7).await.unwrap();
        assert_eq!((other.get("a/n").await.unwrap(), other.get("a/m").await.unwrap()), (41, 7));
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
