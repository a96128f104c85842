//! Requests of this process' client core to its group, and the events that it gets.

use std::time::Duration;

use humantime::format_duration;

use super::{Body, Event, Instant, Node, ProcessId, admission};
use crate::{
    client::{
        backend::Cause,
        messages::{Command as Request, Copies, Fate, Until},
    },
    error::UnavailableKind,
    lock_table::{Command, Effect, Grant, LockRequest, PriorState, Refusal, Seen, Wait},
    wait::whole_ms,
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
            if admission::is_admissible(&command, me, group.lease_max_ms()) {
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
