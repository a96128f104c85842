//! What requests may come from the network: bounds checked before anything is appended.

use crate::{
    KEY_BYTES_MAX, LABEL_BYTES_MAX, MAX_WAIT_MAX,
    lock_table::{Command, Wait},
};

/// The longest host name in bytes, as DNS has it.
const HOST_BYTES_MAX: usize = 255;

/// Whether a command that `process` sent may be appended: a peer is no more trusted than a caller.
pub(super) fn is_admissible(command: &Command, process: u64, lease_max_ms: u64) -> bool {
    let key_fits = |key: &str| !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    let lease_fits = |ms: u64| ms > 0 && ms <= lease_max_ms;
    match command {
        Command::Lock(lock) => {
            let waits = match lock.wait {
                Wait::Ms(ms) => u128::from(ms) <= MAX_WAIT_MAX.as_millis(),
                Wait::No | Wait::Forever => true,
            };
            let label = lock.owner.label.as_ref().map_or(0, String::len);
            lock.process.0 == process
                && key_fits(&lock.key)
                && lease_fits(lock.duration_ms)
                && waits
                && label <= LABEL_BYTES_MAX
                && lock.owner.host.len() <= HOST_BYTES_MAX
        }
        Command::Unlock { key, .. } => key_fits(key),
        Command::Extend { key, process: asks, duration_ms, .. } => {
            asks.0 == process && key_fits(key) && lease_fits(*duration_ms)
        }
        // What only a leader says of its own.
        Command::Gone { .. } | Command::Noop => false,
    }
}
