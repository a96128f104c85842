//! One key as the scripts keep it, in a few lines.

use std::collections::BTreeMap;

use crate::{
    Nonce,
    redis::{
        reply::{Found, Granted},
        waiters::Heirs,
    },
};

pub(super) const WAITER_TTL: u64 = 50;

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) nonce: Nonce,
    /// No other process knows the nonce.
    pub(super) heir: bool,
    pub(super) duration: u64,
    pub(super) wait: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Command {
    Lock(Lock),
    Unlock { nonces: Vec<Nonce>, known: u64, sent: u64 },
    Poll(Vec<Nonce>),
}

pub(super) enum Reply {
    Granted { nonce: Nonce, token: u64 },
    Queued { nonce: Nonce },
    Told { granted: Granted, heirs: Option<Heirs>, sent: u64 },
    Found(Vec<(Nonce, Found)>),
}

#[derive(Clone, Debug)]
struct Waiter {
    lock: Lock,
    process: usize,
    place: u64,
    enqueued: u64,
}

#[derive(Debug)]
struct Holder {
    granted: Granted,
    until: u64,
}

#[derive(Default)]
pub(super) struct Server {
    now: u64,
    holder: Option<Holder>,
    queue: Vec<Waiter>,
    place: u64,
    /// The last place of an heir, what makes tokens of places, and until when the queue is kept for them.
    heirs: Option<(u64, u64, u64)>,
    /// The queue is kept until then, if nobody refreshes it.
    kept: u64,
    token: u64,
    alive: [u64; 2],
    ended: BTreeMap<Nonce, ()>,
    replies: Vec<(usize, Reply)>,
}

impl Server {
    pub(super) fn run(
        &mut self,
        now: u64,
        process: usize,
        command: Command,
    ) -> Vec<(usize, Reply)> {
        self.now = now;
        if now >= self.kept {
            self.queue.clear();
            self.sweep();
        }
        match command {
            Command::Lock(lock) => self.lock(process, lock),
            Command::Unlock { nonces, known, sent } => self.unlock(process, &nonces, known, sent),
            Command::Poll(nonces) => self.poll(process, &nonces),
        }
        std::mem::take(&mut self.replies)
    }

    fn refresh(&mut self, process: usize) {
        self.alive[process] = self.now + WAITER_TTL;
        self.kept = self.kept.max(self.now + 2 * WAITER_TTL);
    }

    fn sweep(&mut self) {
        if self.queue.is_empty() {
            (self.heirs, self.place) = (None, 0);
        }
    }

    fn next_token(&mut self) -> u64 {
        self.token = (self.token + 1).max(self.now * 1000);
        self.token
    }

    pub(super) fn holds(&self, nonce: Nonce) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.granted.nonce == nonce)
    }

    fn settle(&mut self) {
        if let Some(holder) = &self.holder
            && self.now >= holder.until
        {
            self.ended.insert(holder.granted.nonce, ());
            self.holder = None;
        }
        if self.holder.is_none()
            && let Some((waiter, granted)) = self.hand_over(None)
        {
            self.replies.push((waiter.process, Reply::Told { granted, heirs: None, sent: 0 }));
        }
    }

    fn hand_over(&mut self, unlocked: Option<u64>) -> Option<(Waiter, Granted)> {
        self.holder = None;
        while !self.queue.is_empty() {
            let waiter = self.queue.remove(0);
            let heir = self.heirs.filter(|(last, add, kept)| {
                waiter.place <= *last
                    && unlocked.is_some_and(|unlocked| waiter.place + add > unlocked)
                    && self.now < *kept
            });
            let token = heir.map(|(_, add, _)| waiter.place + add);
            let lives = waiter.enqueued + waiter.lock.wait > self.now
                && self.alive[waiter.process] >= self.now;
            if token.is_some() || lives {
                let token = token.unwrap_or_else(|| self.next_token());
                let (nonce, enqueued, granted) =
                    (waiter.lock.nonce, waiter.enqueued * 1000, self.now * 1000);
                let granted = Granted { nonce, token, enqueued, granted };
                self.holder = Some(Holder { granted, until: self.now + waiter.lock.duration });
                return Some((waiter, granted));
            }
            self.sweep();
        }
        None
    }

    fn lock(&mut self, process: usize, lock: Lock) {
        self.settle();
        let nonce = lock.nonce;
        let queued = self.queue.iter().any(|waiter| waiter.lock.nonce == nonce);
        if self.holds(nonce) || self.ended.contains_key(&nonce) || queued {
            return;
        }
        if self.holder.is_none() && self.queue.is_empty() {
            let token = self.next_token();
            let (enqueued, granted) = (self.now * 1000, self.now * 1000);
            let granted = Granted { nonce, token, enqueued, granted };
            self.holder = Some(Holder { granted, until: self.now + lock.duration });
            self.replies.push((process, Reply::Granted { nonce, token }));
        } else {
            self.place += 1;
            self.queue.push(Waiter { lock, process, place: self.place, enqueued: self.now });
            self.refresh(process);
            self.replies.push((process, Reply::Queued { nonce }));
        }
    }

    fn unlock(&mut self, process: usize, nonces: &[Nonce], known: u64, sent: u64) {
        self.queue.retain(|waiter| !nonces.contains(&waiter.lock.nonce));
        self.sweep();
        if self.holder.as_ref().is_some_and(|holder| self.now >= holder.until) {
            return self.settle();
        }
        let held = nonces.iter().any(|nonce| self.holds(*nonce));
        for nonce in nonces {
            self.ended.insert(*nonce, ());
        }
        if !held {
            return self.settle();
        }
        let found = self.heirs;
        let unlocked = self.holder.as_ref().map(|holder| holder.granted.token);
        let Some((waiter, granted)) = self.hand_over(unlocked) else { return self.sweep() };
        let was_last = self.queue.is_empty();
        let own = waiter.process == process;
        let found = found.filter(|_| !was_last);
        let heirs = own.then(|| self.tell_heirs(&waiter, granted.token, known, found));
        self.sweep();
        self.replies.push((waiter.process, Reply::Told { granted, heirs, sent }));
    }

    fn tell_heirs(
        &mut self,
        waiter: &Waiter,
        token: u64,
        known: u64,
        found: Option<(u64, u64, u64)>,
    ) -> Heirs {
        let (mut last, add, after) = match found {
            Some((last, add, _)) if waiter.place <= last && token == waiter.place + add => {
                let known = if known < token || known > last + add { token } else { known };
                (last, add, known)
            }
            _ => (waiter.place, token - waiter.place, token),
        };
        let behind = self.queue.iter().filter(|next| next.place + add > after);
        let behind = behind.take_while(|next| next.process == waiter.process && next.lock.heir);
        let next: Vec<_> = behind.take(3).map(|next| (next.lock.nonce, next.place + add)).collect();
        if let Some((_, token)) = next.last() {
            last = last.max(token - add);
        }
        if last > waiter.place {
            self.token = self.token.max(last + add);
            let kept = found.map_or(0, |(_, _, kept)| kept);
            let kept = kept.max(self.now + waiter.lock.duration);
            self.heirs = Some((last, add, kept));
            self.kept = self.kept.max(kept);
        }
        Heirs { after, next }
    }

    fn poll(&mut self, process: usize, nonces: &[Nonce]) {
        if !self.queue.is_empty() {
            self.refresh(process);
        }
        self.settle();
        let found = nonces.iter().map(|nonce| {
            let waits = self.queue.iter().any(|waiter| waiter.lock.nonce == *nonce);
            let found = match &self.holder {
                Some(holder) if holder.granted.nonce == *nonce => Found::Granted(holder.granted),
                _ if waits => Found::Waiting { remaining: std::time::Duration::from_millis(5) },
                _ if self.ended.contains_key(nonce) => Found::Spent,
                _ => Found::Unknown,
            };
            (*nonce, found)
        });
        let found = found.collect();
        self.replies.push((process, Reply::Found(found)));
    }
}
