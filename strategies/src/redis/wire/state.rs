//! What a connection has to send and who waits for which answer.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::Value;
use tokio::sync::oneshot;

use super::Look;
use crate::redis::trouble::Trouble;

/// How many requests wait for their answers, and how many bytes to be written, at the most; a
/// caller beyond waits its turn.
pub(super) const REQUESTS_MAX: usize = 16_384;
const OUTGOING_BYTES_MAX: usize = 1 << 20;

type Answer = oneshot::Sender<Result<Value, Trouble>>;

/// An answer that waits until its caller is polled, beside the sender: dropping that would wake it.
pub(super) type Aside = Arc<Mutex<Option<(Value, Answer)>>>;

/// Who asked.
pub(super) struct Asked {
    pub(super) answer: Answer,
    pub(super) look: Option<(Look, Aside)>,
}

impl Asked {
    pub(super) fn answer(self, value: Value) {
        if let Some((look, aside)) = self.look {
            // Held while it looks: woken by what the look allows, the caller finds the answer.
            let mut aside = lock(&aside);
            if look(&value) {
                *aside = Some((value, self.answer));
                return;
            }
        }
        // Whoever asked may have run out of time.
        let _ = self.answer.send(Ok(value));
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection's, under one mutex.
#[derive(Default)]
pub(super) struct State {
    /// What is to be written, in order.
    pub(super) outgoing: Vec<u8>,
    /// An empty buffer, to be swapped with the other.
    pub(super) spare: Vec<u8>,
    /// Somebody is writing, and will also write what comes meanwhile.
    pub(super) writing: bool,
    /// The reading task will write what comes meanwhile.
    pub(super) gathering: bool,
    /// How many requests came since it last wrote.
    pub(super) gathered: usize,
    /// Whose the answers are, in their order.
    pub(super) asked: VecDeque<Asked>,
    pub(super) waiting_for_room: usize,
    pub(super) ended: Option<Trouble>,
}

impl State {
    pub(super) fn is_full(&self) -> bool {
        self.asked.len() >= REQUESTS_MAX || self.outgoing.len() >= OUTGOING_BYTES_MAX
    }

    /// What could not be written goes before what came meanwhile.
    pub(super) fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.append(&mut self.outgoing);
        self.outgoing = bytes;
    }
}
