//! When faults are injected.

use super::{
    event::Fault,
    plan::{FaultPlan, Plan, ServerPlan},
    random::Random,
};

/// Generates the time and the effect of the next fault of each kind.
#[derive(Debug)]
pub(super) struct FaultSchedule {
    plan: FaultPlan,
    /// A plan without a server has none of its faults.
    server: ServerPlan,
    over: bool,
    pub(super) random: Random,
}

impl FaultSchedule {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.faults.clone(),
            server: plan.redis.clone().unwrap_or_default(),
            over: false,
            random: Random::new(plan.seed, 5),
        }
    }

    const fn mean(&self, fault: Fault) -> u64 {
        let plan = &self.plan;
        match fault {
            Fault::Partition => plan.partition,
            Fault::Slow => plan.slow,
            Fault::Pause => plan.pause,
            Fault::Crash => plan.crash,
            Fault::CrashAll => plan.crash_all,
            Fault::Leave => plan.leave,
            Fault::Transfer => plan.transfer,
            Fault::Drift => plan.drift,
            Fault::Restore => plan.restore,
            Fault::ClientDeath => plan.client_death,
            Fault::Cut => self.server.cut,
            Fault::FlushScripts => self.server.flush,
            Fault::Full => self.server.full,
            Fault::Standstill => self.server.standstill,
            Fault::ServerRestart => self.server.restart,
            Fault::MemoryLoss => self.server.wipe,
            Fault::Failover => self.server.failover,
            Fault::Flushed => self.server.flush_all,
        }
    }

    /// The longest pause of a process.
    pub(super) const fn pause_max(&self) -> u64 {
        self.plan.pause_max
    }

    /// No fault is injected any more.
    pub(super) const fn stop(&mut self) {
        self.over = true;
    }

    pub(super) const fn are_over(&self) -> bool {
        self.over
    }

    pub(super) fn first(&mut self) -> Vec<(u64, Fault)> {
        Fault::ALL.into_iter().filter_map(|fault| Some((self.next(fault)?, fault))).collect()
    }

    /// How long until the next fault of this kind; none where the kind is off, or all faults are
    /// over.
    pub(super) fn next(&mut self, fault: Fault) -> Option<u64> {
        let mean = self.mean(fault);
        (mean > 0 && !self.over).then(|| self.random.between(mean / 4, mean * 7 / 4))
    }
}
