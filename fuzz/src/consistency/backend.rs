//! The strategies under test, behind one type.

use std::{fmt, sync::Arc, time::Duration};

use gaggle_channels::{Channel, Hub, NodeName};
use gaggle_fixtures::{Faults, FaultyChannel};
use gaggle_lab::SimulatedRedis;
use gaggle_strategies::{
    KeyedMutex, Local, MemberOptions,
    client::Client,
    clock::{Clock, TokioClock},
    member::{self, Policy, RunOptions},
    status::MemberSizes,
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

/// The remaining keys, waiters and requests of one part of a service, as text for a message.
type Residue = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Handles on one lock service, with control over its clock and network.
pub(super) struct Backend {
    pub(super) handles: Vec<Arc<dyn KeyedMutex>>,
    pub(super) clock: Arc<dyn Clock>,
    /// The faults of the network of members; without effect for the others.
    pub(super) faults: Faults,
    pub(super) names: Vec<NodeName>,
    kind: Kind,
    residues: Vec<Residue>,
}

/// A cluster without faults has formed by then, whatever its seed.
const FORMS_WITHIN: Duration = Duration::from_secs(30);

impl Kind {
    pub(super) fn is_member(self) -> bool {
        matches!(self, Self::Gaggle | Self::Raft)
    }
}

/// The sizes, unless nothing is left.
fn left(sizes: &impl fmt::Debug, count: u64) -> Vec<String> {
    if count > 0 { vec![format!("{sizes:?}")] } else { Vec::new() }
}

fn left_of_member(sizes: MemberSizes) -> Vec<String> {
    left(&sizes, sizes.table.keys + sizes.table.waiters + sizes.pending as u64)
}

impl Backend {
    /// As many handles as `members`, on a service that is ready.
    pub(super) async fn open(kind: Kind, members: usize, seed: u64) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let (hub, faults) = (Hub::new(), Faults::default());
        let name = |number| NodeName::new(format!("m{number}")).expect("a short name");
        let names: Vec<NodeName> = (0..members).map(name).collect();
        let (mut handles, mut residues) =
            (Vec::<Arc<dyn KeyedMutex>>::new(), Vec::<Residue>::new());
        let policy = match kind {
            Kind::Gaggle => Some(Policy::Queue),
            Kind::Raft => Some(Policy::CompareAndSet),
            _ => None,
        };
        for ((name, seed), policy) in names.iter().zip(seed + 1..).zip(policy.into_iter().cycle()) {
            let channel = Arc::new(hub.channel(name.clone()));
            let channel: Arc<dyn Channel> = Arc::new(FaultyChannel::new(channel, faults.clone()));
            channel.connect().await.expect("it is in memory");
            let options = MemberOptions::named("fuzz", names.clone())
                .clock(clock.clone())
                .heartbeat(Duration::from_millis(100))
                .election_timeout(Duration::from_millis(300), Duration::from_millis(600));
            let run = RunOptions::new(seed);
            let backend = member::Backend::new(channel, &options, policy, &run);
            let backend = backend.expect("the options are right");
            let (member, driver) = Client::new(backend, clock.clone(), run.owner, Some(seed));
            tokio::spawn(member.run(driver));
            let status = member.status();
            handles.push(Arc::new(member));
            residues.push(Box::new(move || left_of_member(status.borrow().sizes)));
        }
        match kind {
            Kind::Local => {
                let local = Arc::new(Local::with_clock(clock.clone()));
                handles = vec![local.clone(); members];
                residues.push(Box::new(move || {
                    let sizes = local.sizes();
                    left(&sizes, sizes.keys + sizes.waiters)
                }));
            }
            Kind::Redis => {
                // Every third publication is lost where the seed is odd: polls must find the rest.
                let server = SimulatedRedis::new(if seed & 256 == 0 { 0 } else { 3 });
                let open = |number| Arc::new(server.open(clock.clone(), number)) as _;
                handles.extend((0..members as u64).map(open));
                residues.push(Box::new(move || server.residue()));
            }
            Kind::Gaggle | Kind::Raft => {}
            #[cfg(test)]
            Kind::Noop => {
                let noop = Arc::new(gaggle_strategies::Noop::with_clock(clock.clone()));
                handles = vec![noop; members];
            }
        }
        for handle in &handles {
            let ready = timeout(FORMS_WITHIN, handle.ready()).await;
            assert!(matches!(ready, Ok(Ok(()))), "{kind:?} has not become ready: {ready:?}");
        }
        Self { handles, clock, faults, names, kind, residues }
    }

    /// The handle of a client.
    pub(super) fn handle(&self, client: usize) -> &Arc<dyn KeyedMutex> {
        &self.handles[client % self.handles.len()]
    }

    /// Waits until nothing is left.
    ///
    /// # Panics
    ///
    /// When something is, in the end.
    pub(super) async fn settle(&self) {
        // Leases, sweeps, and the nonce memory of Redis.
        let within = Duration::from_secs(if self.kind == Kind::Redis { 60 } else { 20 });
        let limit = Instant::now() + within;
        loop {
            let left: Vec<String> = self.residues.iter().flat_map(|residue| residue()).collect();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < limit, "something is left: {left:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
