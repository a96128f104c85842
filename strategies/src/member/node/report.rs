//! What the client core learns of what the log did.

use std::time::Duration;

use super::{Node, ProcessId};
use crate::{
    client::command::{Event, Subject},
    lock_table::{Effect, Ended, Grant, Refusal},
};

impl Node {
    /// Reports an effect to the client core, if it concerns this process.
    pub(super) fn report(&mut self, effect: &Effect) {
        self.turn.report(event(effect, ProcessId(self.identity.incarnation())));
    }
}

/// What an effect means for `process`. The end of an acquisition is reported to every process: the
/// lock may have been handed to any.
fn event(effect: &Effect, process: ProcessId) -> Option<Event> {
    match effect {
        Effect::Granted(grant) if grant.process == process => Some(granted(grant)),
        Effect::Queued { nonce, process: of, .. } if *of == process => {
            Some(Event::Queued { nonce: *nonce, check_in: None })
        }
        Effect::Dropped { nonce, process: of, .. } if *of == process => {
            Some(Event::Forgotten { nonce: *nonce })
        }
        Effect::Refused { nonce, process: of, reason, .. } if *of == process => {
            let nonce = *nonce;
            Some(match *reason {
                Refusal::Held => Event::Held { nonce },
                Refusal::Spent(_) => Event::Ended { nonce },
                Refusal::Stale { .. } => Event::Stale { nonce },
                Refusal::Limit { what, limit } => {
                    Event::Limit { of: Subject::Lock(nonce), what: what.name(), limit }
                }
            })
        }
        Effect::Unlocked { nonce, was, .. } => {
            let held = matches!(was, Ended::Held | Ended::Waited);
            Some(Event::Unlocked { nonce: *nonce, held })
        }
        Effect::Extended { process: of, request, held, .. } if *of == process => {
            Some(Event::Extended { id: *request, token: held.map(|(token, _)| token) })
        }
        Effect::Expired { key, nonce, token, .. } => {
            Some(Event::Lost { nonce: *nonce, key: key.clone(), token: *token })
        }
        _ => None,
    }
}

/// Where the LOCK was repeated after its grant, only what then remained of the lease counts from
/// the send.
fn granted(grant: &Grant) -> Event {
    let waited = Duration::from_millis(grant.granted_at.since(grant.asked_at));
    let from = grant.granted_at.max(grant.asked_at);
    let lease = Duration::from_millis(grant.expires_at.since(from));
    let Grant { nonce, token, .. } = *grant;
    Event::Granted { nonce, key: grant.key.clone(), token, waited, lease }
}
