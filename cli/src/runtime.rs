//! The runtimes of the commands.

use std::{io, os::unix::net::UnixStream};

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Pairs of descriptors that a runtime and one connection need.
const PAIRS: usize = 6;

/// Builds a runtime. Tokio panics if it has no descriptors for signals.
pub(crate) fn build(builder: &mut Builder) -> Result<Runtime, Failure> {
    let spare = (0..PAIRS).map(|_| UnixStream::pair());
    let spare = spare.collect::<io::Result<Vec<_>>>().map(drop);
    let runtime = spare.and_then(|()| builder.enable_all().build());
    runtime.map_err(|error| Failure::new("no runtime").because(&error))
}
