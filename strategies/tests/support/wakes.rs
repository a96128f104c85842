//! How often a task is woken.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

use futures_util::task::AtomicWaker;

#[derive(Default)]
struct Counter {
    wakes: AtomicUsize,
    task: AtomicWaker,
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.task.wake();
    }
}

/// Runs `future`, and says how often it was woken until it ended, and after its end.
pub(crate) async fn wakes<F: Future>(future: F) -> (F::Output, usize) {
    let counter = Arc::new(Counter::default());
    let waker = Waker::from(counter.clone());
    let mut future = pin!(future);
    let output = poll_fn(|context| {
        counter.task.register(context.waker());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    });
    (output.await, counter.wakes.load(Ordering::SeqCst))
}
