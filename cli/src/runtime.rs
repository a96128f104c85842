//! The runtimes of the commands.

use std::{io, os::unix::net::UnixStream};

use tokio::runtime::{Builder, Runtime};

/// Pairs of descriptors that a runtime and one connection need.
const PAIRS: usize = 6;

/// Builds a runtime. Tokio panics if it has no descriptors for signals.
pub(crate) fn build(builder: &mut Builder) -> io::Result<Runtime> {
    let spare = (0..PAIRS).map(|_| UnixStream::pair());
    drop(spare.collect::<io::Result<Vec<_>>>()?);
    builder.enable_all().build()
}
