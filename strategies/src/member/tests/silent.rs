//! A channel without other members.

use std::future::pending;

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, Counters, NodeName, Received};

/// Loses what is sent. `arrived` returns each arrival.
pub(crate) struct Silent<F> {
    pub(crate) name: NodeName,
    pub(crate) arrived: F,
}

#[async_trait]
impl<F: Fn() -> Option<Received> + Send + Sync + 'static> Channel for Silent<F> {
    fn name(&self) -> &NodeName {
        &self.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn disconnect(&self) {}

    fn send(&self, _: &NodeName, _: Bytes) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        pending().await
    }

    fn try_receive(&self) -> Option<Received> {
        (self.arrived)()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
