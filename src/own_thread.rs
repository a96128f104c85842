//! A thread with a tokio runtime, on which one strategy runs.

use std::{fmt, mem, sync::Arc, thread};

use gaggle_channels::internal::process::Opener;
use gaggle_strategies::Error;
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot::{self, error::RecvError},
    task::AbortHandle,
};

use crate::{Locker, OpenError, Url};

/// The thread of a strategy. Its lockers, requests and guards share it; it ends with the last of
/// them.
#[derive(Debug)]
pub(crate) struct OwnThread {
    runtime: Handle,
    opener: Opener,
    /// The thread closes the strategy once this is dropped.
    in_use: Option<oneshot::Sender<()>>,
}

impl OwnThread {
    /// The runtime, in this process.
    pub(crate) fn runtime(&self) -> Result<&Handle, Error> {
        if self.opener.is_this_process() {
            return Ok(&self.runtime);
        }
        let id = self.opener.id();
        let cause = format!("opened by process {id} before a fork: open a new handle here");
        Err(Error::Failed { cause: cause.into() })
    }

    /// The process that opened the strategy.
    pub(crate) fn opener(&self) -> Opener {
        self.opener
    }

    /// Runs a task on the thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if !self.opener.is_this_process() {
            // The thread is the other process's, and shares its event queue with this copy.
            mem::forget(self.in_use.take());
        }
    }
}

type Reply = Result<Locker, OpenError>;

/// Opens `url` on a new thread, which sends the reply. The thread ends if its receiver is dropped.
pub(crate) fn start(url: Url) -> Result<oneshot::Receiver<Reply>, OpenError> {
    let (reply, receiver) = oneshot::channel();
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(&url, reply)),
        Err(error) => drop(reply.send(Err(failed(error)))),
    };
    let thread = thread::Builder::new().name("gaggle".into()).spawn(run);
    thread.map(|_| receiver).map_err(failed)
}

/// Maps a missing reply to an error.
pub(crate) fn opened(reply: Result<Reply, RecvError>) -> Reply {
    reply.unwrap_or_else(|_| Err(failed("it panicked while it opened the strategy")))
}

/// Opens the strategy, and closes it after the last handle is dropped.
async fn serve(url: &Url, mut reply: oneshot::Sender<Reply>) {
    let opened = tokio::select! {
        biased;
        opened = url.open() => opened,
        () = reply.closed() => return,
    };
    let locker = match opened {
        Ok(locker) => locker,
        Err(error) => return drop(reply.send(Err(error))),
    };
    let strategy = Arc::clone(locker.strategy());
    let (in_use, unused) = oneshot::channel();
    let (runtime, opener) = (Handle::current(), Opener::this_process());
    let thread = Arc::new(OwnThread { runtime, opener, in_use: Some(in_use) });
    // Without a receiver, this drops the last handle.
    drop(reply.send(Ok(locker.on_thread(thread))));
    let _ = unused.await;
    strategy.close().await;
}

fn failed(cause: impl fmt::Display) -> OpenError {
    Error::Failed { cause: format!("the thread of the strategy: {cause}").into() }.into()
}
