//! What is sent, and when: at once, and again until the log answers it.

use std::time::Duration;

use super::{Answer, Item, Requests};
use crate::{
    Instant, Nonce,
    lock_table::{Command, Seen},
};

/// The first pause before a request is sent again; it doubles up to [`RESEND_MAX`].
const RESEND_MIN: Duration = Duration::from_millis(100);
const RESEND_MAX: Duration = Duration::from_secs(1);
/// How a command leaves: whether through a channel, which may repeat it, or straight into the log.
#[derive(Clone, Copy, Debug)]
pub(in crate::member) struct Sending {
    pub(in crate::member) seen: Seen,
    pub(in crate::member) over_channel: bool,
}

impl Requests {
    /// When the next request is due.
    pub(in crate::member) fn next_due(&self) -> Option<Instant> {
        self.due.next()
    }

    /// Hands out everything that is to be sent now. Called while a leader is known.
    pub(in crate::member) fn send_due(
        &mut self,
        now: Instant,
        sending: Sending,
        mut send: impl FnMut(Command),
    ) {
        while let Some(item) = self.due.first(now) {
            match item {
                Item::Lock(nonce) => send(self.send_lock(now, nonce, sending)),
                Item::Unlock(nonce) => {
                    self.send_unlock(now, nonce, sending).into_iter().for_each(&mut send);
                }
                Item::Extend(id) => send(self.send_extend(now, id)),
            }
        }
    }

    fn send_lock(&mut self, now: Instant, nonce: Nonce, sending: Sending) -> Command {
        let pending = self.locks.get_mut(&nonce).expect("what is due is pending");
        pending.sends += 1;
        pending.over_channel |= sending.over_channel;
        pending.first_sent.get_or_insert(now);
        self.due.set(Item::Lock(nonce), &mut pending.due, now.after(pause(pending.sends)));
        pending.command(now, self.process, sending.seen)
    }

    fn send_unlock(&mut self, now: Instant, nonce: Nonce, sending: Sending) -> Option<Command> {
        let pending = self.unlocks.get_mut(&nonce).expect("what is due is pending");
        if now > pending.until && pending.sends > 0 {
            let callers = self.take_unlock(nonce)?.callers.into_iter();
            self.answers.extend(callers.map(|caller| (caller, Answer::Unanswered)));
            return None;
        }
        pending.sends += 1;
        pending.forget &= !sending.over_channel && pending.sends == 1;
        self.due.set(Item::Unlock(nonce), &mut pending.due, now.after(pause(pending.sends)));
        Some(Command::Unlock { key: pending.key.clone(), nonce, forget: pending.forget })
    }

    fn send_extend(&mut self, now: Instant, id: u64) -> Command {
        let pending = self.extends.get_mut(&id).expect("what is due is pending");
        pending.sends += 1;
        pending.first_sent.get_or_insert(now);
        self.due.set(Item::Extend(id), &mut pending.due, now.after(pause(pending.sends)));
        Command::Extend {
            key: pending.key.clone(),
            nonce: pending.nonce,
            process: self.process,
            request: id,
            duration_ms: pending.duration_ms,
        }
    }

    /// Makes every request due again: the leader changed, or a snapshot swallowed the answers.
    /// `queued` asks again also for those that are known to wait.
    pub(in crate::member) fn ask_again(&mut self, now: Instant, queued: bool) {
        for (nonce, lock) in &mut self.locks {
            if queued || !lock.queued {
                lock.queued = false;
                self.due.set(Item::Lock(*nonce), &mut lock.due, now);
            }
        }
        for (nonce, unlock) in &mut self.unlocks {
            self.due.set(Item::Unlock(*nonce), &mut unlock.due, now);
        }
        for (id, extend) in &mut self.extends {
            self.due.set(Item::Extend(*id), &mut extend.due, now);
        }
    }
}

fn pause(sends: u32) -> Duration {
    RESEND_MIN.saturating_mul(1 << sends.saturating_sub(1).min(8)).min(RESEND_MAX)
}
