//! A group of members, and an attacker that sends it frames.

use std::time::Duration;

use bytes::Bytes;
use gaggle_strategies::{LockOptions, clock::Clock as _, lock_table::LockTable};

use super::{
    clock::MS,
    event::Event,
    plan::{Clocks, FaultPlan, NetworkPlan, Plan},
    process::Process,
    world::World,
};

/// The most actions of one run.
const ACTS_MAX: usize = 64;
/// Frames kept, to be sent again.
const KEPT: usize = 64;
/// A group without faults has formed by then.
const FORMED_BY: u64 = 20_000 * MS;

/// The actions of a run: a fuzzer that never gets anywhere looks like a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hostilities {
    /// Frames that were altered, sent again, or rubbish.
    pub frames: u64,
    /// Frames that the members counted as dropped.
    pub dropped: u64,
}

/// What an attacker has seen: who sent each frame, to whom.
#[derive(Default)]
pub(super) struct Attacker {
    seen: Vec<(usize, usize, Bytes)>,
}

impl Attacker {
    pub(super) fn see(&mut self, from: usize, to: usize, frame: &Bytes) {
        self.seen.push((from, to, frame.clone()));
        let surplus = self.seen.len().saturating_sub(KEPT);
        self.seen.drain(..surplus);
    }
}

/// Forms a group of one to three members, and does to it what `data` says: calls, time, restarts,
/// and frames that are altered, sent again, sent in another's name, or rubbish.
///
/// # Panics
///
/// When a member panics, or holds a table that is broken.
#[must_use]
pub fn attack(data: &[u8]) -> Hostilities {
    let mut data = Data(data);
    let members = [3, 3, 2, 1][data.below(4)];
    let mut world = World::new(calm(0, members), false);
    world.attacker = Some(Attacker::default());
    assert!(world.run_until(FORMED_BY, World::is_settled), "no group has formed");
    let mut done = Hostilities::default();
    for _ in 0..ACTS_MAX {
        if data.0.is_empty() {
            break;
        }
        done.frames += u64::from(act(&mut world, &mut data));
        check(&world);
    }
    pass(&mut world, 100);
    check(&world);
    let members = world.processes().filter_map(Process::member);
    done.dropped = members.map(|member| member.frames_dropped()).sum();
    done
}

/// A plan without faults and without clients.
pub(super) fn calm(seed: u64, members: usize) -> Plan {
    let mut plan = Plan::generate(seed, Clocks::WithinBound);
    (plan.members, plan.clients, plan.drifts) = (members, 0, false);
    plan.faults = FaultPlan::default();
    plan.network = NetworkPlan { delay: (MS, MS), in_order: true, ..NetworkPlan::default() };
    plan
}

/// Does one thing. Whether it was a frame.
fn act(world: &mut World, data: &mut Data<'_>) -> bool {
    let slot = data.below(world.slots.len());
    match data.below(16) {
        0..=2 => pass(world, u64::from(data.byte())),
        3..=5 => lock(world, slot, data),
        6 => {
            world.kill(slot);
            world.schedule(world.now() + MS, Event::Start { slot });
        }
        7 => {
            let (from, frame) = (data.below(world.slots.len()), data.slice());
            send(world, from, slot, frame.to_vec());
            return true;
        }
        _ => return again(world, slot, data),
    }
    false
}

/// An earlier frame, perhaps altered, to its receiver or to another.
fn again(world: &mut World, other: usize, data: &mut Data<'_>) -> bool {
    let attacker = world.attacker.as_ref().expect("one attacks");
    let Some((from, to, frame)) = attacker.seen.get(data.below(KEPT)).cloned() else {
        return false;
    };
    let mut frame = frame.to_vec();
    for _ in 0..data.below(4) {
        let (at, change) = (data.below(256), data.byte());
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= change;
        }
    }
    match data.below(16) {
        0 => frame.truncate(data.below(256)),
        1 => frame.extend_from_slice(data.slice()),
        _ => {}
    }
    let to = if data.below(8) == 0 { other } else { to };
    send(world, from, to, frame);
    true
}

fn send(world: &mut World, from: usize, to: usize, frame: Vec<u8>) {
    let name = world.slots[from].name.clone();
    world.schedule(world.now(), Event::Frame { to, from, name, frame: frame.into() });
    pass(world, 1);
}

/// A caller that locks, holds for a while, and unlocks.
fn lock(world: &mut World, slot: usize, data: &mut Data<'_>) {
    let Some(process) = &world.slots[slot].process else { return };
    let (strategy, clock) = (process.strategy.clone(), process.clock.clone());
    let ms = |byte: u8| Duration::from_millis(u64::from(byte));
    let (key, wait, hold) = (["k", "l"][data.below(2)], ms(data.byte()) * 4, ms(data.byte()));
    world.spawn(slot, 0, async move {
        let options = LockOptions::default().max_wait(wait);
        if let Ok(lock) = strategy.lock(key, options).await {
            clock.sleep_until(clock.now().after(hold)).await;
            let _ = strategy.unlock(&lock).await;
        }
    });
    pass(world, 1);
}

fn pass(world: &mut World, ms: u64) {
    world.run_until(world.now() + ms * MS, |_| false);
}

fn check(world: &World) {
    let members = world.processes().filter_map(Process::member);
    members.filter_map(|member| member.table()).for_each(LockTable::check);
}

/// Choices from bytes; zeros once they are used up.
struct Data<'a>(&'a [u8]);

impl<'a> Data<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Less than `bound`, which is at most 256.
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    /// At most 255 bytes, as they are.
    fn slice(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (slice, rest) = self.0.split_at(length);
        self.0 = rest;
        slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::random::Random;

    #[test]
    fn altered_frames_harm_no_member() {
        let mut all = Hostilities::default();
        for seed in 0..100 {
            let mut random = Random::new(seed, 0);
            let bytes: Vec<u8> = (0..1_000).map(|_| random.index(256) as u8).collect();
            let Hostilities { frames, dropped } = attack(&bytes);
            all.frames += frames;
            all.dropped += dropped;
        }
        assert!(all.frames > 1_000 && all.dropped > 100, "they were sent, and checked: {all:?}");
        assert!(all.dropped < all.frames, "many were near enough to be taken: {all:?}");
    }
}
