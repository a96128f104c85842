//! Auto-extend: extends one lease while its guard lives, up to `max_hold`.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{Error, clock::Instant, implement::whole_ms, limits::DURATION_MIN};
use humantime::format_duration;
use rand::RngExt;
use tokio::task::AbortHandle;

use crate::{lease::Lease, own_thread::OwnThread};

/// A lease is extended when a third of it has passed: two thirds remain for retries.
const EXTEND_AFTER_PARTS: u32 = 3;
/// The first pause after a failure, as a part of the lease; it doubles.
const FIRST_PAUSE_PARTS: u32 = 48;
/// The longest pause, as a part of the lease: several attempts fit before the deadline.
const LONGEST_PAUSE_PARTS: u32 = 6;

/// The background task of one guard; dropping this ends it.
pub(crate) struct KeepAlive(AbortHandle);

impl KeepAlive {
    /// Extends `lease` by `duration` each time, and never past `max_hold` from now, plus the
    /// time that a request takes.
    pub(crate) fn start(
        lease: Arc<Lease>,
        thread: Option<&OwnThread>,
        duration: Duration,
        max_hold: Duration,
    ) -> Self {
        let hold_until = lease.clock.now().after(max_hold);
        // Before the task is first polled: its thread may be blocked from now on.
        sleeps_until(&lease, first_wake(&lease, duration), duration);
        let clearing = ClearWake(lease);
        let task = async move {
            let lease = &*clearing.0;
            tokio::select! {
                biased;
                // A lost lock is not extended, and leaves no task behind.
                () = lease.loss_reported() => {}
                () = run(lease, duration, hold_until) => {}
            }
        };
        Self(match thread {
            Some(thread) => thread.spawn(task),
            None => tokio::spawn(task).abort_handle(),
        })
    }
}

/// Clears the wake time when the keep-alive ends, so that it is not reported as late.
struct ClearWake(Arc<Lease>);

impl Drop for ClearWake {
    fn drop(&mut self) {
        self.0.set_extend_at(None);
    }
}

/// Notes the next wake. A wake in the past, after a long wait for the grant, counts from now.
fn sleeps_until(lease: &Lease, wake_at: Instant, duration: Duration) {
    lease.set_extend_at(Some((wake_at.max(lease.clock.now()), duration)));
}

/// The first wake. A long wait leaves less than a lease, because its drift is subtracted.
fn first_wake(lease: &Lease, duration: Duration) -> Instant {
    let rest = duration - duration / EXTEND_AFTER_PARTS;
    lease.deadline().unwrap_or_default().before(rest)
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Extends until `max_hold` is reached, the lock is lost or the handle has ended. The lease then
/// expires, and `lost()` completes at its deadline.
pub(crate) async fn run(lease: &Lease, duration: Duration, hold_until: Instant) {
    let mut failures = 0;
    let mut wake_at = first_wake(lease, duration);
    loop {
        lease.clock.sleep_until(wake_at).await;
        lease.report_blocked();
        lease.set_extend_at(None);
        let Some(deadline) = lease.deadline() else { return };
        let now = lease.clock.now();
        let wanted = hold_until.since(now).min(duration);
        if now >= deadline || wanted < DURATION_MIN || hold_until <= deadline {
            return;
        }
        if now.after(wanted) <= deadline {
            // The guard was extended further by hand.
            wake_at = now.after(duration / EXTEND_AFTER_PARTS);
            sleeps_until(lease, wake_at, duration);
            continue;
        }
        match lease.extend(wanted).await {
            Ok(()) => {
                failures = 0;
                wake_at = now.after(duration / EXTEND_AFTER_PARTS);
            }
            Err(error) if is_final(&error) => return,
            Err(error) => {
                failures += 1;
                let pause = pause_after(failures, duration);
                let shown = format_duration(Duration::from_millis(whole_ms(pause)));
                tracing::debug!(%error, pause = %shown, "auto-extend failed, retrying");
                wake_at = lease.clock.now().after(pause).min(deadline);
            }
        }
        sleeps_until(lease, wake_at, duration);
    }
}

/// Whether no later attempt can succeed.
fn is_final(error: &Error) -> bool {
    !matches!(error, Error::Unavailable { .. } | Error::Unknown | Error::Limit { .. })
}

/// The pause after this many failures in a row. It doubles up to a bound. Jitter shortens it by up
/// to a half, so that the guards of one process do not retry in step.
fn pause_after(failures: u32, duration: Duration) -> Duration {
    let doubled = (duration / FIRST_PAUSE_PARTS).saturating_mul(1 << (failures - 1).min(16));
    let pause = doubled.min(duration / LONGEST_PAUSE_PARTS).max(DURATION_MIN);
    pause.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_sixth_and_vary_by_half() {
        for (failures, longest) in (1..).zip([100, 200, 400, 800, 800, 800]) {
            let pause = pause_after(failures, Duration::from_millis(4800));
            assert!(pause <= Duration::from_millis(longest), "{pause:?} > {longest} ms");
            assert!(pause >= Duration::from_millis(longest / 2), "{pause:?} < {longest} ms / 2");
        }
    }
}
