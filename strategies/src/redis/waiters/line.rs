//! Who gets a key next, where this process knows it in advance: waiters of its own that stand one
//! behind the other. They pass the key on among themselves, and Redis hears of it afterwards.
//!
//! **Why nobody else can have the key meanwhile.** Redis gives a key that is unlocked to the next in
//! the queue, and passes over no heir for being silent or late, until the lease of the one before has
//! run out. So as long as the holder's place in the line is not behind Redis' own, and no lease has run
//! out that Redis may be counting, whoever holds the key here is the holder there, or will be before
//! anybody else. The second is what [`Line::until`] is for: it never lies behind the end of the lease
//! of any holder since the line was told.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Bucket, Waiters,
    entry::{Effects, Grant, Outcome, State},
};
use crate::{Drift, Instant, Nonce, granted_deadline, lasts, redis::reply::Granted};

/// What the answer to an UNLOCK says of those who wait behind the waiter that it was granted to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::redis) struct Heirs {
    /// They stand right behind the grant, or the heir, with this token.
    pub(in crate::redis) after: u64,
    /// In their order, each with its token.
    pub(in crate::redis) next: Vec<(Nonce, u64)>,
}

/// The lines of one bucket, by key.
#[derive(Debug, Default)]
pub(super) struct Lines {
    by_key: BTreeMap<Arc<str>, Line>,
    /// Beyond so many, those that are over are dropped: their holders may never unlock.
    sweep_at: usize,
}

/// The line of one key.
#[derive(Debug)]
struct Line {
    /// Who has the key here, and for how long its lease was asked.
    holder: Nonce,
    token: u64,
    duration: Duration,
    /// Until when Redis gives the key to nobody but the next in this line.
    until: Instant,
    /// Those behind, with their tokens: as Redis had them in its queue at `told_at` or later.
    heirs: VecDeque<(Nonce, u64)>,
    /// The last token that was told.
    last: u64,
    told_at: Instant,
    /// The token of the last grant that Redis is known to have made.
    granted: u64,
}

impl<C> Waiters<C> {
    /// `nonce` is unlocked here: the key passes to the next in its line, if Redis cannot give it to
    /// anybody else for at least half of that one's lease. Whom to tell, if it was.
    pub(in crate::redis) fn pass(
        &mut self,
        key: &str,
        bucket: usize,
        nonce: Nonce,
        now: Instant,
    ) -> Option<Effects<C>> {
        let Bucket { entries, lines, .. } = &mut self.buckets[bucket];
        let line = lines.by_key.get_mut(key).filter(|line| line.holder == nonce)?;
        let next = line.heirs.front().and_then(|&(nonce, token)| {
            let entry = entries.get_mut(&nonce).filter(|entry| entry.is_heir())?;
            let deadline = line.deadline(entry.duration, self.drift);
            lasts(deadline, now, entry.request.duration).then_some((entry, token, deadline))
        });
        let Some((entry, token, deadline)) = next else {
            lines.by_key.remove(key);
            return None;
        };
        line.heirs.pop_front();
        line.holds(entry.request.nonce, token, (entry.duration, deadline));
        let grant = Grant { token, deadline };
        (entry.state, entry.passed) = (State::Granted(grant), true);
        Some(entry.tell_parked(Outcome::Granted(grant)))
    }

    /// The token of the last heir that is known here for the key; 0 if none is.
    pub(in crate::redis) fn known(&self, key: &str, bucket: usize) -> u64 {
        self.buckets[bucket].lines.by_key.get(key).map_or(0, |line| line.last)
    }

    /// Whether `nonce` has the key here, and Redis is not known to have heard of it and may still.
    pub(in crate::redis) fn is_ahead(
        &self,
        key: &str,
        bucket: usize,
        nonce: Nonce,
        now: Instant,
    ) -> bool {
        let line = self.buckets[bucket].lines.by_key.get(key);
        line.is_some_and(|line| {
            line.holder == nonce && line.granted < line.token && now < line.until
        })
    }

    /// As [`granted`](Self::granted), with what the answer to an UNLOCK of `key`, sent at `sent`, says
    /// of those who wait behind.
    pub(in crate::redis) fn granted_in_line(
        &mut self,
        (key, bucket): (&Arc<str>, usize),
        granted: Granted,
        heirs: Heirs,
        sent: Instant,
        now: Instant,
    ) -> Effects<C> {
        let effects = self.granted(bucket, granted, now);
        let drift = self.drift;
        let bucket = &mut self.buckets[bucket];
        let token = granted.token;
        if let Some(line) = bucket.lines.by_key.get_mut(key) {
            if now < line.until && line.told(token, &heirs, sent, drift) {
                return effects;
            }
            bucket.lines.by_key.remove(key);
        }
        // A nonce that the caller gave may be asked for once more while it has passed the key on.
        if let Some(entry) = bucket.entries.get(&granted.nonce)
            && !entry.request.given
            && heirs.after == token
            && let Some((_, last)) = heirs.next.last()
        {
            let until = lease_end(sent, entry.duration, drift);
            let (holder, duration, last) = (granted.nonce, entry.duration, *last);
            let heirs = heirs.next.into();
            let line =
                Line { holder, token, duration, until, heirs, last, told_at: sent, granted: token };
            bucket.lines.insert(key.clone(), line, now);
        }
        effects
    }
}

impl Lines {
    /// Redis has granted the key, and not because a process passed it on.
    pub(super) fn granted(&mut self, key: &str, nonce: Nonce, token: u64) {
        if let Some(line) = self.by_key.get_mut(key)
            && !line.granted(nonce, token)
        {
            self.by_key.remove(key);
        }
    }

    fn insert(&mut self, key: Arc<str>, line: Line, now: Instant) {
        if self.by_key.len() >= self.sweep_at {
            self.by_key.retain(|_, line| now < line.until);
            self.sweep_at = (2 * self.by_key.len()).max(16);
        }
        self.by_key.insert(key, line);
    }
}

impl Line {
    /// Returns whether the line still holds: Redis follows what was passed on here. Where it is ahead, the
    /// queue may have changed, and is kept for no longer than the lease before.
    fn granted(&mut self, nonce: Nonce, token: u64) -> bool {
        self.granted = self.granted.max(token);
        token < self.token || (nonce, token) == (self.holder, self.token)
    }

    /// An UNLOCK sent at `sent` gave the key to the nonce with `token`, and told of `heirs`. Returns
    /// whether the line still holds.
    fn told(&mut self, token: u64, heirs: &Heirs, sent: Instant, drift: Drift) -> bool {
        if token > self.token || heirs.after > self.last {
            return false;
        }
        self.granted = self.granted.max(token);
        if token == self.token {
            // Nothing was passed on since, so that no other lease runs there.
            self.until = self.until.max(lease_end(sent, self.duration, drift));
        }
        // All of the line were waiting when that was answered.
        self.told_at = self.told_at.max(sent);
        for heir in &heirs.next {
            if heir.1 > self.last {
                self.heirs.push_back(*heir);
                self.last = heir.1;
            }
        }
        true
    }

    /// Until when the next one may hold the key, with a lease of `duration`: its own counts from when
    /// it was told to be next, because Redis gave it the key no sooner, and none before it may run out.
    fn deadline(&self, duration: Duration, drift: Drift) -> Instant {
        self.until.min(lease_end(self.told_at, duration, drift))
    }

    fn holds(&mut self, nonce: Nonce, token: u64, (duration, until): (Duration, Instant)) {
        (self.holder, self.token, self.duration, self.until) = (nonce, token, duration, until);
    }
}

/// Until when a lease has not run out that Redis granted at `sent` or later.
fn lease_end(sent: Instant, duration: Duration, drift: Drift) -> Instant {
    granted_deadline(sent, sent, Duration::ZERO, duration, drift)
}
