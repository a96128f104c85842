//! Why a process has no group, in words, and the processes that do not belong to its cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use gaggle_channels::NodeName;

use super::Formation;
use crate::{
    clock::Instant,
    member::{
        options::listed,
        peers::{FRESH, Peers},
        wire::DecodeError,
    },
};

/// How much of another cluster's name is shown.
const SHOWN_CHARS: usize = 64;
/// The most warnings of each kind: foreign names, frames that do not decode, options that differ.
const WARNED_MAX: usize = 64;
/// A cause that did not recur for this long is over: a process without a group sends twenty frames
/// a second, and a leader at least one.
const CAUSE_TTL: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Names outside the set of members that were warned of.
    strangers: BTreeSet<NodeName>,
    /// Why the frames of some processes do not count, and when each last sent one.
    causes: BTreeMap<NodeName, (String, Instant)>,
    /// The sizes and bounds of invitations that were warned of.
    options: BTreeSet<(usize, u64)>,
    /// Why peers are not connected, as far as the channel knows.
    failures: BTreeMap<NodeName, String>,
    /// Why there is no group, as last reported.
    reported: Option<String>,
}

/// How the list of members of another process differs from that of this one, which never differs
/// from itself.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::member) struct Difference {
    /// The names in this list that the other lacks.
    pub(in crate::member) missing_there: String,
    /// The names in the other list that this one lacks.
    pub(in crate::member) missing_here: String,
}

impl Difference {
    fn between(here: &BTreeSet<NodeName>, there: &BTreeSet<NodeName>) -> Self {
        let missing_there = listed(here.difference(there));
        Self { missing_there, missing_here: listed(there.difference(here)) }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.missing_there, &*self.missing_here) {
            (there, "") => write!(f, "its option peers (or members) lacks {there}"),
            ("", here) => write!(f, "our option peers (or members) lacks {here}"),
            (there, here) => {
                write!(f, "its option peers (or members) lacks {there}, ours lacks {here}")
            }
        }
    }
}

impl Reports {
    /// Notes why frames of a process do not count. Returns whether that must be warned of: once for
    /// each name.
    fn note(&mut self, now: Instant, name: &NodeName, cause: String) -> bool {
        let is_known = self.causes.contains_key(name);
        let is_noted = is_known || self.causes.len() < WARNED_MAX;
        if is_noted {
            self.causes.insert(name.clone(), (cause, now));
        }
        is_noted && !is_known
    }

    /// Why the frames of a process do not count, if it still sends such frames.
    fn cause(&self, now: Instant, name: &NodeName) -> Option<&String> {
        let (cause, at) = self.causes.get(name)?;
        (now.since(*at) <= CAUSE_TTL).then_some(cause)
    }

    /// Warns of a forming of another size or `outside_max` in milliseconds, once for each.
    pub(super) fn warn_of_options(&mut self, theirs: (usize, u64), mine: (usize, u64)) {
        if self.options.len() >= WARNED_MAX || !self.options.insert(theirs) {
            return;
        }
        if theirs.0 != mine.0 {
            tracing::warn!(theirs = theirs.0, mine = mine.0, "members differ in size");
        }
        if theirs.1 != mine.1 {
            tracing::warn!(theirs = theirs.1, mine = mine.1, "members differ in outside_max (ms)");
        }
    }
}

impl Formation {
    /// Describes the missing members, if they have changed since the last report.
    pub(in crate::member) fn report(
        &mut self,
        now: Instant,
        what: &str,
        peers: &Peers,
    ) -> Option<String> {
        let reason = format!("{what}: waiting for {}", self.missing(now, peers));
        let has_changed = self.reports.reported.as_ref() != Some(&reason);
        self.reports.reported = Some(reason.clone());
        has_changed.then_some(reason)
    }

    /// Forgets the last report, once nothing is missing.
    pub(in crate::member) fn forget_report(&mut self) {
        self.reports.reported = None;
    }

    /// Takes the channel's reasons for missing connections, which reports name.
    pub(in crate::member) fn set_failures(&mut self, failures: BTreeMap<NodeName, String>) {
        self.reports.failures = failures;
    }

    /// How a peer's list of members differs, if it does.
    pub(in crate::member) fn difference(
        &self,
        name: &NodeName,
        peers: &Peers,
    ) -> Option<Difference> {
        let here = &self.members;
        let there = &peers.get(name)?.members;
        (!there.is_empty() && there != here).then(|| Difference::between(here, there))
    }

    /// Which processes a group waits for, and why, in words.
    fn missing(&self, now: Instant, peers: &Peers) -> String {
        let is_connected =
            |name: &NodeName| peers.get(name).is_some_and(|peer| peer.is_fresh(now, FRESH));
        let others: Vec<&NodeName> =
            self.members.iter().filter(|name| **name != self.name).collect();
        let all_connected = others.iter().all(|name| is_connected(name));
        // Names in a row with one cause share it.
        let mut causes: Vec<(String, Vec<&NodeName>)> = Vec::new();
        for name in others {
            let cause = if !is_connected(name) {
                self.not_connected(now, name)
            } else if let Some(difference) = self.difference(name, peers) {
                format!("connected, {difference}")
            } else if all_connected {
                "connected, not ready".into()
            } else {
                continue;
            };
            match causes.last_mut() {
                Some((last, names)) if *last == cause => names.push(name),
                _ => causes.push((cause, vec![name])),
            }
        }
        let described = causes.into_iter().map(|(cause, names)| {
            let names = listed(names);
            format!("{names} ({cause})")
        });
        described.collect::<Vec<_>>().join(", ")
    }

    fn not_connected(&self, now: Instant, name: &NodeName) -> String {
        // A process of another cluster or version is connected as far as the channel is concerned.
        match (self.reports.failures.get(name), self.reports.cause(now, name)) {
            (Some(failure), _) => format!("not connected, {failure}"),
            (None, Some(cause)) => cause.clone(),
            (None, None) => "not connected".into(),
        }
    }

    /// Warns of frames that do not decode, once for each sender.
    pub(in crate::member) fn warn_of_frame(
        &mut self,
        now: Instant,
        peer: &NodeName,
        error: DecodeError,
    ) {
        if self.reports.note(now, peer, format!("dropped its frames: {error}")) {
            tracing::warn!(%peer, %error, "dropped a frame");
        }
    }

    /// Warns of a process of another cluster, once for each name.
    pub(in crate::member) fn warn_of_cluster(
        &mut self,
        now: Instant,
        peer: &NodeName,
        theirs: &str,
        mine: &str,
    ) {
        let theirs: String = theirs.chars().take(SHOWN_CHARS).collect();
        let described =
            format!("its option cluster is {theirs:?}, ours is {mine:?}: make them equal");
        if self.reports.note(now, peer, described) {
            tracing::warn!(%peer, theirs, mine, "a process of another cluster connects here");
        }
    }

    /// Warns of a process that this cluster does not admit, once for each name.
    pub(in crate::member) fn warn_of_stranger(&mut self, name: &NodeName) {
        let strangers = &mut self.reports.strangers;
        if strangers.len() < WARNED_MAX && strangers.insert(name.clone()) {
            tracing::warn!(%name, members = %listed(&self.members), "a process is not in the set of members");
        }
    }
}
