use std::collections::BTreeMap;

use super::{coverage::Coverage, draw::Draw, plan::NetworkPlan};

/// What lies between the processes: which ways are cut, how long frames take, what becomes of them.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) plan: NetworkPlan,
    /// How many cuts lie on each way, by sender and receiver.
    cuts: BTreeMap<(usize, usize), u32>,
    /// Frames to and from a slow process take this many times as long.
    slow: BTreeMap<usize, u64>,
    /// When the last frame of each way arrives.
    last: BTreeMap<(usize, usize), u64>,
    draw: Draw,
}

/// Ways, by sender and receiver.
pub(super) type Ways = Vec<(usize, usize)>;

impl Network {
    pub(super) fn new(plan: NetworkPlan, seed: u64) -> Self {
        Self {
            plan,
            cuts: BTreeMap::new(),
            slow: BTreeMap::new(),
            last: BTreeMap::new(),
            draw: Draw::new(seed, 2),
        }
    }

    pub(super) fn cut(&mut self, ways: &Ways) {
        for way in ways {
            *self.cuts.entry(*way).or_default() += 1;
        }
    }

    pub(super) fn mend(&mut self, ways: &Ways) {
        for way in ways {
            if let Some(cuts) = self.cuts.get_mut(way) {
                *cuts = cuts.saturating_sub(1);
            }
        }
    }

    pub(super) fn set_slow(&mut self, slot: usize, times: u64) {
        self.slow.insert(slot, times);
    }

    /// From now on nothing is cut, slow, lost or repeated.
    pub(super) fn calm(&mut self, plan: NetworkPlan) {
        self.plan = plan;
        self.cuts.clear();
        self.slow.clear();
        self.last.clear();
    }

    /// When the copies of a frame sent now arrive: none, one or two.
    pub(super) fn route(
        &mut self,
        now: u64,
        (from, to): (usize, usize),
        coverage: &mut Coverage,
    ) -> Vec<u64> {
        if self.cuts.get(&(from, to)).is_some_and(|cuts| *cuts > 0) {
            return Vec::new();
        }
        if self.draw.chance(self.plan.loss) {
            coverage.reach("frame lost");
            return Vec::new();
        }
        let mut arrivals = vec![self.arrival(now, (from, to), coverage)];
        if self.draw.chance(self.plan.repeat) {
            coverage.reach("frame repeated");
            arrivals.push(self.arrival(now, (from, to), coverage));
        }
        arrivals
    }

    fn arrival(&mut self, now: u64, way: (usize, usize), coverage: &mut Coverage) -> u64 {
        let slow = |slot| self.slow.get(&slot).copied().unwrap_or(1);
        let times = slow(way.0).max(slow(way.1));
        let mut delay = self.draw.between(self.plan.delay.0, self.plan.delay.1) * times;
        if self.draw.chance(self.plan.spike) {
            coverage.reach("frame held up");
            delay += self.draw.between(0, self.plan.spike_max);
        }
        let mut arrival = now + delay;
        let last = self.last.entry(way).or_default();
        if arrival < *last {
            if self.plan.in_order {
                arrival = *last;
            } else {
                coverage.reach("frame overtaken");
            }
        }
        *last = arrival.max(*last);
        arrival
    }
}
