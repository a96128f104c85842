//! Delays, losses and partitions between nodes.

use super::{clock::MS, coverage::Coverage, plan::NetworkPlan, random::Random};

/// The network between the processes: its cut ways, and the delays and losses of frames.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) plan: NetworkPlan,
    nodes: usize,
    /// How many cuts lie on each way.
    cuts: Vec<u32>,
    /// Frames to and from a slow process take this many times as long.
    slow: Vec<u64>,
    /// When the last frame of each way arrives.
    last: Vec<u64>,
    random: Random,
}

/// Ways, by sender and receiver.
pub(super) type Ways = Vec<(usize, usize)>;

impl Network {
    pub(super) fn new(plan: NetworkPlan, nodes: usize, seed: u64) -> Self {
        let ways = nodes * nodes;
        let (cuts, slow, last) = (vec![0; ways], vec![1; nodes], vec![0; ways]);
        Self { plan, nodes, cuts, slow, last, random: Random::new(seed, 2) }
    }

    const fn place(&self, (from, to): (usize, usize)) -> usize {
        from * self.nodes + to
    }

    pub(super) const fn nodes(&self) -> usize {
        self.nodes
    }

    pub(super) fn cut(&mut self, ways: &Ways) {
        for way in ways {
            let place = self.place(*way);
            self.cuts[place] += 1;
        }
    }

    pub(super) fn reconnect(&mut self, ways: &Ways) {
        for way in ways {
            let place = self.place(*way);
            self.cuts[place] = self.cuts[place].saturating_sub(1);
        }
    }

    /// How many times as long everything takes at a slow process; once at the others.
    pub(super) fn slowness(&self, slot: usize) -> u64 {
        self.slow[slot]
    }

    pub(super) fn set_slow(&mut self, slot: usize, times: u64) {
        self.slow[slot] = times;
    }

    /// From now on nothing is cut, slow, lost or repeated.
    pub(super) fn calm(&mut self, plan: NetworkPlan) {
        self.plan = plan;
        self.cuts.fill(0);
        self.slow.fill(1);
        self.last.fill(0);
    }

    /// When the copies of a frame sent now arrive: none, one or two.
    pub(super) fn route(
        &mut self,
        now: u64,
        way: (usize, usize),
        coverage: &mut Coverage,
    ) -> [Option<u64>; 2] {
        if self.cuts[self.place(way)] > 0 {
            let back = self.cuts[self.place((way.1, way.0))] > 0;
            coverage.reach(if back { "frame cut off both ways" } else { "frame cut off one way" });
            return [None, None];
        }
        if self.random.chance(self.plan.loss) {
            coverage.reach("frame lost");
            return [None, None];
        }
        let first = self.arrival(now, way, coverage);
        let second = self.random.chance(self.plan.repeat).then(|| {
            coverage.reach("frame repeated");
            self.arrival(now, way, coverage)
        });
        [Some(first), second]
    }

    /// When a segment of a stream arrives, after the segment that arrives at `last`. Lost segments
    /// are retransmitted until they arrive.
    pub(super) fn segment(
        &mut self,
        now: u64,
        way: (usize, usize),
        last: u64,
        coverage: &mut Coverage,
    ) -> u64 {
        let mut at = now + self.delay(way, coverage);
        if self.cuts[self.place(way)] > 0 {
            coverage.reach("segment cut off");
            at += self.random.spread(1, 4_000) * MS;
        } else if self.random.chance(self.plan.loss) {
            coverage.reach("segment lost");
            at += self.random.between(200, 600) * MS;
        }
        at.max(last + 1)
    }

    fn arrival(&mut self, now: u64, way: (usize, usize), coverage: &mut Coverage) -> u64 {
        let mut arrival = now + self.delay(way, coverage);
        let place = self.place(way);
        let last = &mut self.last[place];
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

    fn delay(&mut self, way: (usize, usize), coverage: &mut Coverage) -> u64 {
        let times = self.slow[way.0].max(self.slow[way.1]);
        let usual = self.random.between(self.plan.delay.0, self.plan.delay.1);
        let mut delay = usual * times;
        if delay > usual {
            coverage.reach("frame slowed");
        }
        if self.random.chance(self.plan.spike) {
            coverage.reach("frame held up");
            delay += self.random.between(0, self.plan.spike_max);
        }
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each was counted in a hundred frames from 0 to 1.
    fn counts(network: &mut Network) -> [u64; 3] {
        let mut coverage = Coverage::default();
        for now in 0..100 {
            network.route(now, (0, 1), &mut coverage);
        }
        ["frame cut off one way", "frame cut off both ways", "frame slowed"]
            .map(|what| coverage.count(what))
    }

    #[test]
    fn cut_and_slow_frames_are_counted() {
        let mut network =
            Network::new(NetworkPlan { delay: (100, 200), ..NetworkPlan::default() }, 2, 1);
        assert_eq!(counts(&mut network), [0, 0, 0]);
        network.cut(&vec![(0, 1)]);
        assert_eq!(counts(&mut network), [100, 0, 0]);
        network.cut(&vec![(1, 0)]);
        assert_eq!(counts(&mut network), [0, 100, 0]);
        network.reconnect(&vec![(0, 1)]);
        assert_eq!(counts(&mut network), [0, 0, 0], "the other way is cut");
        network.set_slow(1, 3);
        assert_eq!(counts(&mut network), [0, 0, 100]);
    }
}
