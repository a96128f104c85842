//! The history of all acquisitions, and the checks of it: Jepsen's first lock workload, as an
//! owner-aware mutex with fencing tokens and leases.
//!
//! Tokens fix the order of grants, so the search for a legal order is one pass: each grant must
//! fit between its call and its answer, after the end of the one before it. All times are of one
//! clock, that of the host.

use std::collections::BTreeMap;

use crate::protocol::{Event, Outcome};

/// One acquisition, as far as its process told of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acquisition {
    pub(crate) asked: u64,
    pub(crate) grant: Option<Grant>,
    pub(crate) lost: Option<u64>,
    pub(crate) wrote: Option<u64>,
    pub(crate) unlocking: Option<u64>,
    pub(crate) unlocked: Option<(u64, Outcome)>,
    /// When its process was killed, at the latest moment at which it certainly still ran.
    pub(crate) died: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) at: u64,
    pub(crate) token: u64,
    pub(crate) deadline: u64,
}

impl Acquisition {
    /// Until when it certainly held: the first of its local deadline, its unlock being called, its
    /// guard being lost, and its process' death.
    fn held_until(&self) -> Option<u64> {
        let ends = [Some(self.grant?.deadline), self.unlocking, self.lost, self.died];
        ends.into_iter().flatten().min()
    }
}

/// All acquisitions of one key, by process instance and operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct MutexLog {
    pub(crate) acquisitions: BTreeMap<(u32, u32), Acquisition>,
    /// How calls that were not granted ended.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Spans in which a group lost its majority and was formed anew: locks of that time may be
    /// gone before their deadline, while exclusion holds all the same.
    pub(crate) formings: Vec<(u64, u64)>,
}

impl MutexLog {
    /// Takes in what a process said. Events of other kinds are not for the log.
    pub(crate) fn note(&mut self, instance: u32, event: &Event) {
        match event {
            Event::Asked { op, at } => self.of(instance, *op).asked = *at,
            Event::Granted { op, at, token, deadline } => {
                self.of(instance, *op).grant =
                    Some(Grant { at: *at, token: *token, deadline: *deadline });
            }
            Event::Lost { op, at } => self.of(instance, *op).lost = Some(*at),
            Event::Wrote { op, at } => self.of(instance, *op).wrote = Some(*at),
            Event::Unlocking { op, at } => self.of(instance, *op).unlocking = Some(*at),
            Event::Unlocked { op, at, outcome } => {
                self.of(instance, *op).unlocked = Some((*at, outcome.clone()));
            }
            Event::Refused { error, .. } => {
                *self.refusals.entry(error.clone()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn of(&mut self, instance: u32, op: u32) -> &mut Acquisition {
        self.acquisitions.entry((instance, op)).or_default()
    }

    /// The process was killed.
    pub(crate) fn died(&mut self, instance: u32, at: u64) {
        for (_, acquisition) in self.acquisitions.range_mut((instance, 0)..=(instance, u32::MAX)) {
            acquisition.died = Some(at);
        }
    }

    pub(crate) fn grants(&self) -> usize {
        self.acquisitions.values().filter(|acquisition| acquisition.grant.is_some()).count()
    }

    /// How many sections a process has finished since `since`.
    pub(crate) fn sections(&self, instance: u32, since: u64) -> usize {
        let of = self.acquisitions.range((instance, 0)..=(instance, u32::MAX));
        of.filter(|(_, acquisition)| acquisition.asked >= since && acquisition.wrote.is_some())
            .count()
    }

    /// Whether a guard of this process was lost after `since`.
    pub(crate) fn was_lost(&self, instance: u32, since: u64) -> bool {
        let of = self.acquisitions.range((instance, 0)..=(instance, u32::MAX));
        of.into_iter().any(|(_, acquisition)| acquisition.lost.is_some_and(|lost| lost > since))
    }

    /// Where two certainly held at one time: what each says of the other.
    pub(crate) fn overlaps(&self) -> Vec<String> {
        let mut held: Vec<_> = self.granted().collect();
        held.sort_by_key(|(_, _, grant, _)| grant.at);
        let mut found = Vec::new();
        let mut longest: Option<((u32, u32), u64)> = None;
        for (id, _, grant, until) in held {
            if let Some((other, until)) = longest
                && until > grant.at
            {
                let by_us = (until - grant.at) / 1000;
                found.push(format!("{other:?} still held for {by_us} µs when {id:?} was granted"));
            }
            if longest.is_none_or(|(_, longest)| until > longest) {
                longest = Some((id, until));
            }
        }
        found
    }

    /// What contradicts an owner-aware mutex whose grants are ordered by their tokens.
    pub(crate) fn disorders(&self) -> Vec<String> {
        let mut granted: Vec<_> = self.granted().collect();
        granted.sort_by_key(|(_, _, grant, _)| grant.token);
        let mut found = Vec::new();
        // The earliest moment at which the key can be free.
        let (mut free, mut token) = (0, 0);
        for (id, acquisition, grant, until) in granted {
            if grant.token == token {
                found.push(format!("{id:?} was granted token {token} a second time"));
            }
            token = grant.token;
            let taken = free.max(acquisition.asked);
            if taken > grant.at {
                let by_us = (taken - grant.at) / 1000;
                found.push(format!("{id:?} with token {token} was granted {by_us} µs too early"));
            }
            free = taken.max(until);
        }
        found
    }

    /// Grants whose token is not greater than that of a grant which was there before they were
    /// asked for. Tokens grow whatever is lost.
    pub(crate) fn stale_tokens(&self) -> Vec<String> {
        let grants = || {
            self.acquisitions.iter().filter_map(|(id, held)| Some((*id, held.asked, held.grant?)))
        };
        let (mut by_grant, mut by_call): (Vec<_>, Vec<_>) =
            (grants().collect(), grants().collect());
        by_grant.sort_by_key(|(_, _, grant)| grant.at);
        by_call.sort_by_key(|(_, asked, _)| *asked);
        let mut before = by_grant.into_iter().peekable();
        let (mut greatest, mut found) = (0, Vec::new());
        for (id, asked, grant) in by_call {
            while let Some((_, _, earlier)) = before.next_if(|(_, _, grant)| grant.at < asked) {
                greatest = greatest.max(earlier.token);
            }
            if grant.token <= greatest {
                found.push(format!("{id:?} has token {} after {greatest}", grant.token));
            }
        }
        found
    }

    /// Unlocks that were told before their deadline that the lock had gone, although the granting
    /// side was there all the time.
    pub(crate) fn bereft(&self) -> Vec<String> {
        let not_holder = |acquisition: &Acquisition| {
            let Some((at, Outcome::NotHolder)) = acquisition.unlocked else { return false };
            !self.formings.iter().any(|(from, to)| acquisition.asked <= *to && at >= *from)
        };
        let of = self.acquisitions.iter().filter(|(_, acquisition)| not_holder(acquisition));
        of.map(|(id, _)| format!("{id:?} was told that it does not hold what it held")).collect()
    }

    /// Grants that lasted, with the end of each.
    fn granted(&self) -> impl Iterator<Item = ((u32, u32), &Acquisition, Grant, u64)> {
        self.acquisitions.iter().filter_map(|(id, acquisition)| {
            let (grant, until) = (acquisition.grant?, acquisition.held_until()?);
            Some((*id, acquisition, grant, until))
        })
    }
}
