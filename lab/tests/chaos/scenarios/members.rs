//! Three members, three processes: over TCP or TLS in three network namespaces, or over a Redis
//! channel.

use std::{net::SocketAddr, thread::sleep, time::Duration};

use gaggle_fixtures::Certificates;
use rand::{RngExt, rngs::StdRng};

use crate::{
    Plan, Wire,
    crew::{Crew, LEASE, Memory, PROGRESS_BOUND, Post},
    network::{Cut, Network},
    protocol::{Event, Order, Resource},
    signals::{self, Signal},
    store::{Protected, Trap},
    tally::Tally,
    worker::now,
};

const CLUSTER: &str = "chaos";
const NAMES: [&str; 3] = ["a", "b", "c"];
const PORT: u16 = 7001;
/// A member reads its certificate every 10 s.
const RELOADED_WITHIN: Duration = Duration::from_secs(12);

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillLeader,
    KillFollower,
    KillHolder,
    KillMajority,
    PauseHolder,
    PauseLeader,
    OneWayToFollower,
    OneWayToLeader,
    IsolateLeader,
    ReplaceCertificates,
}

/// The faults of every member over TCP. The first six need no network.
const ALL: [Fault; 9] = [
    Fault::KillLeader,
    Fault::KillFollower,
    Fault::KillHolder,
    Fault::KillMajority,
    Fault::PauseHolder,
    Fault::PauseLeader,
    Fault::OneWayToFollower,
    Fault::OneWayToLeader,
    Fault::IsolateLeader,
];

/// The place of members that are reached over TCP.
#[derive(Clone, Copy)]
struct Place<'a> {
    network: &'a Network,
    /// With TLS.
    certificates: Option<&'a Certificates>,
}

/// The members, each in its own namespace.
fn posts(policy: &str, Place { network, certificates }: Place<'_>) -> Vec<Post> {
    let address = |node: usize| SocketAddr::from((network.address(node), PORT));
    let peers = (0..NAMES.len()).map(|node| format!("{}@{}", NAMES[node], address(node)));
    let peers = peers.collect::<Vec<_>>().join(",");
    let post = |(node, name): (usize, &&str)| {
        // The network is the test's own namespace.
        let keys = certificates.map_or_else(|| "insecure=true".into(), |all| all.url_options(name));
        let (at, namespace) = (address(node), Some(network.namespace(node).into()));
        let url = format!("{policy}+tcp://{at}?cluster={CLUSTER}&name={name}&peers={peers}&{keys}");
        Post { name: (*name).into(), namespace, url }
    };
    NAMES.iter().enumerate().map(post).collect()
}

fn issued() -> Certificates {
    let certificates = Certificates::new();
    certificates.issue_members(CLUSTER, &NAMES);
    certificates
}

/// Posts of three members whose frames go through one Redis.
pub(super) fn posts_over_redis(policy: &str, url: &str) -> Vec<Post> {
    let members = NAMES.join(",");
    let post = |name: &str| {
        let url = format!("{policy}+{url}?cluster={CLUSTER}&name={name}&members={members}");
        Post { name: name.into(), namespace: None, url }
    };
    NAMES.into_iter().map(post).collect()
}

/// Every fault of processes and network.
pub(crate) fn over_tcp(policy: &str, wire: Wire, plan: &mut Plan) -> Tally {
    let network = Network::of(NAMES.len());
    let certificates = (wire == Wire::Tls).then(issued);
    let place = Place { network: &network, certificates: certificates.as_ref() };
    let mut crew = Crew::start(posts(policy, place));
    let replace = certificates.as_ref().map(|_| Fault::ReplaceCertificates);
    let faults: Vec<Fault> = ALL.into_iter().chain(replace).collect();
    plan.each(&faults, |fault, random| {
        settle(&mut crew);
        inject(fault, &mut crew, Some(place), random);
        crew.tally.add("faults", 1);
    });
    finish(crew)
}

/// All members recover, agree on a leader and exit. Returns the figures of the run.
pub(super) fn finish(mut crew: Crew) -> Tally {
    crew.heal();
    agree(&mut crew);
    crew.close();
    assert!(crew.tally.of("pauses past the lease") > 0, "no holder was paused");
    crew.check(Memory::Kept)
}

/// A majority dies while the survivor holds a lease that outlasts the forming of a new group. Its
/// guard is lost before the new group grants the lock, and its late write is refused.
pub(crate) fn re_forms(policy: &str, plan: &mut Plan) -> Tally {
    let network = Network::of(NAMES.len());
    let place = Place { network: &network, certificates: None };
    let mut crew = Crew::start_with(posts(policy, place), Duration::from_secs(20));
    crew.progress(0).unwrap();
    plan.each(&[()], |(), _| {
        let (survivor, trapped) = crew.trap(Trap::Hold);
        let plain = crew.store.seen(Resource::Counter);
        let checked = crew.store.seen(Resource::CheckedCounter);
        lose_majority(&mut crew, survivor);
        let newer = |seen: &Protected| seen.applied > plain.applied;
        let written = crew.store.wait(Resource::Counter, PROGRESS_BOUND, newer);
        let survivor = crew.processes[survivor].instance;
        let lost = crew.log.lock().was_lost(survivor, trapped.at);
        crew.store.release();
        assert!(written, "no new group grants the lock");
        assert!(lost, "the survivor's guard is not lost, and another holds the lock");
        let refused = |seen: &Protected| seen.refused > checked.refused;
        let refused = crew.store.wait(Resource::CheckedCounter, PROGRESS_BOUND, refused);
        assert!(refused, "the survivor's late write was not refused");
        crew.progress(now()).unwrap();
        crew.log.lock().formings.push((trapped.at, now()));
        crew.tally.add("faults", 1);
    });
    crew.heal();
    agree(&mut crew);
    crew.close();
    crew.check(Memory::Kept)
}

/// Process faults, for members on any channel.
pub(super) fn kill_and_pause(crew: &mut Crew, random: &mut StdRng) {
    let mut faults = ALL[..6].to_vec();
    crate::shuffle(&mut faults, random);
    for fault in faults {
        settle(crew);
        inject(fault, crew, None, random);
        crew.tally.add("faults", 1);
    }
}

fn inject(fault: Fault, crew: &mut Crew, place: Option<Place<'_>>, random: &mut StdRng) {
    let network = || place.expect("only over TCP").network;
    let pause = Duration::from_millis(random.random_range(0..300));
    let cut_for = Duration::from_millis(random.random_range(700..1500));
    match fault {
        Fault::KillLeader => {
            let leader = leader(crew);
            crew.kill(leader, pause);
            crew.tally.add("leaders killed", 1);
        }
        Fault::KillFollower => {
            let follower = another(leader(crew), random);
            crew.kill(follower, pause);
        }
        Fault::KillHolder => crew.kill_holder(pause),
        Fault::KillMajority => kill_majority(crew, random),
        Fault::PauseHolder => crew.pause_holder(),
        Fault::PauseLeader => pause_leader(crew),
        Fault::OneWayToFollower => {
            let leader = leader(crew);
            let cut = network().cut(leader, another(leader, random));
            keep(crew, "one-way partitions", cut_for, vec![cut]);
        }
        Fault::OneWayToLeader => {
            let leader = leader(crew);
            let cuts = others(leader).map(|other| network().cut(other, leader)).collect();
            keep(crew, "one-way partitions", cut_for, cuts);
        }
        Fault::IsolateLeader => {
            let leader = leader(crew);
            let both = |other| [network().cut(other, leader), network().cut(leader, other)];
            let cuts = others(leader).flat_map(both).collect();
            keep(crew, "two-way partitions", cut_for, cuts);
        }
        Fault::ReplaceCertificates => {
            let certificates = place.and_then(|place| place.certificates).expect("only over TLS");
            replace(certificates);
            sleep(RELOADED_WITHIN);
            // With the new ones alone it is let in again.
            let follower = another(leader(crew), random);
            crew.kill(follower, pause);
            crew.tally.add("certificates replaced", 1);
        }
    }
}

fn others(than: usize) -> impl Iterator<Item = usize> {
    (0..NAMES.len()).filter(move |index| *index != than)
}

fn another(than: usize, random: &mut StdRng) -> usize {
    (than + random.random_range(1..NAMES.len())) % NAMES.len()
}

fn keep(crew: &mut Crew, kind: &'static str, cut_for: Duration, cuts: Vec<Cut<'_>>) {
    sleep(cut_for);
    let packets = cuts.into_iter().map(Cut::lift).sum();
    assert!(packets > 0, "a partition dropped nothing: it was none");
    crew.tally.add("packets dropped", packets);
    crew.tally.add(kind, 1);
}

/// Another authority signs every certificate.
fn replace(certificates: &Certificates) {
    let by = issued();
    for name in NAMES.into_iter().chain(["ca"]) {
        certificates.replace(&format!("{name}-key.pem"), &by);
        certificates.replace(&format!("{name}.pem"), &by);
    }
}

/// Two of three die at once: the table is lost, and a new group forms.
fn kill_majority(crew: &mut Crew, random: &mut StdRng) {
    let survivor = random.random_range(0..NAMES.len());
    let began = now();
    lose_majority(crew, survivor);
    // The new group works before the next fault.
    crew.progress(now()).unwrap();
    crew.log.lock().formings.push((began, now()));
}

fn lose_majority(crew: &mut Crew, survivor: usize) {
    for index in others(survivor) {
        let status = crew.processes[index].kill();
        crew.was_killed(status);
    }
    others(survivor).for_each(|index| crew.restart(index));
    crew.tally.add("majorities killed", 1);
}

/// Longer than the lease and than an election.
fn pause_leader(crew: &mut Crew) {
    let leader = leader(crew);
    let pid = crew.processes[leader].pid();
    signals::stop(pid);
    assert!(signals::is_stopped(pid), "the stop did not happen");
    sleep(LEASE * 2);
    signals::send(pid, Signal::CONT);
    crew.tally.add("leaders paused", 1);
}

/// The leader, by its own report.
fn leader(crew: &mut Crew) -> usize {
    let until = now() + u64::try_from(PROGRESS_BOUND.as_nanos()).unwrap();
    while now() < until {
        for index in 0..crew.processes.len() {
            if status(crew, index).is_some_and(|(ready, leads, _)| ready && leads) {
                return index;
            }
        }
        sleep(Duration::from_millis(10));
    }
    panic!("no leader within {PROGRESS_BOUND:?}");
}

fn status(crew: &mut Crew, index: usize) -> Option<(bool, bool, Option<String>)> {
    let process = &mut crew.processes[index];
    process.order(&Order::Status);
    let status = |event| match event {
        Event::Status { ready, leads, leader } => Some((ready, leads, leader)),
        _ => None,
    };
    process.wait(Duration::from_secs(5), status).ok()
}

/// The fault before is over.
fn settle(crew: &mut Crew) {
    crew.traffic();
    agree(crew);
}

/// Waits until all members vote and know one leader. If a restarted member did not vote yet, the
/// next fault would take away the quorum.
fn agree(crew: &mut Crew) {
    let until = now() + u64::try_from(PROGRESS_BOUND.as_nanos()).unwrap();
    loop {
        let all: Vec<_> = (0..crew.processes.len()).map(|index| status(crew, index)).collect();
        let replies: Vec<_> = all.iter().flatten().collect();
        let leader = replies.first().and_then(|(_, _, leader)| leader.clone());
        let agreed = replies.len() == NAMES.len()
            && leader.is_some()
            && replies.iter().all(|(ready, _, of)| *ready && *of == leader)
            && replies.iter().filter(|(_, leads, _)| *leads).count() == 1;
        if agreed {
            return;
        }
        assert!(now() < until, "no agreed leader within {PROGRESS_BOUND:?}: {all:?}");
        sleep(Duration::from_millis(20));
    }
}
