//! The process that opened a handle: a fork has a copy of the handle, which must do nothing.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

/// The process in which this value was made. A fork copies the value.
///
/// ```
/// use gaggle_channels::internal::process::Opener;
///
/// assert!(Opener::this_process().is_this_process());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener(u32);

impl Opener {
    /// The present process.
    #[must_use]
    pub fn this_process() -> Self {
        Self(std::process::id())
    }

    /// Whether it is this process, and not one of which this is a fork. One system call.
    #[must_use]
    pub fn is_this_process(self) -> bool {
        self == Self::this_process()
    }

    /// The system's id of the process.
    #[must_use]
    pub fn id(self) -> u32 {
        self.0
    }

    /// Binds a task to the process: in a fork it stays pending, and is never dropped. A socket of
    /// the task is the other process's too, which reads, writes and shuts down the same connection.
    #[must_use]
    pub fn bind<F: Future>(self, task: F) -> Bound<F> {
        Bound { opener: self, task: Some(Box::pin(task)) }
    }
}

/// A task that runs in one process; [`Opener::bind`] makes it.
#[derive(Debug)]
pub struct Bound<F> {
    opener: Opener,
    /// Taken where it is dropped.
    task: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Bound<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if !self.opener.is_this_process() {
            return Poll::Pending;
        }
        self.task.as_mut().expect("it is not dropped yet").as_mut().poll(context)
    }
}

impl<F> Drop for Bound<F> {
    fn drop(&mut self) {
        if !self.opener.is_this_process() {
            mem::forget(self.task.take());
        }
    }
}
