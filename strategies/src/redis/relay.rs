//! The unlocks of keys that are passed on in this process. Redis hears of them afterwards: those of one
//! key leave in one command, one command after the other, and again until they are answered.
//!
//! Who passes a key on does not wait for that. Who unlocks it last does, and its unlock leaves with
//! those before it or after them: when it is answered the key is free, or somebody else's. Whoever asks
//! for the key meanwhile takes a place in the queue in the same command.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

use super::{
    acquire::back_off,
    reply::Was,
    shared::{Shared, Wait},
    tasks::{Stop, stopped},
    trouble::Trouble,
    waiters::Request,
    wire::{Answered, Asked, Delivery, Look, asked},
};
use crate::{DURATION_MAX, Instant, Nonce};

/// How many unlocks one command carries, and how many LOCKs: it bounds how long a script keeps the server.
const PER_COMMAND: usize = 32;

/// Whether the nonce held the key.
type Answer = Result<bool, Trouble>;

/// What is to be unlocked.
#[derive(Default)]
pub(super) struct Relay {
    keys: Mutex<Keys>,
    /// Something is to be sent.
    poke: Notify,
}

#[derive(Default)]
struct Keys {
    /// Each is among the ready, or has a command that is not answered, or will be sent after a pause.
    by_key: BTreeMap<Arc<str>, Unlocks>,
    ready: Vec<Arc<str>>,
}

/// What is to be unlocked of one key, in the order in which it had the nonces.
#[derive(Default)]
struct Unlocks {
    bucket: usize,
    waiting: Vec<Unlock>,
    /// The nonces of the command under way that have passed the key on.
    asked: Vec<Nonce>,
    queueing: Vec<Queueing>,
    failures: u32,
}

/// A LOCK that is to wait for its key.
pub(super) struct Queueing {
    pub(super) request: Arc<Request>,
    pub(super) wait: Wait,
    pub(super) asked: Asked,
}

#[derive(Debug)]
struct Unlock {
    nonce: Nonce,
    /// It has passed the key on: whoever unlocked it was told `Ok`.
    passed: bool,
    /// When no lease of it can live any more, however often it was extended.
    until: Instant,
    /// Who waits for it, if somebody does: that one hears of a failure, and may say it again. It is sent
    /// until it is answered all the same.
    answer: Option<oneshot::Sender<Answer>>,
    /// What the answer was, if nobody heard it: whoever has said it again meanwhile is told.
    unheard: Option<bool>,
}

impl Unlock {
    fn new(nonce: Nonce, passed: bool, now: Instant) -> Self {
        Self { nonce, passed, until: now.after(DURATION_MAX), answer: None, unheard: None }
    }

    fn is_awaited(&self) -> bool {
        self.passed || self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("keys", &self.keys().by_key.len()).finish_non_exhaustive()
    }
}

impl Relay {
    /// `nonce` has passed the key on.
    pub(super) fn passed(&self, key: &Arc<str>, bucket: usize, nonce: Nonce, now: Instant) {
        let mut keys = self.keys();
        let Keys { by_key, ready } = &mut *keys;
        let unlocks = by_key.entry(key.clone()).or_insert_with(|| {
            ready.push(key.clone());
            self.poke.notify_one();
            Unlocks { bucket, ..Unlocks::default() }
        });
        unlocks.waiting.push(Unlock::new(nonce, true, now));
    }

    /// Whether `nonce` has passed the key on, and Redis may not have heard of it.
    pub(super) fn has_passed(&self, key: &str, nonce: Nonce) -> bool {
        self.keys().by_key.get(key).is_some_and(|unlocks| {
            let waits = |unlock: &Unlock| unlock.passed && unlock.nonce == nonce;
            unlocks.asked.contains(&nonce) || unlocks.waiting.iter().any(waits)
        })
    }

    /// Unlocks a nonce after those that have passed the key on; `None` if Redis has heard of all of them.
    pub(super) fn last(
        &self,
        key: &str,
        nonce: Nonce,
        now: Instant,
    ) -> Option<oneshot::Receiver<Answer>> {
        let mut keys = self.keys();
        let unlocks = keys.by_key.get_mut(key)?;
        let (answer, answered) = oneshot::channel();
        // Said again: what its caller has given up leaves once.
        unlocks.waiting.retain(|unlock| unlock.nonce != nonce || unlock.is_awaited());
        let unlock = Unlock { answer: Some(answer), ..Unlock::new(nonce, false, now) };
        unlocks.waiting.push(unlock);
        Some(answered)
    }

    /// Takes a place in the queue of a key that is passed on here; `None` if it is not. The answer is as
    /// the script for LOCK has it, or `Nil`: nothing was done.
    pub(super) fn lock(
        &self,
        request: &Arc<Request>,
        wait: Wait,
        look: Look,
    ) -> Option<impl Future<Output = Result<Answered, Trouble>> + Send + use<>> {
        let mut keys = self.keys();
        let unlocks = keys.by_key.get_mut(&request.key)?;
        let (asked, answered) = asked(Some(look));
        unlocks.queueing.push(Queueing { request: request.clone(), wait, asked });
        Some(answered)
    }

    /// Takes what one command carries of each key that is ready.
    fn take(&self, now: Instant) -> Vec<Command> {
        let mut commands = Vec::new();
        let mut keys = self.keys();
        for key in mem::take(&mut keys.ready) {
            let Some(unlocks) = keys.by_key.get_mut(&key) else { continue };
            unlocks.waiting.retain(|unlock| now < unlock.until);
            // Who has gone withdraws it.
            unlocks.queueing.retain(|queueing| !queueing.asked.is_closed());
            if unlocks.waiting.is_empty() && unlocks.queueing.is_empty() {
                keys.by_key.remove(&key);
                continue;
            }
            let taken = first_of_each(&mut unlocks.waiting);
            let passed = taken.iter().filter(|unlock| unlock.passed);
            unlocks.asked = passed.map(|unlock| unlock.nonce).collect();
            commands.push(Command {
                key,
                bucket: unlocks.bucket,
                unlocks: taken,
                locks: front(&mut unlocks.queueing),
                failures: unlocks.failures,
            });
        }
        commands
    }

    /// A command has ended; what it did not do is to be tried again.
    fn ended(&self, command: Command) {
        let mut keys = self.keys();
        let Some(unlocks) = keys.by_key.get_mut(&command.key) else { return };
        unlocks.failures = command.failures;
        unlocks.asked.clear();
        let (waiting, mut again) = (&mut unlocks.waiting, command.unlocks);
        again.retain(|unlock| {
            // What its caller has said again since leaves once.
            let newer = |newer: &Unlock| !newer.passed && newer.nonce == unlock.nonce;
            let newer = waiting.iter().position(newer).filter(|_| !unlock.passed);
            if let Some((was, at)) = unlock.unheard.zip(newer) {
                tell(waiting.remove(at).answer, Ok(was));
            }
            newer.is_none() && unlock.unheard.is_none()
        });
        waiting.splice(..0, again);
        // Looked at in the same turn: a key with nothing to send goes then.
        keys.ready.push(command.key);
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one command unlocks of one key.
struct Command {
    key: Arc<str>,
    bucket: usize,
    unlocks: Vec<Unlock>,
    locks: Vec<Queueing>,
    /// How many commands of this key have failed before, since one was answered.
    failures: u32,
}

impl Command {
    /// Sends it. Leaves what must be sent again, and what was answered and heard by nobody.
    async fn send(mut self, shared: &Shared) -> Self {
        if self.failures > 0 {
            sleep(back_off(self.failures)).await;
            self.locks.retain(|lock| !lock.asked.is_closed());
        }
        let until = shared.now().after(shared.options.request_timeout);
        let nonces: Vec<_> = self.unlocks.iter().map(|unlock| unlock.nonce).collect();
        let (key, nonces, locks) =
            ((&self.key, self.bucket), (&nonces[..], false), mem::take(&mut self.locks));
        match shared.unlock_all(key, nonces, locks, Delivery::default(), until).await {
            Ok(were) => self.answered(were.into_iter().map(Was::was_ours)),
            Err(trouble) => {
                self.failures += 1;
                if trouble.is_passing() {
                    tracing::debug!(%trouble, failures = self.failures, "unlocks have failed");
                } else {
                    tracing::warn!(%trouble, "unlocks were refused: the leases will run out");
                }
                for unlock in &mut self.unlocks {
                    tell(unlock.answer.take(), Err(trouble.clone()));
                }
                if !trouble.is_passing() {
                    self.unlocks.clear();
                }
            }
        }
        self
    }
}

impl Command {
    fn answered(&mut self, were: impl Iterator<Item = bool>) {
        self.failures = 0;
        for (unlock, was) in self.unlocks.iter_mut().zip(were) {
            let heard = tell(unlock.answer.take(), Ok(was));
            unlock.unheard = (!heard && !unlock.passed).then_some(was);
        }
        self.unlocks.retain(|unlock| unlock.unheard.is_some());
    }
}

/// Takes the first of what waits, as many as one command carries, and one of each nonce: whoever unlocks
/// it once more is told by the next one that it is gone.
fn first_of_each(waiting: &mut Vec<Unlock>) -> Vec<Unlock> {
    let mut taken = Vec::<Unlock>::new();
    let first = |unlock: &mut Unlock| {
        let fresh =
            taken.len() < PER_COMMAND && taken.iter().all(|before| before.nonce != unlock.nonce);
        if fresh {
            let answer = unlock.answer.take();
            taken.push(Unlock { answer, ..*unlock });
        }
        !fresh
    };
    waiting.retain_mut(first);
    taken
}

/// Takes the first of what waits, as many as one command carries.
fn front<T>(waiting: &mut Vec<T>) -> Vec<T> {
    let later = waiting.split_off(waiting.len().min(PER_COMMAND));
    mem::replace(waiting, later)
}

/// Returns whether somebody hears it, who may have gone in the meantime.
fn tell(whom: Option<oneshot::Sender<Answer>>, answer: Answer) -> bool {
    whom.is_some_and(|whom| whom.send(answer).is_ok())
}

/// Sends what is to be unlocked. When the handle is closed or dropped, what is left is sent, once.
pub(super) async fn relay(shared: Arc<Shared>, mut stop: Stop) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let commands = shared.relay.take(shared.now()).into_iter();
        under_way.extend(commands.map(|command| command.send(&shared)));
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            Some(command) = under_way.next() => shared.relay.ended(command),
            () = shared.relay.poke.notified() => {}
        }
    }
    let last = async {
        loop {
            let commands = shared.relay.take(shared.now()).into_iter();
            let fresh = commands.filter(|command| command.failures == 0);
            under_way.extend(fresh.map(|command| command.send(&shared)));
            let Some(command) = under_way.next().await else { break };
            shared.relay.ended(command);
        }
    };
    let _ = timeout(shared.options.request_timeout, last).await;
    // Whoever waits sends it itself.
    mem::take(&mut *shared.relay.keys());
}
