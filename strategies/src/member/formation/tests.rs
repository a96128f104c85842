//! Pledges of one process, and which of them count, when it is invited in every wrong way.

use super::*;

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn named_abc() -> BTreeSet<NodeName> {
    [name("a"), name("b"), name("c")].into()
}

/// What `a` sends `b`, whose incarnation is 2.
fn proper() -> Forming {
    let members = [("a", 1), ("b", 2), ("c", 3)];
    let members = members.map(|(name, incarnation)| (name.to_string(), incarnation));
    let table = TableConfig { group: 9, ..TableConfig::default() };
    Forming { id: 9, members: members.into(), table }
}

/// Whether `b` pledges to it.
fn pledges(members: &BTreeSet<NodeName>, from: &str, change: impl FnOnce(&mut Forming)) -> bool {
    let outside_max_ms = proper().table.outside_max_ms;
    let mut formation = Formation::new(name("b"), members.clone(), outside_max_ms);
    let mut forming = proper();
    change(&mut forming);
    let id = forming.id;
    let body = formation.invited(
        Instant::default(),
        &name(from),
        2,
        forming,
        &Peers::default(),
        &mut Timers::default(),
    );
    assert!(body.is_none() || matches!(body, Some(Body::Pledge { forming }) if forming == id));
    assert_eq!(body.is_some(), formation.pledged_to(id).is_some());
    assert!(formation.pledged_to(id + 1).is_none(), "a pledge is to one forming");
    body.is_some()
}

#[test]
fn improper_invitation_gets_no_pledge() {
    let abc = named_abc();
    assert!(pledges(&abc, "a", |_| {}));
    assert!(!pledges(&abc, "c", |_| {}), "the lowest name invites");
    assert!(!pledges(&abc, "a", |forming| forming.id = 0));
    assert!(!pledges(&abc, "a", |forming| forming.members[1].1 = 7), "an old incarnation");
    assert!(!pledges(&abc, "a", |forming| forming.members[2].1 = 1), "two of one incarnation");
    assert!(!pledges(&abc, "a", |forming| forming.members[2].1 = 0), "no incarnation");
    assert!(!pledges(&abc, "a", |forming| drop(forming.members.pop())), "one is missing");
    let stranger = |forming: &mut Forming| forming.members.push(("d".into(), 4));
    assert!(!pledges(&abc, "a", stranger), "one too many");
    let unnamed = |forming: &mut Forming| forming.members.push((String::new(), 4));
    assert!(!pledges(&abc, "a", unnamed), "a name that is none");
    assert!(!pledges(&abc, "a", |forming| forming.table.outside_max_ms += 1));
}

#[test]
fn changed_invitation_gets_no_pledge() {
    let mut formation = Formation::new(name("b"), named_abc(), 0);
    let mut invited = |forming| {
        formation.invited(
            Instant::default(),
            &name("a"),
            2,
            forming,
            &Peers::default(),
            &mut Timers::default(),
        )
    };
    assert!(invited(proper()).is_some());
    assert!(invited(proper()).is_some(), "its reply was lost");
    assert!(invited(Forming { members: Vec::new(), ..proper() }).is_none());
    let table = TableConfig { outside_max_ms: 1, ..proper().table };
    assert!(invited(Forming { table, ..proper() }).is_none());
    assert_eq!(formation.pledged_to(9), Some(&proper()));
}

#[test]
fn resting_process_does_not_pledge() {
    let (mut formation, mut timers) =
        (Formation::new(name("b"), named_abc(), 0), Timers::default());
    formation.rest(Instant::default(), &mut timers);
    let (now, peers) = (Instant::default(), Peers::default());
    let pledge = formation.invited(now, &name("a"), 2, proper(), &peers, &mut timers);
    assert!(pledge.is_none());
}

#[test]
fn uninvited_pledge_does_not_count() {
    let mut formation = Formation::new(name("a"), named_abc(), 0);
    let (now, mut timers) = (Instant::default(), Timers::default());
    let pledged = BTreeSet::from([name("a"), name("c")]);
    formation.phase = Phase::Inviting { forming: proper(), pledged };
    assert!(formation.pledged(now, &name("b"), 2, 8, &timers).is_none(), "to another forming");
    assert!(formation.pledged(now, &name("b"), 5, 9, &timers).is_none(), "another incarnation");
    assert!(formation.pledged(now, &name("d"), 2, 9, &timers).is_none(), "another process");
    timers.set(Timer::ExistingGroup, now.after(FRESH));
    assert!(formation.pledged(now, &name("b"), 2, 9, &timers).is_none(), "beside another group");
    timers.stop(Timer::ExistingGroup);
    assert_eq!(formation.complete(now, &timers).map(|forming| forming.id), Some(9));
}

#[test]
fn named_cluster_admits_its_names_alone() {
    let formation = Formation::new(name("b"), named_abc(), 0);
    assert!(formation.admits(&name("c")) && !formation.admits(&name("d")));
}
