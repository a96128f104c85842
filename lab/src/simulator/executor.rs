//! Polls the tasks of all processes in one thread.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// Names a task of the simulation.
pub(super) type TaskId = u64;

/// The futures of all processes, polled one at a time in the order in which they were woken.
#[derive(Default)]
pub(super) struct Executor {
    tasks: BTreeMap<TaskId, Task>,
    made: TaskId,
    ready: Arc<Ready>,
}

/// The tasks that were woken since they were last taken.
#[derive(Default)]
struct Ready {
    tasks: Mutex<Vec<TaskId>>,
    /// Whether there are any. One thread runs the simulation: the order needs no more.
    any: AtomicBool,
}

impl Ready {
    fn tasks(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: TaskId,
    woken: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            self.ready.tasks().push(self.id);
            self.ready.any.store(true, Ordering::Relaxed);
        }
    }
}

impl Executor {
    /// Adds a task, ready to be polled.
    pub(super) fn spawn(&mut self, future: impl Future<Output = ()> + Send + 'static) -> TaskId {
        self.made += 1;
        let id = self.made;
        let waker =
            Arc::new(TaskWaker { id, woken: AtomicBool::new(false), ready: self.ready.clone() });
        waker.clone().wake();
        self.tasks.insert(id, Task { future: Box::pin(future), waker });
        id
    }

    /// Drops a task wherever it stands.
    pub(super) fn kill(&mut self, id: TaskId) {
        self.tasks.remove(&id);
    }

    pub(super) fn lives(&self, id: TaskId) -> bool {
        self.tasks.contains_key(&id)
    }

    /// Moves the tasks woken since the last call to `taken`.
    pub(super) fn take_ready(&self, taken: &mut Vec<TaskId>) {
        if self.ready.any.load(Ordering::Relaxed) {
            self.ready.any.store(false, Ordering::Relaxed);
            taken.append(&mut self.ready.tasks());
        }
    }

    pub(super) fn wake(&self, id: TaskId) {
        if let Some(task) = self.tasks.get(&id) {
            task.waker.clone().wake();
        }
    }

    /// The task could not be polled now, and will be woken again.
    pub(super) fn put_off(&self, id: TaskId) {
        if let Some(task) = self.tasks.get(&id) {
            task.waker.woken.store(false, Ordering::Relaxed);
        }
    }

    /// Polls a task once, and drops it if it has come to its end.
    pub(super) fn poll(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.waker.woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(task.waker.clone());
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&id);
        }
    }
}
