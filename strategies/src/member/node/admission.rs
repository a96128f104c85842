//! Checks requests of other processes against the bounds, before anything is appended.

use crate::{
    limits::{HOST_BYTES_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX, MAX_WAIT_MAX},
    lock_table::{Command, Wait},
};

/// Whether a command that `process` sent may be appended: a peer is not trusted more than a caller.
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
        // Only a leader appends these, unasked.
        Command::DropWaiters { .. } | Command::Noop => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        lock::{Nonce, Owner},
        lock_table::{LockRequest, ProcessId, Seen},
    };

    const SENDER: u64 = 7;
    /// The longest lease that the group gives.
    const LEASE: u64 = 60_000;

    fn admits(command: &Command) -> bool {
        is_admissible(command, SENDER, LEASE)
    }

    /// A LOCK at every limit, which is admitted, changed in one thing.
    fn lock(change: impl FnOnce(&mut LockRequest, &mut Owner)) -> bool {
        let mut owner = Owner {
            host: "h".repeat(HOST_BYTES_MAX),
            pid: 1,
            label: Some("l".repeat(LABEL_BYTES_MAX)),
        };
        let mut request = LockRequest {
            key: "k".repeat(KEY_BYTES_MAX).into(),
            nonce: Nonce::from_u128(1),
            process: ProcessId(SENDER),
            duration_ms: LEASE,
            wait: Wait::Ms(longest_wait()),
            seen: Seen::Now,
            owner: Arc::default(),
        };
        change(&mut request, &mut owner);
        request.owner = Arc::new(owner);
        admits(&Command::Lock(request))
    }

    fn longest_wait() -> u64 {
        u64::try_from(MAX_WAIT_MAX.as_millis()).unwrap()
    }

    fn extend(change: impl FnOnce(&mut Arc<str>, &mut u64, &mut u64)) -> bool {
        let (mut key, mut process, mut duration_ms) = ("k".into(), SENDER, LEASE);
        change(&mut key, &mut process, &mut duration_ms);
        let (nonce, process) = (Nonce::from_u128(1), ProcessId(process));
        admits(&Command::Extend { key, nonce, process, request: 1, duration_ms })
    }

    fn too_long() -> Arc<str> {
        "k".repeat(KEY_BYTES_MAX + 1).into()
    }

    #[test]
    fn lock_is_admitted_up_to_every_limit() {
        assert!(lock(|_, _| {}));
        assert!(!lock(|lock, _| lock.process = ProcessId(SENDER + 1)), "in another's name");
        assert!(!lock(|lock, _| lock.key = "".into()));
        assert!(!lock(|lock, _| lock.key = too_long()));
        assert!(!lock(|lock, _| lock.duration_ms = 0));
        assert!(lock(|lock, _| lock.duration_ms = 1));
        assert!(!lock(|lock, _| lock.duration_ms = LEASE + 1));
        assert!(!lock(|lock, _| lock.wait = Wait::Ms(longest_wait() + 1)));
        assert!(lock(|lock, _| lock.wait = Wait::No));
        assert!(lock(|lock, _| lock.wait = Wait::Forever));
        assert!(!lock(|_, owner| owner.label = Some("l".repeat(LABEL_BYTES_MAX + 1))));
        assert!(lock(|_, owner| owner.label = None));
        assert!(!lock(|_, owner| owner.host = "h".repeat(HOST_BYTES_MAX + 1)));
    }

    #[test]
    fn extend_and_unlock_have_same_limits() {
        assert!(extend(|_, _, _| {}));
        assert!(!extend(|_, process, _| *process += 1), "in another's name");
        assert!(!extend(|key, _, _| *key = too_long()));
        assert!(!extend(|_, _, duration| *duration = 0));
        assert!(!extend(|_, _, duration| *duration += 1));
        let unlock = |key: Arc<str>| {
            admits(&Command::Unlock { key, nonce: Nonce::from_u128(1), forget: false })
        };
        assert!(unlock("k".into()));
        assert!(!unlock("".into()));
        assert!(!unlock(too_long()));
    }

    #[test]
    fn leader_commands_are_never_admitted() {
        assert!(!admits(&Command::DropWaiters { process: ProcessId(SENDER) }));
        assert!(!admits(&Command::Noop));
    }
}
