//! Requests of this process' client core to its group, and the events that it gets.

use std::time::Duration;

use humantime::format_duration;

use super::{Body, Event, Instant, Node, ProcessId};
use crate::{
    client::{
        backend::Cause,
        calls::Until,
        commands::{Command as Request, Copies, Fate},
    },
    deadline::whole_ms,
    error::UnavailableKind,
    limits::{HOST_BYTES_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX, MAX_WAIT_MAX},
    lock_table::{Command, Effect, Grant, LockRequest, PriorState, Refusal, Seen, Wait},
};

impl Node {
    /// Takes a request: a member that leads appends it with the next flush, any other sends it to
    /// its leader. What this member's own table decides is reported by the next flush.
    pub fn submit(&mut self, now: Instant, request: Request) -> Copies {
        let (Some(group), Some(leader)) = (&mut self.group, self.leadership.leader()) else {
            return Copies::Many;
        };
        if let Request::Lock { lease, .. } | Request::Extend { lease, .. } = &request
            && whole_ms(*lease) > group.lease_max_ms()
        {
            let limit = format_duration(Duration::from_millis(group.lease_max_ms()));
            let text = format!(
                "the group's outside_max is {limit}: make that option equal at all members"
            );
            let cause = Cause::new(UnavailableKind::Misconfigured, text);
            let (request, fate) = (request.request_id(), Fate::Refused);
            self.turn.events.push(Event::Failed { request, fate, cause });
            return Copies::One;
        }
        let me = self.identity.incarnation();
        let (over_channel, process) = (leader != me, ProcessId(me));
        let command = match request {
            Request::Lock { nonce, key, lease, until, owner, .. } => {
                let seen = Seen::At { group: group.id(), time: group.table().now() };
                Command::Lock(LockRequest {
                    key,
                    nonce,
                    process,
                    duration_ms: whole_ms(lease),
                    wait: wait(now, until),
                    seen,
                    owner,
                })
            }
            Request::Unlock { nonce, key, copies, .. } => {
                Command::Unlock { key, nonce, forget: !copies && !over_channel }
            }
            Request::Extend { id, nonce, key, lease, .. } => {
                Command::Extend { key, nonce, process, request: id, duration_ms: whole_ms(lease) }
            }
            Request::Check { nonce, key, token: Some(token) } => {
                let holder = group.table().holder(&key).map(|grant| (grant.nonce, grant.token));
                if holder != Some((nonce, token)) {
                    self.turn.events.push(Event::Lost { nonce, key, token, forced: None });
                }
                return Copies::One;
            }
            Request::Check { nonce, token: None, .. } => {
                // A repeated LOCK finds its position in the queue.
                self.turn.events.push(Event::Forgotten { nonce });
                return Copies::One;
            }
            Request::Scan { id, after, prefix, limit } => {
                let (keys, next) = group.table().scan(after.as_ref(), &prefix, limit);
                self.turn.events.push(Event::Scanned { id, keys, next });
                return Copies::One;
            }
            Request::Inspect { id, key } => {
                let found = group.table().inspect(&key);
                self.turn.events.push(Event::Inspected { id, found: Ok(found) });
                return Copies::One;
            }
        };
        if over_channel {
            self.outbox.post(leader, &Body::Request(command));
            Copies::Many
        } else {
            if is_admissible(&command, me, group.lease_max_ms()) {
                group.submit(command);
            }
            Copies::One
        }
    }

    /// Reports an effect to the client core, if it concerns this process.
    pub(super) fn report(&mut self, effect: &Effect) {
        self.turn.events.extend(event(effect, ProcessId(self.identity.incarnation())));
    }
}

fn wait(now: Instant, until: Until) -> Wait {
    match until {
        Until::Now => Wait::No,
        Until::Forever => Wait::Forever,
        Until::At(end) => Wait::Ms(whole_ms(end.since(now)).max(1)),
    }
}

/// The event of an effect for `process`. The end of an acquisition is reported to every process:
/// the lock may have been transferred to any.
fn event(effect: &Effect, process: ProcessId) -> Option<Event> {
    match effect {
        Effect::Granted(grant) if grant.process == process => Some(granted(grant)),
        Effect::Queued { nonce, process: of, .. } if *of == process => {
            Some(Event::Queued { nonce: *nonce, holder_lease: None })
        }
        Effect::Dropped { nonce, .. } => Some(Event::Forgotten { nonce: *nonce }),
        Effect::Refused { nonce, process: of, reason, .. } if *of == process => {
            let nonce = *nonce;
            Some(match *reason {
                Refusal::Held => Event::Held { nonce },
                Refusal::Spent => Event::Ended { nonce },
                Refusal::Stale => Event::Stale { nonce },
                Refusal::Limit { what, limit } => Event::Limit { nonce, what: what.name(), limit },
            })
        }
        Effect::Unlocked { nonce, was, .. } => {
            Some(Event::Unlocked { nonce: *nonce, held: *was == PriorState::Held })
        }
        Effect::Extended { nonce, process: of, request, held } if *of == process => {
            let token = held.map(|(token, _)| token);
            Some(Event::Extended { id: *request, nonce: *nonce, token })
        }
        Effect::Expired { key, nonce, token, .. } => {
            let (nonce, key, token) = (*nonce, key.clone(), *token);
            Some(Event::Lost { nonce, key, token, forced: None })
        }
        _ => None,
    }
}

/// The event of a grant. If the LOCK was repeated after its grant, only the rest of the lease at
/// that time counts from the send.
fn granted(grant: &Grant) -> Event {
    let waited = Duration::from_millis(grant.granted_at.since(grant.asked_at));
    let from = grant.granted_at.max(grant.asked_at);
    let lease = Duration::from_millis(grant.expires_at.since(from));
    let Grant { nonce, token, .. } = *grant;
    Event::Granted { nonce, key: grant.key.clone(), token, waited, lease }
}

/// Whether a command that `process` sent may be appended: a peer is not trusted more than a caller.
pub(super) fn is_admissible(command: &Command, process: u64, lease_max_ms: u64) -> bool {
    let key_fits = |key: &str| !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    let lease_fits = |ms: u64| ms > 0 && ms <= lease_max_ms;
    match command {
        Command::Lock(lock) => {
            let waits = match lock.wait {
                Wait::Ms(ms) => u128::from(ms) <= MAX_WAIT_MAX.as_millis(),
                Wait::No | Wait::Forever => true,
            };
            let label = lock.owner.label.as_ref().map_or(0, String::len);
            lock.process.0 == process
                && key_fits(&lock.key)
                && lease_fits(lock.duration_ms)
                && waits
                && label <= LABEL_BYTES_MAX
                && lock.owner.host.len() <= HOST_BYTES_MAX
        }
        Command::Unlock { key, .. } => key_fits(key),
        Command::Extend { key, process: asks, duration_ms, .. } => {
            asks.0 == process && key_fits(key) && lease_fits(*duration_ms)
        }
        // Only a leader appends these, unasked.
        Command::DropWaiters { .. } | Command::Noop => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        lock::{Nonce, Owner},
        lock_table::{LockRequest, ProcessId, Seen},
    };

    const SENDER: u64 = 7;
    /// The longest lease that the group gives.
    const LEASE: u64 = 60_000;

    fn admits(command: &Command) -> bool {
        is_admissible(command, SENDER, LEASE)
    }

    /// A LOCK at every limit, which is admitted, changed in one thing.
    fn lock(change: impl FnOnce(&mut LockRequest, &mut Owner)) -> bool {
        let mut owner = Owner {
            host: "h".repeat(HOST_BYTES_MAX),
            pid: 1,
            label: Some("l".repeat(LABEL_BYTES_MAX)),
        };
        let mut request = LockRequest {
            key: "k".repeat(KEY_BYTES_MAX).into(),
            nonce: Nonce::from_u128(1),
            process: ProcessId(SENDER),
            duration_ms: LEASE,
            wait: Wait::Ms(longest_wait()),
            seen: Seen::Now,
            owner: Arc::default(),
        };
        change(&mut request, &mut owner);
        request.owner = Arc::new(owner);
        admits(&Command::Lock(request))
    }

    fn longest_wait() -> u64 {
        u64::try_from(MAX_WAIT_MAX.as_millis()).unwrap()
    }

    fn extend(change: impl FnOnce(&mut Arc<str>, &mut u64, &mut u64)) -> bool {
        let (mut key, mut process, mut duration_ms) = ("k".into(), SENDER, LEASE);
        change(&mut key, &mut process, &mut duration_ms);
        let (nonce, process) = (Nonce::from_u128(1), ProcessId(process));
        admits(&Command::Extend { key, nonce, process, request: 1, duration_ms })
    }

    fn too_long() -> Arc<str> {
        "k".repeat(KEY_BYTES_MAX + 1).into()
    }

    #[test]
    fn lock_is_admitted_up_to_every_limit() {
        assert!(lock(|_, _| {}));
        assert!(!lock(|lock, _| lock.process = ProcessId(SENDER + 1)), "in another's name");
        assert!(!lock(|lock, _| lock.key = "".into()));
        assert!(!lock(|lock, _| lock.key = too_long()));
        assert!(!lock(|lock, _| lock.duration_ms = 0));
        assert!(lock(|lock, _| lock.duration_ms = 1));
        assert!(!lock(|lock, _| lock.duration_ms = LEASE + 1));
        assert!(!lock(|lock, _| lock.wait = Wait::Ms(longest_wait() + 1)));
        assert!(lock(|lock, _| lock.wait = Wait::No));
        assert!(lock(|lock, _| lock.wait = Wait::Forever));
        assert!(!lock(|_, owner| owner.label = Some("l".repeat(LABEL_BYTES_MAX + 1))));
        assert!(lock(|_, owner| owner.label = None));
        assert!(!lock(|_, owner| owner.host = "h".repeat(HOST_BYTES_MAX + 1)));
    }

    #[test]
    fn extend_and_unlock_have_same_limits() {
        assert!(extend(|_, _, _| {}));
        assert!(!extend(|_, process, _| *process += 1), "in another's name");
        assert!(!extend(|key, _, _| *key = too_long()));
        assert!(!extend(|_, _, duration| *duration = 0));
        assert!(!extend(|_, _, duration| *duration += 1));
        let unlock = |key: Arc<str>| {
            admits(&Command::Unlock { key, nonce: Nonce::from_u128(1), forget: false })
        };
        assert!(unlock("k".into()));
        assert!(!unlock("".into()));
        assert!(!unlock(too_long()));
    }

    #[test]
    fn leader_commands_are_never_admitted() {
        assert!(!admits(&Command::DropWaiters { process: ProcessId(SENDER) }));
        assert!(!admits(&Command::Noop));
    }
}
