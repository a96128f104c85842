//! A consensus member as the granting side of the client core: a channel, a node, and its ticks.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::stream::{self, BoxStream, StreamExt};
use gaggle_channels::{Channel, Received};

use super::{
    node::{Frame, Node},
    options::{MemberOptions, RunOptions},
    timers::Ticks,
};
use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    client::{
        self,
        backend::{Failure, Profile},
        commands::{Command, Copies, Event},
    },
    clock::{Clock, Instant},
    deadline::Drift,
    error::Error,
    limits::DURATION_MAX,
    status::{MemberSizes, MemberStatus},
};

/// How many frames one turn takes: enough to gather a batch, few enough to stay prompt.
const BATCH: usize = 512;
/// How long a leader that closes tries to transfer leadership.
const TRANSFER: Duration = Duration::from_millis(100);
/// How many requests of this process may be pending.
const REQUESTS_MAX: usize = 1 << 17;
/// The pause before a pending request is retransmitted, and its limit: channels lose frames.
const RESEND: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Between refusals of plain compare-and-set a caller pauses this long, jittered, so that many do
/// not ask in step.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// How a strategy of the Raft family treats a key that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Policy {
    /// Waiters queue in the replicated table.
    Queue,
    /// A caller that is refused retries with jitter.
    CompareAndSet,
}

/// The state of a member after a turn.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The member's role in the group.
    pub status: MemberStatus,
    /// How much it remembers.
    pub sizes: MemberSizes,
}

/// Sizes change in nearly every turn, and no task waits for them.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.status == other.status
    }
}

/// A member: a node, and the channel to the others.
pub struct Backend {
    node: Node,
    channel: Arc<dyn Channel>,
    clock: Arc<dyn Clock>,
    profile: Profile,
    ticks: Ticks,
    /// The frames of the channel. Kept over turns: its wait ends with it.
    receiving: BoxStream<'static, Received>,
    /// An arrival that was not taken yet; `Some(None)` once the channel was disconnected.
    arrived: Option<Option<Received>>,
    /// The time until which this member tries to transfer leadership before it closes.
    leaving: Option<Instant>,
}

impl Backend {
    /// A member on a connected channel.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`].
    pub fn new(
        channel: Arc<dyn Channel>,
        options: &MemberOptions,
        policy: Policy,
        run: &RunOptions,
    ) -> Result<Self, Error> {
        let (name, frame_limit) = (channel.name(), channel.frame_limit());
        options.validate(name, frame_limit)?;
        let now = options.clock.now();
        let mut node = Node::new(name.clone(), options, frame_limit, run, now);
        if let Some(address) = channel.address() {
            node.listens_on(address);
        }
        Ok(Self {
            node,
            clock: options.clock.clone(),
            profile: profile(options, policy),
            ticks: Ticks::new(now, options.tick()),
            receiving: receive(channel.clone()),
            arrived: None,
            leaving: None,
            channel,
        })
    }

    /// The consensus side of this member.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Begins to transfer leadership, if this member leads; whether it has begun.
    pub fn transfer_leadership(&mut self) -> bool {
        self.node.transfer_leadership()
    }

    fn take_frame(&mut self, now: Instant, received: Received) {
        match received {
            Received::Frame { from, frame } => self.node.receive(now, &from, &frame),
            Received::Down { peer } => self.node.unreachable(&peer),
        }
    }

    /// Sends frames; a channel may lose any.
    fn send(&self, frames: Vec<Frame>) {
        for frame in frames {
            if let Err(error) = self.channel.send(&frame.to, frame.bytes) {
                tracing::debug!(%error, "a frame was not sent");
            }
        }
    }

    /// How many ticks the driver may sleep through.
    fn quiet_ticks(&self) -> u32 {
        if self.leaving.is_some() { 0 } else { self.node.quiet_ticks() }
    }

    /// `slept`: ticks were slept through before this turn.
    fn run_ticks(&mut self, now: Instant, slept: bool) {
        if self.node.is_report_due(now) {
            self.node.set_failures(self.channel.failures());
        }
        let ticks = self.ticks.take(now);
        if ticks == 0 && slept {
            self.node.run_timers(now);
        }
        for _ in 0..ticks {
            self.node.tick(now, self.clock.wall_nanos());
        }
    }
}

impl client::backend::Backend for Backend {
    type Status = State;

    fn profile(&self) -> Profile {
        self.profile
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.arrived.is_none() {
            self.arrived = Some(ready!(self.receiving.poll_next_unpin(context)));
        }
        Poll::Ready(())
    }

    fn take(&mut self, now: Instant, _: &mut Vec<Event>) -> Result<(), Failure> {
        // Before what arrived meanwhile: a frame of the leader must set back the count of the time
        // that passed before it.
        let quiet = self.ticks.take_quiet(now, self.quiet_ticks());
        if quiet > 0 {
            self.node.count(now, quiet);
        }
        match self.arrived.take() {
            None => {}
            Some(Some(received)) => self.take_frame(now, received),
            Some(None) => return Err(Failure::Backend("the channel was disconnected".into())),
        }
        for _ in 0..BATCH {
            let Some(received) = self.channel.try_receive() else { break };
            self.take_frame(now, received);
        }
        self.run_ticks(now, quiet > 0);
        Ok(())
    }

    fn submit(&mut self, now: Instant, command: Command) -> Copies {
        self.node.submit(now, command)
    }

    fn flush(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<bool, Failure> {
        self.node.flush(now, events).map_err(|error| Failure::Backend(error.to_string()))
    }

    fn end_turn(&mut self, now: Instant) {
        let frames = self.node.end_turn(now);
        self.send(frames);
    }

    fn next_wake(&self) -> Option<Instant> {
        let tick = self.ticks.next_wake(self.quiet_ticks());
        self.node.next_wake().into_iter().chain(self.leaving).chain(Some(tick)).min()
    }

    fn status(&self, pending: usize) -> Self::Status {
        State { status: self.node.status(), sizes: self.node.sizes(pending) }
    }

    fn is_ready(state: &Self::Status) -> bool {
        state.status.ready
    }

    fn group_status(state: &Self::Status) -> Option<MemberStatus> {
        Some(state.status.clone())
    }

    fn leave(&mut self, now: Instant) -> bool {
        let may_leave = match self.leaving {
            _ if !self.node.status().leads => true,
            Some(until) => now >= until,
            None => {
                self.leaving = Some(now.after(TRANSFER));
                !self.node.transfer_leadership()
            }
        };
        if may_leave {
            let frames = self.node.farewell();
            self.send(frames);
        }
        may_leave
    }

    async fn close(&mut self) {
        self.channel.disconnect().await;
    }
}

fn receive(channel: Arc<dyn Channel>) -> BoxStream<'static, Received> {
    let next = async |channel: Arc<dyn Channel>| Some((channel.receive().await?, channel));
    stream::unfold(channel, next).boxed()
}

/// The properties of a member that the client core needs.
pub(super) fn profile(options: &MemberOptions, policy: Policy) -> Profile {
    let (strategy, order) = match policy {
        Policy::Queue => ("gaggle", Order::Fifo),
        Policy::CompareAndSet => ("raft", Order::None),
    };
    let capabilities = Capabilities {
        exclusion: Exclusion::Always,
        order,
        survives: Survives::Minority,
        distributed: true,
        waits_for_leader: true,
        notifies_forced: true,
        ..Capabilities::none(strategy)
    };
    Profile {
        capabilities,
        queues: policy == Policy::Queue,
        retry: RETRY,
        resend: Some(RESEND),
        // A member applies the log, and so sees every event.
        check_every: None,
        lease_max: options.outside_max.unwrap_or(DURATION_MAX),
        request_timeout: options.request_timeout,
        requests_max: REQUESTS_MAX,
        drift: Drift::default(),
        busy_poll: options.busy_poll,
    }
}

#[cfg(test)]
mod tests {
    use gaggle_channels::NodeName;

    use super::*;

    impl Backend {
        /// When the next tick comes.
        pub(in crate::member) fn next_tick(&self) -> Instant {
            self.ticks.next_wake(0)
        }
    }

    #[test]
    fn member_profile_has_the_values_of_its_options() {
        let ms = Duration::from_millis;
        let (timeout, outside, polls) = (ms(123), ms(4_567), Duration::from_micros(45));
        let named = MemberOptions::named("test", [NodeName::new("a").unwrap()]);
        let policies =
            [(Policy::Queue, "gaggle", Order::Fifo), (Policy::CompareAndSet, "raft", Order::None)];
        for (policy, strategy, order) in policies {
            let options = named.clone().request_timeout(timeout).outside_max(outside);
            let options = options.busy_poll(polls);
            let profile = profile(&options, policy);
            let capabilities = Capabilities {
                strategy,
                exclusion: Exclusion::Always,
                order,
                survives: Survives::Minority,
                distributed: true,
                waits_for_leader: true,
                notifies_forced: true,
            };
            assert_eq!(profile.capabilities, capabilities);
            assert_eq!(profile.queues, policy == Policy::Queue);
            assert_eq!(profile.retry, (ms(5), ms(25)));
            assert_eq!(profile.resend, Some((ms(100), ms(1_000))));
            assert_eq!(profile.lease_max, outside);
            assert_eq!(profile.request_timeout, timeout);
            assert_eq!(profile.busy_poll, polls);
        }
    }
}
