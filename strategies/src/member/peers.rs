//! The other processes, by name: which incarnation of each runs.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gaggle_channels::NodeName;

use super::wire::{MembershipState, Presence, Process, Times};
use crate::clock::Instant;

/// A process takes part in a forming, or is taken into a group, if it was heard within this long.
pub(super) const FRESH: Duration = Duration::from_millis(500);
/// How long the known incarnation of a name may reply before another process takes the name.
const RIVAL_PATIENCE: Duration = Duration::from_millis(300);

/// The other processes, by name, as this one knows them.
///
/// Only a fresh incarnation proves that an old one has ended, and frames may come late. So an
/// incarnation counts only once it has replied to a challenge of this process: then it runs now.
#[derive(Debug, Default)]
pub(super) struct Peers {
    by_name: BTreeMap<NodeName, Peer>,
    challenges: u64,
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The incarnation known to run, 0 for none yet.
    pub(super) incarnation: u64,
    pub(super) membership_state: Option<MembershipState>,
    pub(super) last_token: u64,
    /// The names that its options list as members.
    pub(super) members: BTreeSet<NodeName>,
    /// `None` until it has sent them.
    pub(super) times: Option<Times>,
    /// The incarnation has closed in order: it no longer keeps its name.
    has_left: bool,
    last_heard_at: Instant,
    seq: u64,
    challenge: u64,
    /// The latest challenge of this process that the incarnation has echoed.
    echo: u64,
    /// The latest challenge of that incarnation, to be echoed.
    their_challenge: u64,
    /// The process that runs the incarnation, as its latest presence names it.
    process: Process,
    suspect: Option<Suspect>,
    /// The process whose takeover was last refused.
    refused: u64,
}

/// An incarnation with the name, which has not yet replied.
#[derive(Debug)]
struct Suspect {
    incarnation: u64,
    challenge: u64,
    their_challenge: u64,
    since: Instant,
    last_heard_at: Instant,
    /// Whether the suspect has replied to its challenge.
    replied: bool,
    /// The challenge to the known incarnation that follows the takeover.
    rival_challenge: u64,
}

/// The outcome for a second process with a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Takeover {
    /// The known incarnation, `rival`, is asked whether it still runs.
    Pending { rival: u64 },
    /// The known incarnation still runs and keeps the name. `first`: for the first time.
    Refused { rival: u64, by: Process, first: bool },
    /// The known incarnation still runs, but in no group and since later: it loses the name.
    Granted { rival: u64, of: Process },
}

/// The reaction to a presence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Whether the sender asked, or must be asked.
    pub(super) is_due: bool,
    /// Whether the sender is known to run now.
    pub(super) verified: bool,
    /// The name is known as another process's.
    pub(super) takeover: Option<Takeover>,
}

impl Reply {
    fn of(is_due: bool, verified: bool) -> Self {
        Self { is_due, verified, takeover: None }
    }
}

impl Peers {
    pub(super) fn get(&self, name: &NodeName) -> Option<&Peer> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeName, &Peer)> {
        self.by_name.iter()
    }

    /// The incarnations that are known to run, by name.
    pub(super) fn running(&self) -> impl Iterator<Item = (NodeName, u64)> {
        let known = self.by_name.iter().filter(|(_, peer)| peer.incarnation != 0);
        known.map(|(name, peer)| (name.clone(), peer.incarnation))
    }

    /// A frame of `incarnation` arrived.
    pub(super) fn record_frame(&mut self, now: Instant, name: &NodeName, incarnation: u64) {
        if let Some(peer) = self.by_name.get_mut(name)
            && peer.incarnation == incarnation
        {
            peer.last_heard_at = now;
        }
    }

    /// The group admitted `incarnation`: its leader has verified it.
    pub(super) fn admitted(&mut self, now: Instant, name: &NodeName, incarnation: u64) {
        let peer = self.by_name.entry(name.clone()).or_default();
        if peer.incarnation != incarnation {
            *peer = Peer { incarnation, last_heard_at: now, ..Peer::default() };
        }
    }

    /// `incarnation` closes: a successor of its name need not wait for a reply of it.
    pub(super) fn left(&mut self, name: &NodeName, incarnation: u64) {
        if let Some(peer) = self.by_name.get_mut(name)
            && peer.incarnation == incarnation
        {
            peer.has_left = true;
        }
    }

    /// Takes a presence. `to_me`: the frame was addressed to this incarnation of ours, so its echo
    /// is for it and not an earlier one.
    pub(super) fn presence(
        &mut self,
        now: Instant,
        name: &NodeName,
        incarnation: u64,
        presence: &Presence,
        to_me: bool,
        is_member: impl Fn(u64) -> bool,
    ) -> Reply {
        let peer = self.by_name.entry(name.clone()).or_default();
        if peer.incarnation == 0 {
            peer.last_heard_at = now;
        }
        if peer.incarnation == incarnation {
            return peer.take_presence(now, presence, to_me);
        }
        // Takeovers of a name are decided one after the other.
        let is_busy = |suspect: &Suspect| {
            suspect.incarnation != incarnation && now.since(suspect.last_heard_at) < RIVAL_PATIENCE
        };
        if peer.suspect.as_ref().is_some_and(is_busy) {
            return Reply::of(false, false);
        }
        if let Some(suspect) = peer.suspect.take_if(|s| s.incarnation == incarnation) {
            return peer.take_suspect_presence(now, suspect, presence, to_me, is_member);
        }
        self.challenges += 2;
        peer.start_verification(now, incarnation, presence, self.challenges)
    }

    /// The challenge and echo for a presence to this incarnation of `name`. `ask` generates a fresh
    /// challenge, which the receiver will echo.
    pub(super) fn challenge_and_echo(
        &mut self,
        name: &NodeName,
        incarnation: u64,
        ask: bool,
    ) -> (u64, u64) {
        let peer = self.by_name.entry(name.clone()).or_default();
        if ask {
            self.challenges += 1;
        }
        if let Some(suspect) = peer.suspect.as_ref().filter(|s| s.incarnation == incarnation) {
            let challenge = if ask { self.challenges } else { suspect.challenge };
            return (challenge, suspect.their_challenge);
        }
        if ask {
            peer.challenge = self.challenges;
        }
        let echo = if peer.incarnation == incarnation { peer.their_challenge } else { 0 };
        (peer.challenge, echo)
    }

    /// The incarnations of `name` to send to: the suspected one and the known one.
    pub(super) fn incarnations(&self, name: &NodeName) -> Vec<u64> {
        let Some(peer) = self.by_name.get(name) else { return vec![0] };
        let suspect = peer.suspect.as_ref().map(|suspect| suspect.incarnation);
        let known = Some(peer.incarnation).filter(|&id| id != 0);
        match (suspect, known) {
            (None, None) => vec![0],
            (suspect, known) => suspect.into_iter().chain(known).collect(),
        }
    }

    /// Whether `incarnation` of `name`, a member of `group`, has provably ended: a fresh one runs,
    /// and is not yet a member in its stead.
    pub(super) fn is_replaced(&self, name: &NodeName, incarnation: u64, group: u128) -> bool {
        self.by_name.get(name).is_some_and(|peer| {
            peer.incarnation != 0
                && peer.incarnation != incarnation
                && peer.membership_state != Some(MembershipState::Member(group))
        })
    }
}

impl Peer {
    /// Whether the known incarnation may run, and belongs to another process than the sender of
    /// `presence`.
    fn is_rival_of(&self, presence: &Presence) -> bool {
        self.incarnation != 0 && !self.has_left && self.process.id != presence.process.id
    }

    /// Takes a presence of the incarnation that is known to run.
    fn take_presence(&mut self, now: Instant, presence: &Presence, to_me: bool) -> Reply {
        self.last_heard_at = now;
        let asked = presence.challenge > self.their_challenge;
        self.their_challenge = self.their_challenge.max(presence.challenge);
        if presence.seq > self.seq {
            self.set_state(presence);
        }
        if to_me {
            self.echo = self.echo.max(presence.echo);
        }
        Reply::of(asked, true)
    }

    /// Challenges an incarnation that is not known to run, and after it the known one.
    fn start_verification(
        &mut self,
        now: Instant,
        incarnation: u64,
        presence: &Presence,
        rival_challenge: u64,
    ) -> Reply {
        self.challenge = rival_challenge;
        self.suspect = Some(Suspect {
            incarnation,
            challenge: rival_challenge - 1,
            their_challenge: presence.challenge,
            since: now,
            last_heard_at: now,
            replied: false,
            rival_challenge,
        });
        let rival = self.incarnation;
        let takeover = self.is_rival_of(presence).then_some(Takeover::Pending { rival });
        Reply { is_due: true, verified: false, takeover }
    }

    /// Takes another presence of a suspect. Once it has replied to its challenge it is the known
    /// incarnation, unless another process keeps the name or may still reply.
    fn take_suspect_presence(
        &mut self,
        now: Instant,
        mut suspect: Suspect,
        presence: &Presence,
        to_me: bool,
        is_member: impl Fn(u64) -> bool,
    ) -> Reply {
        // Two processes that suspect each other must not reply to each other's replies.
        let asked = presence.challenge > suspect.their_challenge;
        suspect.their_challenge = suspect.their_challenge.max(presence.challenge);
        suspect.last_heard_at = now;
        suspect.replied |= to_me && presence.echo >= suspect.challenge;
        let takeover = self.takeover(now, &suspect, presence, is_member);
        let (is_due, verified) = match &takeover {
            _ if !suspect.replied => (asked, false),
            Some(Takeover::Pending { .. }) => (asked, false),
            Some(Takeover::Refused { .. }) => (false, false),
            Some(Takeover::Granted { .. }) | None => (true, true),
        };
        if verified {
            let Suspect { incarnation, their_challenge, .. } = suspect;
            *self = Self { incarnation, last_heard_at: now, their_challenge, ..Self::default() };
            self.set_state(presence);
        } else {
            self.suspect = Some(suspect);
        }
        Reply { is_due, verified, takeover }
    }

    /// Decides the takeover of a suspect that has replied, if another process had the name.
    fn takeover(
        &mut self,
        now: Instant,
        suspect: &Suspect,
        presence: &Presence,
        is_member: impl Fn(u64) -> bool,
    ) -> Option<Takeover> {
        if !suspect.replied || !self.is_rival_of(presence) {
            return None;
        }
        let (rival, process) = (self.incarnation, self.process.clone());
        if self.echo < suspect.rival_challenge {
            let may_reply = now.since(suspect.since) < RIVAL_PATIENCE;
            may_reply.then_some(Takeover::Pending { rival })
        } else if is_member(rival) || process.is_before(&presence.process) {
            let refused = std::mem::replace(&mut self.refused, presence.process.id);
            Some(Takeover::Refused { rival, by: process, first: refused != presence.process.id })
        } else {
            Some(Takeover::Granted { rival, of: process })
        }
    }

    fn set_state(&mut self, presence: &Presence) {
        self.process = presence.process.clone();
        self.seq = presence.seq;
        self.membership_state = Some(presence.membership_state);
        self.last_token = presence.last_token;
        self.times = Some(presence.times);
        self.members =
            presence.members.iter().filter_map(|name| NodeName::new(name).ok()).collect();
    }

    pub(super) fn is_fresh(&self, now: Instant, within: Duration) -> bool {
        self.incarnation != 0 && now.since(self.last_heard_at) <= within
    }
}

impl Process {
    /// Whether this process keeps a name that both have: the earlier start keeps it.
    fn is_before(&self, other: &Self) -> bool {
        (self.started, self.id) < (other.started, other.id)
    }
}
