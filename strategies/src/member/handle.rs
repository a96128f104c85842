//! The handle of a member: a client of its backend, with the queries that only members have.

use std::sync::Arc;

use gaggle_channels::{Channel, ChannelError};

use super::{
    backend::{Backend, Policy},
    options::{MemberOptions, RunOptions},
};
use crate::{
    client::{Client, Driver, check_runtime},
    error::{Error, UnavailableKind},
    fork::unshared_random,
    status::MemberSizes,
};

fn unavailable(error: ChannelError) -> Error {
    let kind = match error {
        ChannelError::Misconfigured { .. } => UnavailableKind::Misconfigured,
        ChannelError::Refused { .. } => UnavailableKind::Refused,
        _ => UnavailableKind::Unreachable,
    };
    Error::unavailable(kind, error)
}

/// A running member, as its strategy holds it.
pub(crate) type Member = Client<Backend>;

impl Member {
    /// Connects the channel and starts the driver on the current runtime.
    pub(crate) async fn open(
        channel: Arc<dyn Channel>,
        options: MemberOptions,
        policy: Policy,
    ) -> Result<Self, Error> {
        options.validate(channel.name(), channel.frame_limit())?;
        check_runtime()?;
        channel.connect().await.map_err(unavailable)?;
        Self::start(channel, options, policy)
    }

    /// Not an `async fn`: a crate that awaits one compiles its code again, here the whole driver.
    fn start(
        channel: Arc<dyn Channel>,
        options: MemberOptions,
        policy: Policy,
    ) -> Result<Self, Error> {
        let (member, driver) = Self::assemble(channel, options, policy)?;
        tokio::spawn(member.run(driver));
        Ok(member)
    }

    /// A member, and the driver that its caller must run.
    pub(crate) fn assemble(
        channel: Arc<dyn Channel>,
        options: MemberOptions,
        policy: Policy,
    ) -> Result<(Self, Driver<Backend>), Error> {
        let run = RunOptions::new(unshared_random());
        let backend = Backend::new(channel, &options, policy, &run)?;
        Ok(Self::new(backend, options.clock, run.owner, None))
    }

    pub(crate) fn sizes(&self) -> Result<MemberSizes, Error> {
        self.check_open()?;
        Ok(self.status().borrow().sizes)
    }
}
