//! A cluster of real nodes that has formed, and an attacker that can send it any frame.

use std::{
    panic::resume_unwind,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{World, bytes::Choices, forge::Victim, name_of};
use crate::member::{
    tests::{ends_of_log, frames::is_frame},
    wire::{self, Header, VERSION},
};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The most actions of one run.
const ACTS_MAX: usize = 64;
/// Virtual time that one run takes at most, besides forming.
const MILLISECONDS_MAX: u64 = 3_000;
/// Frames kept, to be sent again.
const KEPT: usize = 64;

/// The actions of a run: a fuzzer that never gets anywhere looks like a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hostilities {
    /// Frames that were forged, altered or sent again.
    frames: u64,
    /// Frames that the nodes counted as dropped.
    dropped: u64,
    /// Nodes that ended by themselves: another process keeps their name.
    ended: u64,
}

/// Forms a cluster of one to three members, and does to it what `data` says: calls, time, faults,
/// and frames that are forged, altered, sent again, or rubbish.
///
/// # Panics
///
/// When a node panics, holds a table that is broken, or replies with what does not come back from
/// its own encoding.
fn run(data: &[u8]) -> Hostilities {
    let mut choices = Choices::new(data);
    let names = &NAMES[..[3, 3, 2, 1][choices.below(4)]];
    let mut world = World::new(names);
    world.run_until_ready();
    let mut run = Run { world, left: MILLISECONDS_MAX, kept: Vec::new(), sent: 0, running: 0 };
    run.running = names.len();
    for _ in 0..ACTS_MAX {
        if choices.is_empty() {
            break;
        }
        run.act(&mut choices);
        run.check();
    }
    run.pass(100);
    run.check();
    let dropped = run.world.all_nodes().map(|(_, node)| node.sizes(0).frames_dropped).sum();
    let ended = (run.running - run.world.nodes.len()) as u64;
    Hostilities { frames: run.sent, dropped, ended }
}

struct Run {
    world: World,
    left: u64,
    kept: Vec<(String, Vec<u8>)>,
    sent: u64,
    /// How many nodes would run if none had ended because of a frame.
    running: usize,
}

impl Run {
    fn act(&mut self, choices: &mut Choices<'_>) {
        self.keep();
        if self.world.nodes.is_empty() {
            return;
        }
        let one = self.name(choices);
        let other = self.peer_of(&one, choices);
        match choices.below(16) {
            0..=2 => self.pass(u64::from(choices.byte())),
            3 | 4 => {
                let wait = u64::from(choices.byte()) * 4;
                let nonce = u128::from(choices.byte() % 8);
                self.world.lock(&one, "k", nonce, wait);
            }
            5 => {
                self.world.unlock(&one, "k", u128::from(choices.byte() % 8));
            }
            6 if self.world.nodes.len() > 1 && choices.flag() => {
                self.world.kill(&one);
                self.world.start(&one);
            }
            6 if choices.flag() => self.world.cut_off(&one),
            6 => self.world.heal(),
            7 => self.inject(&one, &other, choices.slice()),
            8 | 9 => self.again(&one, choices),
            _ => {
                let frame = self.forge(&one, &other, choices);
                self.inject(&one, &other, &frame);
                if choices.flag() {
                    self.pass(1);
                }
            }
        }
    }

    fn name(&self, choices: &mut Choices<'_>) -> String {
        let at = choices.below(self.world.nodes.len());
        self.world.nodes.keys().nth(at).expect("the place is in the map").clone()
    }

    /// Another node, if there is one: it may write to `name`.
    fn peer_of(&self, name: &str, choices: &mut Choices<'_>) -> String {
        let others: Vec<&String> = self.world.nodes.keys().filter(|n| *n != name).collect();
        let at = choices.below(others.len());
        others.get(at).map_or_else(|| name.to_owned(), |other| (*other).clone())
    }

    fn pass(&mut self, ms: u64) {
        let ms = ms.min(self.left);
        self.left -= ms;
        self.world.run(ms);
    }

    fn keep(&mut self) {
        let frames = self.world.frames.iter().rev().take(KEPT);
        self.kept.extend(frames.map(|(_, from, _, frame)| (from.clone(), frame.clone())));
        let from = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..from);
    }

    fn inject(&mut self, to: &str, from: &str, frame: &[u8]) {
        self.sent += 1;
        let now = self.world.now;
        self.world.node(to).receive(now, &name_of(from), frame);
        let before = self.world.frames.len();
        self.world.flush(to);
        for (.., reply) in self.world.frames.iter().skip(before) {
            assert!(is_frame(reply), "a node's frame decodes");
        }
    }

    /// An earlier frame, to any member, perhaps altered.
    fn again(&mut self, to: &str, choices: &mut Choices<'_>) {
        let Some((from, mut frame)) = self.kept.get(choices.below(KEPT)).cloned() else { return };
        for _ in 0..choices.below(4) {
            let at = choices.below(256);
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= choices.byte();
            }
        }
        if choices.below(8) == 0 {
            frame.truncate(choices.below(256));
        }
        self.inject(to, &from, &frame);
    }

    /// A frame in the name of `from` with bodies that are nearly right.
    fn forge(&self, to: &str, from: &str, choices: &mut Choices<'_>) -> Vec<u8> {
        let all = self.world.all_nodes().map(|(name, node)| (name.clone(), node.incarnation()));
        let node = &self.world.nodes[to].node;
        let (me, group) = (node.incarnation(), node.group());
        let (last, committed) = group.map_or((0, 0), ends_of_log);
        let victim = Victim {
            me,
            from: self.world.nodes[from].node.incarnation(),
            group: group.map_or(7, |group| group.id()),
            term: group.map_or(1, |group| group.term()),
            last,
            committed,
            table: group.map(|group| group.table()),
            all: all.collect(),
        };
        let header = Header {
            version: VERSION,
            cluster: "test".into(),
            from: if rare(choices) { choices.near(0) } else { victim.from },
            to: if rare(choices) { choices.near(0) } else { me },
            group: if !rare(choices) { victim.group } else { u128::from(choices.byte()) },
        };
        let mut frame = wire::encode(&header);
        for _ in 0..=choices.below(3) {
            frame.extend(wire::encode(&victim.body(choices)));
        }
        if rare(choices) {
            frame.extend_from_slice(choices.slice());
        }
        frame
    }

    fn check(&self) {
        for (_, node) in self.world.all_nodes() {
            if let Some(group) = node.group() {
                group.table().check();
            }
        }
    }
}

fn rare(choices: &mut Choices<'_>) -> bool {
    choices.below(32) == 1
}

/// Hundreds of times as long as all of it takes: a node that never ends its turn ends the test.
const PATIENCE: Duration = Duration::from_secs(300);

/// Attacks that once harmed a node.
#[test]
fn known_attacks_harm_no_live_node() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/member/tests/world/attacks");
    for file in std::fs::read_dir(folder).expect("it is part of the package") {
        let attack = std::fs::read(file.expect("it can be listed").path());
        run(&attack.expect("it can be read"));
    }
}

/// `GAGGLE_SEED=<seed>` generates the same bytes again.
#[test]
fn forged_frames_harm_no_live_node() {
    let seed = std::env::var("GAGGLE_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("a number"));
    println!(
        "replay: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --lib member::tests::world::hostile"
    );
    let (done, finished) = channel();
    let runs = thread::spawn(move || done.send(run_all(seed)));
    let all = finished.recv_timeout(PATIENCE).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => panic!("a node does not end its turn"),
        RecvTimeoutError::Disconnected => resume_unwind(runs.join().expect_err("it panicked")),
    });
    println!("{all:?}");
    assert!(all.frames > 1_000 && all.dropped > 100, "they were sent, and checked: {all:?}");
    assert!(all.dropped < all.frames, "many were near enough to be taken: {all:?}");
}

fn run_all(seed: u64) -> Hostilities {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut all = Hostilities::default();
    for _ in 0..300 {
        let mut bytes = vec![0; rng.random_range(0..2_000)];
        rng.fill(&mut bytes[..]);
        let Hostilities { frames, dropped, ended } = run(&bytes);
        all.frames += frames;
        all.dropped += dropped;
        all.ended += ended;
    }
    all
}
