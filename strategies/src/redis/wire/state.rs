//! What a connection has to send and who waits for which answer.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::{
    Look, Together,
    together::{Group, Left, Refusal, Sent},
};
use crate::redis::{script::MANY, trouble::Trouble};

/// How many requests wait for their answers, and how many bytes to be written, at the most; a
/// caller beyond waits its turn.
pub(super) const REQUESTS_MAX: usize = 16_384;
const OUTGOING_BYTES_MAX: usize = 1 << 20;
/// While so many requests are unanswered, one that may leave with others waits for them, or for the
/// next answer: the server is busy until then.
pub(super) const BUSY: usize = 24;

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

/// Whose an answer is.
pub(super) enum Wanted {
    Nobodys,
    /// The server knows the script for many again.
    Taught,
    One(Asked),
    Many(Sent),
}

impl Wanted {
    pub(super) fn requests(&self) -> usize {
        match self {
            Self::Nobodys | Self::Taught | Self::One(_) => 1,
            Self::Many(sent) => sent.requests.len(),
        }
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
    /// What is to be written together.
    pub(super) together: Group,
    /// The server takes no groups.
    always_alone: bool,
    /// It is being taught the script for them.
    pub(super) teaches: bool,
    /// Whose the answers are, in their order.
    pub(super) asked: VecDeque<Wanted>,
    /// How many requests they answer.
    pub(super) unanswered: usize,
    pub(super) waiting_for_room: usize,
    pub(super) ended: Option<Trouble>,
}

impl State {
    pub(super) fn is_full(&self) -> bool {
        self.unanswered >= REQUESTS_MAX || self.outgoing.len() >= OUTGOING_BYTES_MAX
    }

    pub(super) fn push(&mut self, wanted: Wanted) {
        self.unanswered += wanted.requests();
        self.asked.push_back(wanted);
    }

    /// Hands in a command, alone or with others. Returns whether it may wait for those.
    pub(super) fn hand_in(&mut self, cmd: &Cmd, together: Option<Together>, asked: Asked) -> bool {
        let busy = self.unanswered >= BUSY;
        // Where nothing else is about to leave, there are no others.
        let waits = self.gathering || self.writing || busy;
        let together = together.filter(|kind| waits && !self.always_alone && kind.takes(cmd));
        let Some(kind) = together else {
            self.close_group();
            cmd.write_packed_command(&mut self.outgoing);
            self.push(Wanted::One(asked));
            return self.gathering;
        };
        if self.together.is_full() {
            self.close_group();
        }
        self.together.push(kind, cmd, asked);
        self.gathering || busy
    }

    pub(super) fn close_group(&mut self) {
        if self.together.len() == 0 {
            return;
        }
        let mut sent = self.together.close(&mut self.outgoing);
        self.push(match sent.requests.len() {
            1 => sent.requests.pop().map_or(Wanted::Nobodys, |(_, asked)| Wanted::One(asked)),
            _ => Wanted::Many(sent),
        });
    }

    /// Hands in alone what a group was not for, and teaches the server a script that it does not know.
    /// They had their room when they came: with those that came since, up to twice the bound may wait.
    pub(super) fn ask_alone(&mut self, left: Left) {
        self.outgoing.extend_from_slice(&left.bytes);
        for asked in left.requests {
            self.push(Wanted::One(asked));
        }
        match left.refusal {
            Some(Refusal::Unknown) if self.teaches => {}
            Some(Refusal::Unknown) => {
                self.teaches = true;
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(MANY.text()).write_packed_command(&mut self.outgoing);
                self.push(Wanted::Taught);
            }
            Some(Refusal::Lasting) => self.always_alone = true,
            Some(Refusal::Passing) | None => {}
        }
    }

    /// What could not be written goes before what came meanwhile.
    pub(super) fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.append(&mut self.outgoing);
        self.outgoing = bytes;
    }
}
