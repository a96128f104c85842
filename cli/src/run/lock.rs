//! The lock of `gaggle run`: acquisition, and its messages on failure.

use std::{fmt::Display, future::IntoFuture as _, time::Duration};

use gaggle::{BootClock, Clock as _, Error, Guard, Instant, Locker, MaxWait, OpenError};
use gaggle_strategies::limits::DURATION_MIN;
use rustix::process::Signal;

use super::{WRONG_USE, address::Address, args::Settings, notice, signals::Signals, span};
use crate::failure::Failure;

/// How long to wait for a withdrawal to be sent.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// Connects, or prints why not and returns the exit code. A Redis that cannot be used yet is tried
/// again until `give_up_at`.
pub(super) async fn open(
    settings: &Settings,
    address: &Address,
    signals: &mut Signals,
    give_up_at: Option<Instant>,
) -> Result<Locker, u8> {
    let mut last = None;
    loop {
        let opened = tokio::select! {
            biased;
            signal = signals.fatal() => return Err(exit_code(signal)),
            opened = gaggle::open(address.url()) => opened,
            () = until(give_up_at) => {
                let silent = "it did not reply in time; a longer --max-wait reaches one far away";
                let reason = last.unwrap_or_else(|| silent.into());
                return Err(unavailable(settings, address, reason));
            }
        };
        let error = match opened {
            Ok(locker) => return Ok(locker),
            Err(OpenError::Strategy(error)) => error,
            Err(error) => {
                notice(&format!("{}; not run", Failure::of(&error)));
                return Err(WRONG_USE);
            }
        };
        let reason = Failure::of(&error).to_string();
        if last.is_none() && give_up_at.is_none() && !settings.quiet && !error.is_permanent() {
            notice(&format!("waiting for the Redis: {reason}"));
        }
        last = Some(reason);
        let again_at = BootClock.now().after(PAUSE);
        if error.is_permanent() || give_up_at.is_some_and(|give_up_at| again_at >= give_up_at) {
            return Err(unavailable(settings, address, Failure::of(&error)));
        }
        tokio::select! {
            biased;
            signal = signals.fatal() => return Err(exit_code(signal)),
            () = BootClock.sleep_until(again_at) => {}
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => BootClock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Acquires the lock, or prints why not and returns the exit code. A signal withdraws the request.
pub(super) async fn acquire(
    settings: &Settings,
    address: &Address,
    locker: &Locker,
    signals: &mut Signals,
    give_up_at: Option<Instant>,
) -> Result<Guard, u8> {
    let key = &settings.key;
    let give_up_at = if settings.try_now { Some(Instant::default()) } else { give_up_at };
    let rest = give_up_at.map(|at| MaxWait::AtMost(at.since(BootClock.now())));
    let options = settings.lock.clone().max_wait(rest.unwrap_or(MaxWait::Forever));
    let request = locker.lock_with(key.as_str(), options);
    let granted = tokio::select! {
        biased;
        signal = signals.fatal() => return Err(exit_code(signal)),
        granted = request.auto_extend(settings.max_hold).into_future() => granted,
    };
    let mut error = match granted {
        Ok(guard) => return Ok(guard),
        Err(error) => error,
    };
    if let (Error::TimedOut(Some(contention)), Some(max_wait)) = (&mut error, settings.max_wait) {
        // Connecting has taken a part of it.
        contention.max_wait = MaxWait::AtMost(max_wait);
    }
    match error {
        Error::Held(_) | Error::TimedOut(_) => {
            if !settings.quiet {
                notice(&format!("{error}; not run"));
            }
            Err(settings.exit_not_acquired)
        }
        Error::InvalidKey { .. } | Error::InvalidOptions { .. } => {
            notice(&format!("{error}; not run"));
            Err(WRONG_USE)
        }
        error => Err(unavailable(settings, address, Failure::of(&error))),
    }
}

fn unavailable(settings: &Settings, address: &Address, reason: impl Display) -> u8 {
    let (key, server, reason) =
        (&settings.key, address.shown(), address.explain(reason.to_string()));
    notice(&format!("{key:?} was not locked at {server}: {reason}; not run"));
    settings.exit_unavailable
}

/// The exit code of a process that a signal ended, as shells show it.
pub(super) fn exit_code(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

/// Unlocks after the command has ended. A failure changes no exit code.
pub(super) async fn unlock(settings: &Settings, address: &Address, locker: &Locker, guard: Guard) {
    let Err(error) = guard.unlock().await else { return };
    let (key, server, reason) = (&settings.key, address.shown(), Failure::of(&error));
    let consequence = match error {
        Error::NotHolder | Error::Expired => "another process may have held it meanwhile".into(),
        _ => format!("it is free within {}", span::show(settings.lease())),
    };
    notice(&format!("{key:?} was not unlocked at {server}: {reason}; {consequence}"));
    close(locker).await;
}

/// Keeps the lock until then without this process, by one extension of its lease. One that fails is
/// repeated while the lock is held, or until a signal.
pub(super) async fn keep(guard: Guard, until: Instant, signals: &mut Signals) {
    loop {
        let rest = until.since(BootClock.now());
        if rest.is_zero() {
            break;
        }
        let Err(error) = guard.extend(rest.max(DURATION_MIN)).await else { break };
        let is_over = error.is_permanent() || !guard.is_valid();
        let is_ended = is_over
            || tokio::select! {
                biased;
                _ = signals.fatal() => true,
                () = BootClock.sleep_until(BootClock.now().after(PAUSE)) => false,
            };
        if is_ended {
            notice(&format!("{:?} is not kept for --at-least: {error}", guard.key()));
            break;
        }
    }
    let _ = guard.into_lock();
}

/// Sends pending requests, such as a withdrawal.
pub(super) async fn close(locker: &Locker) {
    let _ = tokio::time::timeout(PATIENCE, locker.close()).await;
}
