//! The other processes, by name: which incarnation of each runs.

use std::{collections::BTreeMap, time::Duration};

use gaggle_channels::NodeName;

use super::wire::{Presence, Process, Standing};
use crate::Instant;

/// Processes remembered by name: a nameless cluster hears whoever speaks, and strangers must cost
/// bounded memory. More are not heard until others have gone silent.
const PEERS_MAX: usize = 1024;
/// For this long the known incarnation of a name can answer, before another process takes the name.
const RIVAL_PATIENCE: Duration = Duration::from_millis(300);

/// What this process knows of the others, by name.
///
/// Only a fresh incarnation proves that an old one is gone, and frames may come late, so an
/// incarnation counts only once it has answered a challenge of ours: whoever answers runs now.
#[derive(Debug, Default)]
pub(super) struct Peers {
    by_name: BTreeMap<NodeName, Peer>,
    challenges: u64,
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The incarnation known to run, 0 for none yet.
    pub(super) incarnation: u64,
    pub(super) standing: Option<Standing>,
    pub(super) last_token: u64,
    heard: Instant,
    seq: u64,
    challenge: u64,
    /// The newest of our challenges that the incarnation has echoed.
    echo: u64,
    /// The newest challenge of that incarnation, to be echoed.
    theirs: u64,
    /// The process that runs the incarnation, as far as it has said.
    process: Process,
    suspect: Option<Suspect>,
    /// The process whose claim to the name was last refused.
    refused: u64,
}

/// An incarnation that claims the name and has not yet answered.
#[derive(Debug)]
struct Suspect {
    incarnation: u64,
    challenge: u64,
    theirs: u64,
    since: Instant,
    last_heard_at: Instant,
    /// It has answered its challenge.
    answered: bool,
    /// The challenge to the known incarnation that follows the claim.
    rival_challenge: u64,
}

/// What becomes of a second process that claims a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The known incarnation, `rival`, is asked whether it still runs.
    Pending { rival: u64 },
    /// The known incarnation still runs and keeps the name. `first`: for the first time.
    Refused { rival: u64, by: Process, first: bool },
    /// The known incarnation still runs, but in no group and since later: it loses the name.
    Granted { rival: u64, of: Process },
}

/// What to do about a presence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Whether the sender asked, or must be asked.
    pub(super) answer: bool,
    /// Whether the sender is known to run now.
    pub(super) verified: bool,
    /// The name is known as another process's.
    pub(super) claim: Option<Claim>,
}

impl Reply {
    fn of(answer: bool, verified: bool) -> Self {
        Self { answer, verified, claim: None }
    }
}

impl Peers {
    pub(super) fn get(&self, name: &NodeName) -> Option<&Peer> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeName, &Peer)> {
        self.by_name.iter()
    }

    /// Forgets processes that nobody has heard for so long (nameless clusters see many).
    pub(super) fn forget_silent(&mut self, now: Instant, ttl: Duration) {
        self.by_name.retain(|_, peer| now.since(peer.heard) < ttl);
    }

    /// A frame of `incarnation` arrived.
    pub(super) fn heard(&mut self, now: Instant, name: &NodeName, incarnation: u64) {
        if let Some(peer) = self.by_name.get_mut(name)
            && peer.incarnation == incarnation
        {
            peer.heard = now;
        }
    }

    /// The group admitted `incarnation`: its leader has verified it.
    pub(super) fn admitted(&mut self, now: Instant, name: &NodeName, incarnation: u64) {
        let peer = self.by_name.entry(name.clone()).or_default();
        if peer.incarnation != incarnation {
            *peer = Peer { incarnation, heard: now, ..Peer::default() };
        }
    }

    /// Takes a presence; `None` when too many others are known. `to_me`: the frame was addressed to this very incarnation of ours, so its
    /// echo answers us and not a former self.
    pub(super) fn presence(
        &mut self,
        now: Instant,
        name: &NodeName,
        incarnation: u64,
        presence: &Presence,
        to_me: bool,
        is_member: impl Fn(u64) -> bool,
    ) -> Option<Reply> {
        if self.by_name.len() >= PEERS_MAX && !self.by_name.contains_key(name) {
            return None;
        }
        let challenges = &mut self.challenges;
        let peer = self.by_name.entry(name.clone()).or_default();
        if peer.incarnation == 0 {
            peer.heard = now;
        }
        if peer.incarnation == incarnation {
            peer.heard = now;
            let asked = presence.challenge > peer.theirs;
            peer.theirs = peer.theirs.max(presence.challenge);
            if presence.seq > peer.seq {
                peer.take(presence);
            }
            if to_me {
                peer.echo = peer.echo.max(presence.echo);
            }
            return Some(Reply::of(asked, true));
        }
        let busy = |suspect: &Suspect| {
            suspect.incarnation != incarnation && now.since(suspect.last_heard_at) < RIVAL_PATIENCE
        };
        if peer.suspect.as_ref().is_some_and(busy) {
            // One claim to a name is judged after the other.
            return Some(Reply::of(false, false));
        }
        let Some(suspect) = peer.suspect.as_mut().filter(|s| s.incarnation == incarnation) else {
            *challenges += 2;
            peer.challenge = *challenges;
            peer.suspect = Some(Suspect {
                incarnation,
                challenge: *challenges - 1,
                theirs: presence.challenge,
                since: now,
                last_heard_at: now,
                answered: false,
                rival_challenge: *challenges,
            });
            let claim =
                peer.is_rival_of(presence).then_some(Claim::Pending { rival: peer.incarnation });
            return Some(Reply { answer: true, verified: false, claim });
        };
        // Two processes that suspect each other must not answer each other's answers.
        let asked = presence.challenge > suspect.theirs;
        suspect.theirs = suspect.theirs.max(presence.challenge);
        suspect.last_heard_at = now;
        suspect.answered |= to_me && presence.echo >= suspect.challenge;
        let (answered, theirs, waited) =
            (suspect.answered, suspect.theirs, now.since(suspect.since));
        let rival_answered = peer.echo >= suspect.rival_challenge;
        if !answered {
            return Some(Reply::of(asked, false));
        }
        let rival = peer.incarnation;
        let mut claim = None;
        if peer.is_rival_of(presence) {
            if rival_answered {
                let keeps = is_member(rival) || peer.process.is_before(&presence.process);
                if keeps {
                    let first = std::mem::replace(&mut peer.refused, presence.process.id)
                        != presence.process.id;
                    let by = peer.process.clone();
                    let claim = Some(Claim::Refused { rival, by, first });
                    return Some(Reply { answer: false, verified: false, claim });
                }
                claim = Some(Claim::Granted { rival, of: peer.process.clone() });
            } else if waited < RIVAL_PATIENCE {
                let claim = Some(Claim::Pending { rival });
                return Some(Reply { answer: asked, verified: false, claim });
            }
        }
        *peer = Peer { incarnation, heard: now, theirs, ..Peer::default() };
        peer.take(presence);
        Some(Reply { answer: true, verified: true, claim })
    }

    /// The challenge and echo for a presence to `name`, to the incarnation given. `ask` draws a
    /// fresh challenge, which the receiver will answer.
    pub(super) fn words(&mut self, name: &NodeName, incarnation: u64, ask: bool) -> (u64, u64) {
        let peer = self.by_name.entry(name.clone()).or_default();
        if ask {
            self.challenges += 1;
        }
        if let Some(suspect) = peer.suspect.as_ref().filter(|s| s.incarnation == incarnation) {
            let challenge = if ask { self.challenges } else { suspect.challenge };
            return (challenge, suspect.theirs);
        }
        if ask {
            peer.challenge = self.challenges;
        }
        let echo = if peer.incarnation == incarnation { peer.theirs } else { 0 };
        (peer.challenge, echo)
    }

    /// The incarnations of `name` to talk to: the known one and one that claims the name.
    pub(super) fn incarnations(&self, name: &NodeName) -> Vec<u64> {
        let Some(peer) = self.by_name.get(name) else { return vec![0] };
        let suspect = peer.suspect.as_ref().map(|suspect| suspect.incarnation);
        let mut all: Vec<u64> =
            suspect.into_iter().chain(Some(peer.incarnation).filter(|&i| i != 0)).collect();
        if all.is_empty() {
            all.push(0);
        }
        all
    }

    /// Whether `incarnation` of `name`, a member of `group`, is proved to be gone: a fresh one
    /// runs, and has not taken its place in the group.
    pub(super) fn is_gone(&self, name: &NodeName, incarnation: u64, group: u128) -> bool {
        self.by_name.get(name).is_some_and(|peer| {
            peer.incarnation != 0
                && peer.incarnation != incarnation
                && peer.standing != Some(Standing::Member(group))
        })
    }
}

impl Peer {
    /// Whether the known incarnation belongs to another process than the one that sent `presence`.
    fn is_rival_of(&self, presence: &Presence) -> bool {
        self.incarnation != 0 && self.process.id != presence.process.id
    }

    fn take(&mut self, presence: &Presence) {
        self.process = presence.process.clone();
        self.seq = presence.seq;
        self.standing = Some(presence.standing);
        self.last_token = presence.last_token;
    }

    pub(super) fn is_fresh(&self, now: Instant, within: Duration) -> bool {
        self.incarnation != 0 && now.since(self.heard) <= within
    }
}

impl Process {
    /// Whether this process keeps a name that both claim: the one that started first.
    fn is_before(&self, other: &Self) -> bool {
        (self.started, self.id) < (other.started, other.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> NodeName {
        NodeName::new("b").unwrap()
    }

    fn presence(seq: u64, challenge: u64, echo: u64) -> Presence {
        let process = Process { id: 1, ..Process::default() };
        Presence { seq, standing: Standing::Free, last_token: 0, challenge, echo, process }
    }

    #[test]
    fn an_incarnation_counts_only_once_it_has_answered_a_challenge() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        let first = peers.presence(now, &name(), 7, &presence(1, 1, 0), true, |_| false);
        assert_eq!(first, Some(Reply::of(true, false)));
        let (challenge, echo) = peers.words(&name(), 7, false);
        assert_eq!(echo, 1);
        let late = peers.presence(now, &name(), 7, &presence(2, 1, challenge - 1), true, |_| false);
        assert!(!late.unwrap().verified, "an old echo proves nothing");
        let other = peers.presence(now, &name(), 7, &presence(2, 1, challenge), false, |_| false);
        assert!(!other.unwrap().verified, "an answer to a former self proves nothing");
        let answered = peers.presence(now, &name(), 7, &presence(2, 1, challenge), true, |_| false);
        assert!(answered.unwrap().verified);
    }

    #[test]
    fn a_late_frame_of_an_old_incarnation_does_not_prove_the_new_one_gone() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        peers.admitted(now, &name(), 8);
        peers.presence(now, &name(), 7, &presence(1, 0, 0), true, |_| false);
        assert!(!peers.is_gone(&name(), 8, 1));
    }

    #[test]
    fn a_verified_incarnation_outside_the_group_proves_the_member_gone() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        peers.admitted(now, &name(), 7);
        peers.presence(now, &name(), 8, &presence(1, 0, 0), true, |_| false);
        let (challenge, _) = peers.words(&name(), 8, false);
        let later = now.after(RIVAL_PATIENCE);
        peers.presence(later, &name(), 8, &presence(2, 0, challenge), true, |_| false);
        assert!(peers.is_gone(&name(), 7, 1));
        let inside = Presence { standing: Standing::Member(1), ..presence(3, 0, 0) };
        peers.presence(now, &name(), 8, &inside, true, |_| false);
        assert!(!peers.is_gone(&name(), 7, 1), "it has taken the old one's place");
    }

    #[test]
    fn strangers_cost_bounded_memory_and_are_forgotten() {
        let mut peers = Peers::default();
        let at = |s| Instant::from_origin(Duration::from_secs(s));
        let stranger = |number| NodeName::new(format!("stranger-{number}")).unwrap();
        for number in 0..PEERS_MAX {
            assert!(
                peers
                    .presence(at(1), &stranger(number), 7, &presence(1, 1, 0), true, |_| false)
                    .is_some()
            );
        }
        let late = stranger(PEERS_MAX);
        assert_eq!(peers.presence(at(2), &late, 7, &presence(1, 1, 0), true, |_| false), None);
        assert!(
            peers.presence(at(50), &stranger(0), 7, &presence(2, 1, 0), true, |_| false).is_some()
        );
        peers.forget_silent(at(70), Duration::from_secs(60));
        assert_eq!(peers.iter().count(), 1, "who still speaks is not forgotten");
        assert!(peers.presence(at(70), &late, 7, &presence(1, 1, 0), true, |_| false).is_some());
        peers.forget_silent(at(110), Duration::from_secs(60));
        assert!(peers.get(&stranger(0)).is_none(), "it spoke a minute ago");
    }

    #[test]
    fn only_the_incarnation_that_is_known_to_run_keeps_a_process_heard() {
        let (mut peers, at) = (Peers::default(), |s| Instant::from_origin(Duration::from_secs(s)));
        let second = Duration::from_secs(1);
        peers.admitted(at(10), &name(), 7);
        let fresh = |peers: &Peers, s| peers.get(&name()).unwrap().is_fresh(at(s), second);
        assert!(fresh(&peers, 11) && !fresh(&peers, 12));
        peers.heard(at(12), &name(), 6);
        assert!(!fresh(&peers, 12), "a late frame of a former self");
        peers.heard(at(12), &name(), 7);
        assert!(fresh(&peers, 13));
        // The group admits what it has admitted: no news.
        peers.presence(at(13), &name(), 7, &presence(5, 3, 0), true, |_| false);
        peers.admitted(at(13), &name(), 7);
        assert_eq!(peers.words(&name(), 7, false).1, 3, "its challenge is still to be echoed");
        peers.admitted(at(20), &name(), 8);
        assert_eq!(peers.get(&name()).unwrap().incarnation, 8);
        assert!(fresh(&peers, 21), "the leader has verified it");
    }

    #[test]
    fn who_was_never_verified_is_not_fresh() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        peers.presence(now, &name(), 7, &presence(1, 1, 0), true, |_| false);
        assert!(!peers.get(&name()).unwrap().is_fresh(now, Duration::from_secs(1)));
    }

    #[test]
    fn a_challenge_is_answered_once_and_an_older_presence_changes_nothing() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        peers.admitted(now, &name(), 7);
        let mut says = |seq, challenge, last_token| {
            let presence = Presence { last_token, ..presence(seq, challenge, 0) };
            let reply = peers.presence(now, &name(), 7, &presence, true, |_| false).unwrap();
            (reply.answer, peers.get(&name()).unwrap().last_token)
        };
        assert_eq!(says(2, 4, 20), (true, 20));
        assert_eq!(says(2, 4, 99), (false, 20), "a copy");
        assert_eq!(says(1, 3, 10), (false, 20), "a late frame");
        assert_eq!(says(3, 5, 30), (true, 30));
    }

    #[test]
    fn who_takes_a_name_over_is_echoed_what_it_asked_before_it_was_verified() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        peers.presence(now, &name(), 7, &presence(1, 6, 0), true, |_| false);
        let (challenge, _) = peers.words(&name(), 7, false);
        peers.presence(now, &name(), 7, &presence(2, 0, challenge), true, |_| false);
        assert_eq!(peers.words(&name(), 7, false).1, 6);
        let (first, _) = peers.words(&name(), 7, true);
        let (second, _) = peers.words(&name(), 7, true);
        assert!(second > first, "each asking is a fresh challenge");
    }

    #[test]
    fn who_has_taken_a_name_over_is_heard_from_then_on() {
        let (mut peers, at) = (Peers::default(), |s| Instant::from_origin(Duration::from_secs(s)));
        peers.presence(at(10), &name(), 7, &presence(1, 1, 0), true, |_| false);
        let (challenge, _) = peers.words(&name(), 7, false);
        peers.presence(at(20), &name(), 7, &presence(2, 1, challenge), true, |_| false);
        assert_eq!(peers.get(&name()).unwrap().heard, at(20));
        assert!(peers.get(&name()).unwrap().is_fresh(at(21), Duration::from_secs(1)));
    }

    #[test]
    fn a_name_is_talked_to_under_each_incarnation_that_may_run() {
        let (mut peers, now) = (Peers::default(), Instant::default());
        assert_eq!(peers.incarnations(&name()), [0], "whoever it is");
        peers.words(&name(), 0, true);
        assert_eq!(peers.incarnations(&name()), [0], "asked, and not heard");
        peers.presence(now, &name(), 7, &presence(1, 1, 0), true, |_| false);
        assert_eq!(peers.incarnations(&name()), [7], "it has not answered yet");
        let (challenge, _) = peers.words(&name(), 7, false);
        peers.presence(now, &name(), 7, &presence(2, 1, challenge), true, |_| false);
        assert_eq!(peers.incarnations(&name()), [7]);
        peers.presence(now, &name(), 8, &presence(1, 1, 0), true, |_| false);
        assert_eq!(peers.incarnations(&name()), [8, 7]);
    }

    /// A process `id` claims the name of process 1, which is known as incarnation 7 and answers.
    fn claim_of(id: u64, is_member: bool) -> (Peers, Option<Claim>) {
        let (mut peers, now) = (Peers::default(), Instant::default());
        let says = |peers: &mut Peers, incarnation, id, seq, echo| {
            let process = Process { id, started: id, ..Process::default() };
            let presence = Presence { process, ..presence(seq, 0, echo) };
            peers.presence(now, &name(), incarnation, &presence, true, |_| is_member).unwrap()
        };
        says(&mut peers, 7, 5, 1, 0);
        let (challenge, _) = peers.words(&name(), 7, false);
        assert!(says(&mut peers, 7, 5, 2, challenge).verified);
        assert_eq!(says(&mut peers, 8, id, 1, 0).claim, Some(Claim::Pending { rival: 7 }));
        let (challenge, _) = peers.words(&name(), 8, false);
        let asked = says(&mut peers, 8, id, 2, challenge);
        assert_eq!((asked.verified, asked.claim), (false, Some(Claim::Pending { rival: 7 })));
        let (challenge, _) = peers.words(&name(), 7, true);
        assert!(says(&mut peers, 7, 5, 3, challenge).verified);
        let claim = says(&mut peers, 8, id, 3, 0).claim;
        (peers, claim)
    }

    #[test]
    fn later_process_is_refused_a_name_in_use() {
        let by = Process { id: 5, started: 5, ..Process::default() };
        let (peers, claim) = claim_of(6, false);
        assert_eq!(claim, Some(Claim::Refused { rival: 7, by, first: true }));
        assert_eq!(peers.get(&name()).unwrap().incarnation, 7);
    }

    #[test]
    fn earlier_process_takes_a_name_unless_a_group_has_admitted_it() {
        let (peers, claim) = claim_of(4, false);
        assert!(matches!(claim, Some(Claim::Granted { rival: 7, .. })));
        assert_eq!(peers.get(&name()).unwrap().incarnation, 8);
        let (peers, claim) = claim_of(4, true);
        assert!(matches!(claim, Some(Claim::Refused { rival: 7, .. })));
        assert_eq!(peers.get(&name()).unwrap().incarnation, 7);
    }
}
