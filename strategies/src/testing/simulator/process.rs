use std::{collections::BTreeSet, sync::Arc};

use gaggle_channels::NodeName;

use super::{
    channel::SimChannel,
    client::Standstill,
    clock::{SimClock, Stall},
    draw::Draw,
    executor::TaskId,
};
use crate::{KeyedMutex, member::machine::Machine};

/// A place for a process: one name, and whoever runs under it now.
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
    pub(super) machine: Machine,
    pub(super) strategy: Arc<dyn KeyedMutex>,
    pub(super) channel: Arc<SimChannel>,
    pub(super) clock: Arc<SimClock>,
    pub(super) standstill: Arc<Standstill>,
    pub(super) paused_until: Option<u64>,
    pub(super) paused_at: u64,
    pub(super) turn: Option<Turn>,
    /// Tasks that were woken while the process could not run.
    pub(super) deferred: Vec<TaskId>,
    pub(super) tasks: BTreeSet<TaskId>,
    pub(super) closing: bool,
}

/// The turn that is under way or about to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) begun: u64,
    pub(super) drained: u64,
    pub(super) ended: u64,
    /// Whether it is a stall that makes it take so long.
    pub(super) stalls: bool,
}

impl Process {
    /// Whether its tasks can run at `now`.
    pub(super) fn runs_at(&self, now: u64) -> bool {
        self.paused_until.is_none() && self.turn.is_none_or(|turn| now <= turn.drained)
    }

    /// Runs the turn that ends now: whether there is another, and whether it took the time for
    /// earlier than it is.
    pub(super) fn step(&mut self, turn: Turn, draw: &Draw) -> (bool, bool) {
        self.channel.show_until(turn.drained);
        let stalled = turn.ended > turn.begun;
        if stalled {
            let Turn { begun, drained, ended, .. } = turn;
            self.clock.begin_turn(Stall::new((begun, drained, ended), draw.clone()));
        }
        let goes_on = self.machine.step();
        (goes_on, self.clock.end_turn())
    }
}

pub(super) fn node_name(slot: usize) -> NodeName {
    NodeName::new(format!("m{slot}")).expect("a short name")
}
