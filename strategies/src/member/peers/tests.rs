//! Which incarnation of a name counts, and which of two processes keeps it.

use super::*;

fn name() -> NodeName {
    NodeName::new("b").unwrap()
}

fn presence(seq: u64, challenge: u64, echo: u64) -> Presence {
    let process = Process { id: 1, ..Process::default() };
    let membership_state = MembershipState::Free;
    let (members, times) = (vec![], Times::default());
    Presence { seq, membership_state, last_token: 0, challenge, echo, process, members, times }
}

#[test]
fn challenge_verifies_an_incarnation() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    let first = peers.presence(now, &name(), 7, &presence(1, 1, 0), true, |_| false);
    assert_eq!(first, Reply::of(true, false));
    let (challenge, echo) = peers.challenge_and_echo(&name(), 7, false);
    assert_eq!(echo, 1);
    let late = peers.presence(now, &name(), 7, &presence(2, 1, challenge - 1), true, |_| false);
    assert!(!late.verified, "an old echo proves nothing");
    let other = peers.presence(now, &name(), 7, &presence(2, 1, challenge), false, |_| false);
    assert!(!other.verified, "a reply to an old incarnation proves nothing");
    let replied = peers.presence(now, &name(), 7, &presence(2, 1, challenge), true, |_| false);
    assert!(replied.verified);
}

#[test]
fn late_old_frame_proves_nothing() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    peers.admitted(now, &name(), 8);
    peers.presence(now, &name(), 7, &presence(1, 0, 0), true, |_| false);
    assert!(!peers.is_replaced(&name(), 8, 1));
}

#[test]
fn verified_incarnation_ends_the_former() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    peers.admitted(now, &name(), 7);
    peers.presence(now, &name(), 8, &presence(1, 0, 0), true, |_| false);
    let (challenge, _) = peers.challenge_and_echo(&name(), 8, false);
    let later = now.after(RIVAL_PATIENCE);
    peers.presence(later, &name(), 8, &presence(2, 0, challenge), true, |_| false);
    assert!(peers.is_replaced(&name(), 7, 1));
    let inside = Presence { membership_state: MembershipState::Member(1), ..presence(3, 0, 0) };
    peers.presence(now, &name(), 8, &inside, true, |_| false);
    assert!(!peers.is_replaced(&name(), 7, 1), "it has taken the old one's place");
}

#[test]
fn frames_keep_a_known_peer_fresh() {
    let (mut peers, at) = (Peers::default(), |s| Instant::from_origin(Duration::from_secs(s)));
    let second = Duration::from_secs(1);
    peers.admitted(at(10), &name(), 7);
    let fresh = |peers: &Peers, s| peers.get(&name()).unwrap().is_fresh(at(s), second);
    assert!(fresh(&peers, 11) && !fresh(&peers, 12));
    peers.record_frame(at(12), &name(), 6);
    assert!(!fresh(&peers, 12), "a late frame of an old incarnation");
    peers.record_frame(at(12), &name(), 7);
    assert!(fresh(&peers, 13));
    // The group admits what it has admitted: no change.
    peers.presence(at(13), &name(), 7, &presence(5, 3, 0), true, |_| false);
    peers.admitted(at(13), &name(), 7);
    assert_eq!(
        peers.challenge_and_echo(&name(), 7, false).1,
        3,
        "its challenge is still to be echoed"
    );
    peers.admitted(at(20), &name(), 8);
    assert_eq!(peers.get(&name()).unwrap().incarnation, 8);
    assert!(fresh(&peers, 21), "the leader has verified it");
}

#[test]
fn unverified_incarnation_is_not_fresh() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    peers.presence(now, &name(), 7, &presence(1, 1, 0), true, |_| false);
    assert!(!peers.get(&name()).unwrap().is_fresh(now, Duration::from_secs(1)));
}

#[test]
fn old_challenge_and_presence_are_ignored() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    peers.admitted(now, &name(), 7);
    let mut says = |seq, challenge, last_token| {
        let presence = Presence { last_token, ..presence(seq, challenge, 0) };
        let reply = peers.presence(now, &name(), 7, &presence, true, |_| false);
        (reply.is_due, peers.get(&name()).unwrap().last_token)
    };
    assert_eq!(says(2, 4, 20), (true, 20));
    assert_eq!(says(2, 4, 99), (false, 20), "a copy");
    assert_eq!(says(1, 3, 10), (false, 20), "a late frame");
    assert_eq!(says(3, 5, 30), (true, 30));
}

#[test]
fn early_challenge_is_echoed_later() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    peers.presence(now, &name(), 7, &presence(1, 6, 0), true, |_| false);
    let (challenge, _) = peers.challenge_and_echo(&name(), 7, false);
    peers.presence(now, &name(), 7, &presence(2, 0, challenge), true, |_| false);
    assert_eq!(peers.challenge_and_echo(&name(), 7, false).1, 6);
    let (first, _) = peers.challenge_and_echo(&name(), 7, true);
    let (second, _) = peers.challenge_and_echo(&name(), 7, true);
    assert!(second > first, "each asking is a fresh challenge");
}

#[test]
fn new_incarnation_is_fresh_once_verified() {
    let (mut peers, at) = (Peers::default(), |s| Instant::from_origin(Duration::from_secs(s)));
    peers.presence(at(10), &name(), 7, &presence(1, 1, 0), true, |_| false);
    let (challenge, _) = peers.challenge_and_echo(&name(), 7, false);
    peers.presence(at(20), &name(), 7, &presence(2, 1, challenge), true, |_| false);
    assert_eq!(peers.get(&name()).unwrap().last_heard_at, at(20));
    assert!(peers.get(&name()).unwrap().is_fresh(at(21), Duration::from_secs(1)));
}

#[test]
fn each_possible_incarnation_gets_presence() {
    let (mut peers, now) = (Peers::default(), Instant::default());
    assert_eq!(peers.incarnations(&name()), [0], "of any process");
    peers.challenge_and_echo(&name(), 0, true);
    assert_eq!(peers.incarnations(&name()), [0], "asked, and not heard");
    peers.presence(now, &name(), 7, &presence(1, 1, 0), true, |_| false);
    assert_eq!(peers.incarnations(&name()), [7], "it has not replied yet");
    let (challenge, _) = peers.challenge_and_echo(&name(), 7, false);
    peers.presence(now, &name(), 7, &presence(2, 1, challenge), true, |_| false);
    assert_eq!(peers.incarnations(&name()), [7]);
    peers.presence(now, &name(), 8, &presence(1, 1, 0), true, |_| false);
    assert_eq!(peers.incarnations(&name()), [8, 7]);
}

/// A process `id` takes the name of process 1, which is known as incarnation 7 and replies.
fn takeover_by(id: u64, is_member: bool) -> (Peers, Option<Takeover>) {
    let (mut peers, now) = (Peers::default(), Instant::default());
    let says = |peers: &mut Peers, incarnation, id, seq, echo| {
        let process = Process { id, started: id, ..Process::default() };
        let presence = Presence { process, ..presence(seq, 0, echo) };
        peers.presence(now, &name(), incarnation, &presence, true, |_| is_member)
    };
    says(&mut peers, 7, 5, 1, 0);
    let (challenge, _) = peers.challenge_and_echo(&name(), 7, false);
    assert!(says(&mut peers, 7, 5, 2, challenge).verified);
    assert_eq!(says(&mut peers, 8, id, 1, 0).takeover, Some(Takeover::Pending { rival: 7 }));
    let (challenge, _) = peers.challenge_and_echo(&name(), 8, false);
    let asked = says(&mut peers, 8, id, 2, challenge);
    assert_eq!((asked.verified, asked.takeover), (false, Some(Takeover::Pending { rival: 7 })));
    let (challenge, _) = peers.challenge_and_echo(&name(), 7, true);
    assert!(says(&mut peers, 7, 5, 3, challenge).verified);
    let takeover = says(&mut peers, 8, id, 3, 0).takeover;
    (peers, takeover)
}

#[test]
fn incarnation_that_left_keeps_no_name() {
    for (left, verified) in [(6, false), (7, true)] {
        let (mut peers, now) = (Peers::default(), Instant::default());
        peers.admitted(now, &name(), 7);
        peers.left(&name(), left);
        let first = peers.presence(now, &name(), 8, &presence(1, 0, 0), true, |_| true);
        assert_eq!((first.verified, first.takeover.is_none()), (false, verified));
        let (challenge, _) = peers.challenge_and_echo(&name(), 8, false);
        let presence = presence(2, 0, challenge);
        let replied = peers.presence(now, &name(), 8, &presence, true, |_| true);
        assert_eq!((replied.verified, replied.takeover.is_none()), (verified, verified));
    }
}

#[test]
fn later_process_is_refused_a_name_in_use() {
    let by = Process { id: 5, started: 5, ..Process::default() };
    let (peers, takeover) = takeover_by(6, false);
    assert_eq!(takeover, Some(Takeover::Refused { rival: 7, by, first: true }));
    assert_eq!(peers.get(&name()).unwrap().incarnation, 7);
}

#[test]
fn earlier_process_takes_unadmitted_name() {
    let (peers, takeover) = takeover_by(4, false);
    assert!(matches!(takeover, Some(Takeover::Granted { rival: 7, .. })));
    assert_eq!(peers.get(&name()).unwrap().incarnation, 8);
    let (peers, takeover) = takeover_by(4, true);
    assert!(matches!(takeover, Some(Takeover::Refused { rival: 7, .. })));
    assert_eq!(peers.get(&name()).unwrap().incarnation, 7);
}
