//! Channels of one Memory hub without faults.

#[path = "scratch_hub.rs"]
mod scratch_hub;

use crate::cluster::Connect;

pub(crate) fn memory() -> Connect {
    let hub = scratch_hub::Hub2::default();
    Box::new(move |name| hub.channel(name))
}
