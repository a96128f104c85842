//! Requests, and the only place that encodes them: it knows the argument order of the scripts.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use redis::{Cmd, RedisWrite as _};

use super::{
    keys::{NAMES_PER_KEY, Names},
    options::RedisOptions,
    protocol,
    script::Verb,
};
use crate::{
    client::{
        backend::Cause,
        calls::{RequestId, Until},
        commands::{Command, Event, Fate},
    },
    clock::Instant,
    deadline::whole_ms,
    lock::{Nonce, Owner},
};

/// How many ended nonces each of the 16 buckets remembers, some 120 bytes each. At the limit a
/// bucket refuses new locks; an unlock is never refused, and makes the oldest nonce forgotten.
const NONCES_MAX: u64 = 65_536;

/// What one script runs, in this order: requests of one verb. A request without a script is a list
/// of one.
pub(super) type List = Vec<Request>;

/// A request to Redis, which gets one result.
#[derive(Clone, Debug)]
pub(super) enum Request {
    /// Anything but a check.
    Command(Command),
    Poll(Poll),
    /// Writes, so that the next `WAIT` covers all that the server has done before.
    Mark,
    /// Waits for replicas.
    Wait,
}

impl Request {
    /// The script that runs it, in a list; `None` for a command of the server and a mark.
    pub(super) fn verb(&self) -> Option<Verb> {
        match self {
            Self::Command(Command::Lock { .. }) => Some(Verb::Lock),
            Self::Command(Command::Unlock { .. }) => Some(Verb::Unlock),
            Self::Command(Command::Extend { .. }) => Some(Verb::Extend),
            Self::Command(Command::Inspect { .. }) => Some(Verb::Inspect),
            Self::Poll(_) => Some(Verb::Poll),
            Self::Command(Command::Check { .. }) => unreachable!("checks leave as polls"),
            Self::Command(Command::Scan { .. }) | Self::Mark | Self::Wait => None,
        }
    }

    pub(super) fn key(&self) -> Option<&Arc<str>> {
        match self {
            Self::Command(command) => command.key(),
            Self::Poll(poll) => Some(&poll.key),
            Self::Mark | Self::Wait => None,
        }
    }

    /// Reports that it failed.
    pub(super) fn fail(&self, fate: Fate, cause: &Cause, events: &mut Vec<Event>) {
        let failed = |request| Event::Failed { request, fate, cause: cause.clone() };
        match self {
            Self::Command(command) => events.push(failed(command.request_id())),
            Self::Poll(Poll { checks, .. }) => {
                events.extend(checks.iter().map(|&Check { nonce, token }| match token {
                    None => failed(RequestId::WaiterCheck(nonce)),
                    Some(_) => failed(RequestId::HeldCheck(nonce)),
                }));
            }
            Self::Mark | Self::Wait => {}
        }
    }

    /// The key in an error: ` for "orders/42"`, or nothing, as for the test of a connection.
    pub(super) fn for_key(&self) -> String {
        let key = self.key().filter(|key| !key.is_empty());
        key.map_or_else(String::new, |key| format!(" for {key:?}"))
    }
}

/// Checks of one key. A poll without checks is a sign of life.
#[derive(Clone, Debug)]
pub(super) struct Poll {
    pub(super) key: Arc<str>,
    pub(super) checks: Vec<Check>,
}

/// A check of a waiter, or of a held lock with this token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    pub(super) nonce: Nonce,
    pub(super) token: Option<u64>,
}

/// Encodes requests.
#[derive(Debug)]
pub(super) struct Encoder {
    pub(super) names: Names,
    /// Names this handle among all processes: its waiters live and die together.
    process: Nonce,
    /// What every script gets: the process and the options.
    settings: String,
    /// "pid host".
    owner: String,
    nonce_memory_us: u64,
    /// How many replicas `WAIT` waits for, and for how long.
    replicas: u32,
    wait_ms: u64,
}

impl Encoder {
    pub(super) fn new(options: &RedisOptions, process: Nonce) -> Self {
        let names = Names::new(&options.namespace, options.server.is_cluster());
        let owner = Owner::this_process(None);
        // The host becomes one word, so that the label after it can contain spaces.
        let host = owner.host.split_whitespace().collect::<Vec<_>>().join("-");
        let (memory, ttl) = (whole_ms(options.nonce_memory), whole_ms(options.waiter_ttl));
        let waiters_max = options.waiters_max;
        Self {
            settings: format!(
                "{process} {memory} {ttl} {waiters_max} {NONCES_MAX} {}",
                names.topics()
            ),
            process,
            owner: format!("{} {host}", owner.pid),
            nonce_memory_us: memory.saturating_mul(1000),
            replicas: options.replicas,
            // The signs of life of this process queue behind it.
            wait_ms: whole_ms((options.request_timeout / 2).min(options.waiter_ttl / 4)).max(1),
            names,
        }
    }

    /// The topic for grants to this process.
    pub(super) fn topic(&self) -> String {
        format!("{}{}", self.names.topics(), self.process)
    }

    /// `seen` is the latest time of the server that is known here, in microseconds.
    pub(super) fn encode(&self, list: &[Request], now: Instant, seen: u64) -> Cmd {
        let mut cmd = Cmd::with_capacity(4 + 12 * list.len(), 128 + 512 * list.len());
        let Some(verb) = list[0].verb() else {
            self.add_command(&mut cmd, &list[0]);
            return cmd;
        };
        cmd.arg("EVALSHA").arg(verb.hash()).arg(NAMES_PER_KEY * list.len());
        for key in list.iter().filter_map(Request::key) {
            self.names.add(&mut cmd, key);
        }
        cmd.arg(&self.settings);
        for request in list {
            self.add_arguments(&mut cmd, request, now, seen);
        }
        cmd
    }

    /// Adds the arguments of one request of a list: as many for each request of a verb.
    fn add_arguments(&self, cmd: &mut Cmd, request: &Request, now: Instant, seen: u64) {
        match request {
            Request::Command(Command::Lock { nonce, lease, until, owner, copies, .. }) => {
                // When the server's time is later, it refuses the LOCK as too old.
                cmd.write_arg_fmt(seen.saturating_add(self.nonce_memory_us));
                cmd.write_arg_fmt(nonce);
                cmd.write_arg_fmt(whole_ms(*lease));
                match until {
                    Until::Now => cmd.arg(0),
                    // A millisecond at least, for it does queue.
                    Until::At(until) => cmd.arg(whole_ms(until.since(now)).max(1)),
                    Until::Forever => cmd.arg(-1),
                };
                // The first LOCK of a call under a given nonce may follow those of other calls.
                cmd.arg(if nonce.is_given() && !copies { "g" } else { flag(*copies) });
                match &owner.label {
                    None => cmd.write_arg_fmt(format_args!("{} -", self.owner)),
                    Some(label) => cmd.write_arg_fmt(format_args!("{} +{label}", self.owner)),
                }
            }
            Request::Command(Command::Unlock { nonce, key, token, copies, forced }) => {
                cmd.write_arg_fmt(nonce);
                cmd.arg(*token).arg(flag(*copies));
                let notice = |note: &Arc<str>| protocol::forced_payload(*nonce, *token, key, note);
                cmd.arg(forced.as_ref().map(notice).unwrap_or_default());
            }
            Request::Command(Command::Extend { nonce, token, lease, .. }) => {
                cmd.write_arg_fmt(nonce);
                cmd.arg(whole_ms(*lease)).arg(*token);
            }
            Request::Poll(poll) => {
                let nonces = poll.checks.iter().map(|check| check.nonce.to_string());
                cmd.arg(nonces.collect::<Vec<_>>().join(" "));
            }
            Request::Command(Command::Inspect { .. }) => {}
            Request::Command(_) | Request::Mark | Request::Wait => {
                unreachable!("no list has these")
            }
        }
    }

    /// Adds a SCAN, MARK or WAIT, which is sent alone.
    fn add_command(&self, cmd: &mut Cmd, request: &Request) {
        match request {
            Request::Command(Command::Scan { after, prefix, limit, .. }) => {
                cmd.arg("SCAN").arg(after.as_deref().unwrap_or("0"));
                cmd.arg("MATCH").arg(self.names.pattern(prefix)).arg("COUNT").arg(*limit);
            }
            Request::Mark => {
                cmd.arg("EVALSHA").arg(Verb::Mark.hash()).arg(1).arg(self.names.mark());
            }
            Request::Wait => _ = cmd.arg("WAIT").arg(self.replicas).arg(self.wait_ms),
            Request::Command(_) | Request::Poll(_) => unreachable!("scripts run these in lists"),
        }
    }
}

/// Whether copies of the nonce's LOCK may still arrive.
fn flag(copies: bool) -> &'static str {
    if copies { "c" } else { "-" }
}
