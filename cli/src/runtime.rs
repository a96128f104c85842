//! The runtimes of the commands.

use std::{io, os::unix::net::UnixStream, time::Duration};

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

/// Runs a command. A look-up of a host name that hangs delays the end by at most this.
pub(crate) fn run<T>(runtime: Runtime, command: impl Future<Output = T>) -> T {
    let outcome = runtime.block_on(command);
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a thread of the system blocks")]
    fn blocked_thread_delays_no_end() {
        let began = Instant::now();
        let runtime = build(&mut Builder::new_current_thread()).unwrap();
        run(runtime, async {
            tokio::task::spawn_blocking(|| thread::sleep(Duration::from_secs(20)));
        });
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
