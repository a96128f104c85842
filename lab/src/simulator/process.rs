//! A simulated process: its engine, clock, tasks and current turn.

use std::{collections::BTreeSet, sync::Arc};

use gaggle_channels::NodeName;
use gaggle_strategies::{KeyedMutex, client::Failure, clock::Instant};

use super::{
    channel::SimChannel,
    clock::{SimClock, Stall},
    executor::TaskId,
    machine::{Member, RedisClient},
    random::Random,
    redis::Notice,
    standstill::Standstill,
    stream::Link,
};

/// A process name, and the process that runs under it now.
pub(super) struct Slot {
    pub(super) name: NodeName,
    /// Counts the processes that ran here.
    pub(super) runs: u64,
    pub(super) rate: u64,
    pub(super) process: Option<Process>,
}

/// A running process: a member, and the clients that live in it.
pub(super) struct Process {
    pub(super) run: u64,
    pub(super) strategy: Arc<dyn KeyedMutex>,
    pub(super) engine: Engine,
    pub(super) clock: Arc<SimClock>,
    pub(super) standstill: Arc<Standstill>,
    pub(super) paused_until: Option<u64>,
    pub(super) paused_at: u64,
    pub(super) turn: Option<Turn>,
    /// Tasks that were woken while the process could not run.
    pub(super) deferred: Vec<TaskId>,
    pub(super) tasks: BTreeSet<TaskId>,
    pub(super) closing: bool,
    /// Notices of force-unlocks that no turn has seen.
    pub(super) notices: Vec<Notice>,
}

/// The strategy of a process, and its way to others.
pub(super) enum Engine {
    Member { machine: Box<Member>, channel: Arc<SimChannel> },
    Redis { machine: Box<RedisClient>, link: Arc<Link> },
}

impl Engine {
    /// Runs a turn that sees arrivals up to `drained`. Returns whether there is another.
    fn step(&mut self, drained: u64) -> bool {
        match self {
            Self::Member { machine, channel } => {
                channel.show_until(drained);
                machine.step()
            }
            Self::Redis { machine, link } => {
                link.show_until(drained);
                machine.move_bytes();
                machine.step()
            }
        }
    }

    pub(super) fn next_wake(&self) -> Instant {
        match self {
            Self::Member { machine, .. } => machine.next_wake(),
            Self::Redis { machine, .. } => machine.next_wake(),
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Member { machine, .. } => machine.failure(),
            Self::Redis { machine, .. } => machine.failure(),
        }
    }

    /// How many requests are pending.
    pub(super) fn pending(&self) -> usize {
        match self {
            Self::Member { machine, .. } => machine.pending(),
            Self::Redis { machine, .. } => machine.pending(),
        }
    }

    /// Whether something has arrived that the last turn did not take.
    pub(super) fn has_arrived(&self) -> bool {
        match self {
            Self::Member { channel, .. } => channel.has_arrived(),
            Self::Redis { link, .. } => link.has_arrived(),
        }
    }
}

/// The current turn, or the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) begun: u64,
    pub(super) drained: u64,
    pub(super) ended: u64,
    /// Whether it is a stall that makes it take so long.
    pub(super) stalls: bool,
}

impl Process {
    /// Whether it is a client of Redis that is connected and stays.
    pub(super) fn is_connected(&self) -> bool {
        let connected =
            matches!(&self.engine, Engine::Redis { machine, .. } if machine.is_connected());
        connected && !self.closing
    }

    pub(super) fn member(&self) -> Option<&Member> {
        match &self.engine {
            Engine::Member { machine, .. } => Some(machine),
            Engine::Redis { .. } => None,
        }
    }

    pub(super) fn member_mut(&mut self) -> Option<&mut Member> {
        match &mut self.engine {
            Engine::Member { machine, .. } => Some(machine),
            Engine::Redis { .. } => None,
        }
    }

    /// Whether its tasks can run at `now`.
    pub(super) fn runs_at(&self, now: u64) -> bool {
        self.paused_until.is_none() && self.turn.is_none_or(|turn| now <= turn.drained)
    }

    /// Runs the turn that ends now: whether there is another, and whether it took the time for
    /// earlier than it is.
    pub(super) fn step(&mut self, turn: Turn, random: &Random) -> (bool, bool) {
        let stalled = turn.ended > turn.begun;
        if stalled {
            let Turn { begun, drained, ended, .. } = turn;
            self.clock.begin_turn(Stall::new((begun, drained, ended), random.clone()));
        }
        let goes_on = self.engine.step(turn.drained);
        (goes_on, self.clock.end_turn())
    }
}

pub(super) fn node_name(slot: usize) -> NodeName {
    NodeName::new(format!("m{slot}")).expect("a short name")
}
