//! Channels of one Memory hub without faults.

use std::sync::Arc;

use gaggle_channels::Hub;

use crate::cluster::Connect;

pub(crate) fn memory() -> Connect {
    let hub = Hub::new();
    Box::new(move |name| Arc::new(hub.channel(name.clone())))
}
