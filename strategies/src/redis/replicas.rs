//! Grants and extensions that are reported once enough replicas have them, and what must not
//! overtake them.

use std::mem;

use redis::Value;

use super::error::{Refusal, server_reason};
use crate::{
    client::{
        backend::Cause,
        calls::RequestId,
        commands::{Event, Fate},
    },
    error::UnavailableKind,
    lock::Nonce,
};

/// Grants and extensions that wait for replicas, in their order, with losses to be repeated behind
/// them. An unlock of a lock that is being extended is reported behind the extension, which would
/// revive the lock.
#[derive(Debug, Default)]
pub(super) struct ReplicaQueue {
    /// The events before the `WAIT` that is in flight.
    covered: Vec<Event>,
    later: Vec<Event>,
    /// Whether the write before that `WAIT` took effect.
    is_marked: bool,
}

impl ReplicaQueue {
    /// Takes all grants and extensions out of `events`, and adds what grants wait for.
    pub(super) fn take_from(&mut self, events: &mut Vec<Event>, wanted: u32, address: &str) {
        let waiting = self.covered.iter().chain(&self.later);
        let mut extended: Vec<_> = waiting.filter_map(extended_nonce).collect();
        let waits = |event: &mut Event| {
            extended.extend(extended_nonce(event));
            match event {
                Event::Granted { .. } => true,
                Event::Extended { nonce, .. } | Event::Unlocked { nonce, .. } => {
                    extended.contains(nonce)
                }
                _ => false,
            }
        };
        let begin = self.later.len();
        self.later.extend(events.extract_if(.., waits));
        let is_lost = |event: &&Event| matches!(event, Event::Lost { .. });
        for waiting in [&mut self.covered, &mut self.later] {
            // The grant or extension that it ends may be among those.
            if !waiting.is_empty() {
                waiting.extend(events.iter().filter(is_lost).cloned());
            }
        }
        for event in &self.later[begin..] {
            if let Event::Granted { nonce, .. } = event {
                let cause = too_few(None, wanted, address);
                events.push(Event::Unconfirmed { nonce: *nonce, cause });
            }
        }
    }

    /// Whether a `WAIT` must be sent now. It covers all events so far.
    pub(super) fn begins(&mut self) -> bool {
        let begins = self.covered.is_empty() && !self.later.is_empty();
        if begins {
            (self.covered, self.is_marked) = (mem::take(&mut self.later), false);
        }
        begins
    }

    /// The write before the `WAIT` took effect. Without it, `WAIT` need not cover a grant that
    /// another client of the server made.
    pub(super) fn marked(&mut self) {
        self.is_marked = true;
    }

    /// Takes the reply to the `WAIT`, and reports what it covered: as failed, if fewer replicas
    /// than `wanted` have it. Returns the cause then.
    pub(super) fn waited(
        &mut self,
        reply: &Value,
        wanted: u32,
        address: &str,
        events: &mut Vec<Event>,
    ) -> Option<Cause> {
        let covered = mem::take(&mut self.covered);
        let cause = match reply {
            Value::Int(count) if self.is_marked && *count >= i64::from(wanted) => None,
            Value::ServerError(error) => {
                let text = format!("Redis at {address} refused WAIT: {}", server_reason(error));
                Some(Cause::new(Refusal::of_request(error).kind(), text))
            }
            Value::Int(count) if self.is_marked => Some(too_few(Some(*count), wanted, address)),
            _ => Some(too_few(Some(0), wanted, address)),
        };
        if let Some(cause) = &cause {
            for event in covered {
                if let Event::Granted { nonce, .. } = event {
                    events.push(Event::Unsafe { nonce, cause: cause.clone() });
                    events.push(event);
                } else {
                    fail(event, cause, events);
                }
            }
        } else {
            events.extend(covered);
        }
        // Unlocks and losses that no grant or extension precedes any more.
        let waits = |event: &Event| {
            matches!(event, Event::Granted { .. }) || extended_nonce(event).is_some()
        };
        let first = self.later.iter().position(waits).unwrap_or(self.later.len());
        events.extend(self.later.drain(..first));
        cause
    }

    /// Reports everything as failed: its connection is lost.
    pub(super) fn fail(&mut self, cause: &Cause, events: &mut Vec<Event>) {
        let unreported = mem::take(&mut self.covered).into_iter().chain(mem::take(&mut self.later));
        unreported.for_each(|event| fail(event, cause, events));
    }
}

/// The nonce of a lock that was extended.
fn extended_nonce(event: &Event) -> Option<Nonce> {
    match event {
        Event::Extended { nonce, token: Some(_), .. } => Some(*nonce),
        _ => None,
    }
}

/// The cause, with the number of replicas that acknowledged where it is known.
fn too_few(count: Option<i64>, wanted: u32, address: &str) -> Cause {
    let count = count.map(|count| format!(" ({count})")).unwrap_or_default();
    let text = format!(
        "fewer than {wanted} replicas of Redis at {address} have acknowledged a grant in \
         time{count}: see `INFO replication`, or lower `replicas`"
    );
    Cause::new(UnavailableKind::Refused, text)
}

/// Reports a grant or an extension as one without a reply.
fn fail(unreported: Event, cause: &Cause, events: &mut Vec<Event>) {
    let failed = |request| Event::Failed { request, fate: Fate::NoReply, cause: cause.clone() };
    match unreported {
        Event::Granted { nonce, .. } => {
            // If it was in the queue, it is no longer.
            events.extend([Event::Forgotten { nonce }, failed(RequestId::Lock(nonce))]);
        }
        Event::Extended { id, token: Some(_), .. } => events.push(failed(RequestId::Query(id))),
        other => events.push(other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The lock that is lost need not be the one whose grant waits.
    #[test]
    fn forced_loss_waits_for_no_replica() {
        let (key, waited, lease) = ("k".into(), Duration::ZERO, Duration::from_secs(5));
        let nonce = Nonce::from_u128(1);
        let grant = Event::Granted { nonce, key, token: 7, waited, lease };
        let forced = Some("operator".into());
        let loss = Event::Lost { nonce, key: "k".into(), token: 7, forced };
        let mut unreported = ReplicaQueue::default();
        let mut events = vec![loss.clone()];
        unreported.take_from(&mut events, 1, "here");
        assert_eq!(events.len(), 1);
        assert!(!unreported.begins(), "nothing waits");
        let mut events = vec![grant, loss.clone()];
        unreported.take_from(&mut events, 1, "here");
        let is_lost = |event: &Event| matches!(event, Event::Lost { .. });
        assert_eq!(events.iter().filter(|event| is_lost(event)).count(), 1, "{events:?}");
        assert!(unreported.begins());
        unreported.marked();
        // In a later turn, while the replicas are awaited.
        let mut later = vec![loss];
        unreported.take_from(&mut later, 1, "here");
        assert_eq!(later.len(), 1);
        let mut events = Vec::new();
        unreported.waited(&Value::Int(1), 1, "here", &mut events);
        assert!(matches!(&events[..], [Event::Granted { .. }, .., loss] if is_lost(loss)));
        assert_eq!(events.len(), 3, "each behind the grant: {events:?}");
    }

    #[test]
    fn unlock_waits_for_the_extension_before_it() {
        let nonce = Nonce::from_u128(1);
        let unlocked = || Event::Unlocked { nonce, held: true };
        let extended = |id, token| Event::Extended { id, nonce, token };
        let kinds = |events: &[Event]| -> Vec<String> {
            events.iter().map(|event| format!("{event:?}")[..8].to_owned()).collect()
        };
        let mut unreported = ReplicaQueue::default();
        let mut events = vec![unlocked(), extended(1, None)];
        unreported.take_from(&mut events, 1, "here");
        assert_eq!(kinds(&events), ["Unlocked", "Extended"], "nothing waits");
        let mut events = vec![extended(2, Some(7)), unlocked(), extended(3, None)];
        unreported.take_from(&mut events, 1, "here");
        assert_eq!(kinds(&events), [""; 0]);
        assert!(unreported.begins());
        unreported.marked();
        let of_another = Event::Unlocked { nonce: Nonce::from_u128(2), held: true };
        let mut events = vec![unlocked(), of_another];
        unreported.take_from(&mut events, 1, "here");
        assert_eq!(kinds(&events), ["Unlocked"], "of another lock");
        events.clear();
        unreported.waited(&Value::Int(1), 1, "here", &mut events);
        assert_eq!(kinds(&events), ["Extended", "Unlocked", "Extended", "Unlocked"]);
        let mut events = vec![extended(4, Some(7)), unlocked()];
        unreported.take_from(&mut events, 1, "here");
        let cause = Cause::new(UnavailableKind::Refused, "no connection");
        unreported.fail(&cause, &mut events);
        assert_eq!(kinds(&events), ["Failed {", "Unlocked"]);
    }
}
