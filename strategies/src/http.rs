//! The HTTP strategy: each verb is a request to a `gaggle serve`. For drivers; may change in 0.x.
//!
//! - `backend`: the granting side of the client core: commands in, events out. `wire`: the only
//!   place that knows the API. `reply`: the meaning of responses.
//! - `connection`: one HTTP/2 connection, opened again, to the next node, when it breaks.
//!   `session`: the requests on it. `dial`: how its stream is opened.
//!
//! **One lock:** the core submits a LOCK, which is a `POST` with the nonce as `Idempotency-Key`. If
//! the key is held, the response waits for the grant, and the same `POST` is sent again until it
//! comes: at another node, too, after a connection is lost.

mod backend;
mod connection;
mod dial;
mod options;
mod reply;
mod session;
mod wire;

pub use self::{
    backend::Backend,
    dial::{Dial, DialFuture, Stream},
    options::HttpOptions,
};
use crate::{
    client::{Client, Remote, check_runtime},
    error::Error,
    fork::unshared_random,
    lock::Owner,
};

/// Locks of a `gaggle serve`, over HTTP/2.
///
/// ```no_run
/// use gaggle_strategies::{Http, HttpOptions, KeyedMutex, LockOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let http = Http::open(HttpOptions::new(["10.0.0.1:7080", "10.0.0.2:7080"])).await?;
/// let lock = http.lock("orders/42", LockOptions::default()).await?;
/// // Pass lock.fencing_token() to the resource with every access.
/// http.unlock(&lock).await?;
/// http.close().await;
/// # Ok(())
/// # }
/// ```
///
/// It belongs to the runtime in which it was opened, which drives its connection; when that runtime
/// ends, calls end with [`Error::Closed`].
///
/// # Guarantees
///
/// Those of the strategy behind the server: a group, a Redis, or the memory of the server. The
/// local deadline is never later than that of the server, and waiters are served first come, first
/// served. A waiter keeps its position at another node of a Redis or a group, if it comes there
/// within the `waiter_ttl` of 3 s. A silent waiter is dropped after twice as long.
///
/// # Limits and failure modes
///
/// A holder is not notified when another process ends its lock: its next extend finds out, or its
/// local deadline passes. `docs/serving.md` has the limits of a server.
#[derive(Debug)]
pub struct Http {
    client: Client<Backend>,
}

impl Http {
    /// Connects to the first node that answers, checks the token, and starts the task of this handle
    /// on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] before any I/O; [`Error::Unavailable`] if no node can be reached,
    /// the token is not known, or the server is not a `gaggle serve`, and outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(options: HttpOptions) -> Result<Self, Error> {
        check_runtime()?;
        let clock = options.clock.clone();
        let mut backend = Backend::new(options, None, unshared_random(), clock.now())?;
        backend.connect(&*clock).await.map_err(|cause| cause.to_error())?;
        let (client, driver) = Client::new(backend, clock, Owner::this_process(None), None);
        tokio::spawn(client.run(driver));
        Ok(Self { client })
    }
}

impl Remote for Http {
    type Backend = Backend;

    fn client(&self) -> &Client<Backend> {
        &self.client
    }
}
