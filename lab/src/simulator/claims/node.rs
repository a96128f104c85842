//! A node: the routes of a server over a member of the group.

use std::{sync::Arc, time::Duration};

use gaggle::Locker;
use gaggle_channels::NodeName;
use gaggle_server::{Access, Options, Service};
use gaggle_strategies::{
    MemberOptions,
    client::Client,
    lock::Owner,
    member::{Backend, Policy, RunOptions},
};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{channel::MemberChannel, world::Shared};
use crate::simulator::{process::node_name, random::mixed};

/// The longest lease of a server, which a new group waits for.
pub(super) const MAX_TTL: Duration = Duration::from_secs(2);
/// How long a waiter is kept without a sign of its member.
const WAITER_TTL: Duration = Duration::from_millis(1_000);

/// A running node.
pub(super) struct Node {
    pub(super) service: Service,
    /// Cancelled with the process: its connections end.
    pub(super) ended: CancellationToken,
    channel: Arc<MemberChannel>,
    member: AbortHandle,
}

impl Node {
    /// Starts the process of this node, with no memory of an earlier one.
    pub(super) fn start(shared: &Arc<Shared>, number: usize) -> Self {
        let names = (0..shared.plan.nodes).map(node_name).collect::<Vec<NodeName>>();
        let clock = shared.clock();
        let heartbeat = Duration::from_millis(100);
        let options = MemberOptions::named("simulated", names.iter().cloned())
            .heartbeat(heartbeat)
            .election_timeout(heartbeat * 3, heartbeat * 6)
            .waiter_ttl(WAITER_TTL)
            .outside_max(MAX_TTL)
            .busy_poll(Duration::ZERO)
            .clock(clock.clone());
        let channel = shared.network.channel(names[number].clone());
        let seed = mixed(mixed(shared.plan.seed) ^ mixed(shared.next()));
        let owner = Owner { host: names[number].to_string(), pid: 0, label: None };
        let run = RunOptions { owner: owner.clone(), ..RunOptions::new(seed) };
        let backend = Backend::new(channel.clone(), &options, Policy::Queue, &run);
        let backend = backend.expect("the options are valid");
        let (client, driver) = Client::new(backend, clock, owner, Some(seed));
        let member = tokio::spawn(client.run(driver)).abort_handle();
        let options = Options::default().max_ttl(MAX_TTL);
        let service = Service::new(Locker::new(client), Access::anonymous(), options);
        let service = service.expect("a group has a queue");
        Self { service, ended: CancellationToken::new(), channel, member }
    }

    /// Ends the process without any clean-up.
    pub(super) fn kill(self) {
        self.channel.end();
        self.ended.cancel();
        self.member.abort();
    }

    /// The process ends as after SIGTERM.
    pub(super) async fn close(self) {
        let closing = tokio::time::timeout(Duration::from_secs(5), self.service.close());
        let _ = closing.await;
        self.kill();
    }
}
