//! The strategies under test, behind one type.

use std::{sync::Arc, time::Duration};

use gaggle_channels::{Channel, Hub, NodeName};
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, Local, MemberOptions, Raft,
    clock::{Clock, TokioClock},
    status::MemberSizes,
    testing::SimulatedRedis,
};
use tokio::time::{Instant, timeout};

/// A strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Local,
    Redis,
    Gaggle,
    Raft,
    /// Grants everybody: the rules must be seen to fail on it.
    #[cfg(test)]
    Noop,
}

/// Handles on one lock service, with control over its clock and network.
pub(super) struct Backend {
    pub(super) handles: Vec<Arc<dyn KeyedMutex>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Where members speak; a hub without members for the others.
    pub(super) hub: Hub,
    pub(super) names: Vec<NodeName>,
    inside: Inside,
}

enum Inside {
    Local(Arc<Local>),
    Redis(Arc<SimulatedRedis>),
    Gaggle(Vec<Arc<Gaggle>>),
    Raft(Vec<Arc<Raft>>),
    #[cfg(test)]
    Noop,
}

/// A cluster without faults has formed by then, whatever its seed.
const FORMS_WITHIN: Duration = Duration::from_secs(30);

impl Kind {
    pub(super) fn is_member(self) -> bool {
        matches!(self, Self::Gaggle | Self::Raft)
    }
}

impl Backend {
    /// As many handles as `members`, on a service that is ready.
    pub(super) async fn open(kind: Kind, members: usize, seed: u64) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let hub = Hub::new();
        let name = |number| NodeName::new(format!("m{number}")).expect("a short name");
        let names: Vec<NodeName> = (0..members).map(name).collect();
        let options = |number: usize| {
            MemberOptions::named("fuzz", names.clone())
                .clock(clock.clone())
                .heartbeat(Duration::from_millis(100))
                .election_timeout(Duration::from_millis(300), Duration::from_millis(600))
                .seed(seed + number as u64 + 1)
        };
        let channel = |name: &NodeName| Arc::new(hub.channel(name.clone())) as Arc<dyn Channel>;
        let inside = match kind {
            Kind::Local => Inside::Local(Arc::new(Local::with_clock(clock.clone()))),
            // Every third publication is lost where the seed is odd: polls must find the rest.
            Kind::Redis => Inside::Redis(SimulatedRedis::new(if seed & 256 == 0 { 0 } else { 3 })),
            Kind::Gaggle => {
                let mut all = Vec::new();
                for (number, name) in names.iter().enumerate() {
                    let member = Gaggle::open(channel(name), options(number)).await;
                    all.push(Arc::new(member.expect("the options are right")));
                }
                Inside::Gaggle(all)
            }
            Kind::Raft => {
                let mut all = Vec::new();
                for (number, name) in names.iter().enumerate() {
                    let member = Raft::open(channel(name), options(number)).await;
                    all.push(Arc::new(member.expect("the options are right")));
                }
                Inside::Raft(all)
            }
            #[cfg(test)]
            Kind::Noop => Inside::Noop,
        };
        let handles = inside.handles(members, &clock);
        for handle in &handles {
            let ready = timeout(FORMS_WITHIN, handle.ready()).await;
            assert!(matches!(ready, Ok(Ok(()))), "{kind:?} has not become ready: {ready:?}");
        }
        Self { handles, clock, hub, names, inside }
    }

    /// The handle of a client.
    pub(super) fn handle(&self, client: usize) -> &Arc<dyn KeyedMutex> {
        &self.handles[client % self.handles.len()]
    }

    /// The remaining keys, waiters and requests, as text for a message.
    pub(super) async fn residue(&self) -> Vec<String> {
        let of_member = |sizes: Result<MemberSizes, Error>| {
            let sizes = sizes.expect("a member that runs knows its sizes");
            let left = sizes.table.keys + sizes.table.waiters + sizes.pending as u64;
            (left > 0).then(|| format!("{sizes:?}"))
        };
        let mut left = Vec::new();
        match &self.inside {
            Inside::Local(local) => {
                let sizes = local.sizes();
                left.extend((sizes.keys + sizes.waiters > 0).then(|| format!("{sizes:?}")));
            }
            #[cfg(test)]
            Inside::Noop => {}
            Inside::Redis(server) => left = server.residue(),
            Inside::Gaggle(all) => {
                for member in all {
                    left.extend(of_member(member.sizes()));
                }
            }
            Inside::Raft(all) => {
                for member in all {
                    left.extend(of_member(member.sizes()));
                }
            }
        }
        left
    }

    /// The time after which nothing may be left: leases, sweeps, and the nonce memory of Redis.
    pub(super) fn settles_within(&self) -> Duration {
        Duration::from_secs(match self.inside {
            Inside::Redis(_) => 60,
            _ => 20,
        })
    }

    /// Waits until nothing is left.
    ///
    /// # Panics
    ///
    /// When something is, in the end.
    pub(super) async fn settle(&self) {
        let limit = Instant::now() + self.settles_within();
        loop {
            let left = self.residue().await;
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < limit, "something is left: {left:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

impl Inside {
    fn handles(&self, count: usize, clock: &Arc<dyn Clock>) -> Vec<Arc<dyn KeyedMutex>> {
        match self {
            Self::Local(local) => (0..count).map(|_| local.clone() as _).collect(),
            Self::Redis(server) => (0..count as u64)
                .map(|number| Arc::new(server.open(clock.clone(), number)) as _)
                .collect(),
            Self::Gaggle(all) => all.iter().map(|member| member.clone() as _).collect(),
            Self::Raft(all) => all.iter().map(|member| member.clone() as _).collect(),
            #[cfg(test)]
            Self::Noop => {
                let noop = gaggle_strategies::Noop::with_clock(clock.clone());
                vec![Arc::new(noop) as _; count]
            }
        }
    }
}
