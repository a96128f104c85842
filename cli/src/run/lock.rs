//! The lock of `gaggle run`: acquisition, and its messages on failure.

use std::{
    fmt::Display,
    fs,
    future::{Future, IntoFuture as _},
    path::Path,
    time::Duration,
};

use gaggle::{BootClock, Clock as _, Error, Guard, Instant, Locker, MaxWait, OpenError, Owner};
use gaggle_strategies::{error::UnavailableKind, limits::DURATION_MIN};
use humantime::format_duration;
use rustix::{
    io::Errno,
    process::{Pid, Signal, test_kill_process},
};

use super::{
    WRONG_USE,
    address::Address,
    args::{NOT_ACQUIRED, Settings, UNAVAILABLE},
    event::Event,
    signals::{self, Signals},
};
use crate::{failure::Failure, output::ms};

/// How long to wait for a withdrawal to be sent.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the reply to a last request may take after a signal.
const GRACE: Duration = Duration::from_millis(200);

/// The pause before another attempt to connect.
const PAUSE: Duration = Duration::from_millis(200);
/// The same in an endless wait after this many attempts, which take about ten seconds.
const LONG_PAUSE: (Duration, u32) = (Duration::from_secs(2), 50);

/// The PID namespace of the host: it has all processes. The kernel fixes the number.
const ALL_PIDS: &str = "pid:[4026531836]";

const HOLDER_HAS_ENDED: &str = ", which has ended: the key is free when its lease ends";

/// Connects, or prints why not and returns the exit code. A server that cannot be used yet is tried
/// again until `give_up_at`.
pub(super) async fn open(
    settings: &Settings,
    address: &Address,
    signals: &mut Signals,
    give_up_at: Option<Instant>,
) -> Result<Locker, u8> {
    let (mut last, mut attempts) = (None, 0);
    loop {
        attempts += 1;
        let opened = tokio::select! {
            biased;
            signal = signals.fatal() => return Err(interrupted(settings, signal)),
            opened = address.url().open() => opened,
            () = until(give_up_at) => {
                let silent = match settings.try_now {
                    true => "it did not reply in time; --max-wait gives it more time",
                    false => "it did not reply in time; a longer --max-wait reaches one far away",
                };
                let unreachable = UnavailableKind::Unreachable.to_string();
                let (kind, reason) = last.unwrap_or_else(|| (unreachable, silent.into()));
                return Err(unavailable(settings, address, kind, reason));
            }
        };
        let error = match opened {
            Ok(locker) => return Ok(locker),
            Err(OpenError::Strategy(error)) => error,
            Err(error) => {
                let reason = address.explain(Failure::of(&error).to_string());
                return Err(refused(settings, reason));
            }
        };
        let (kind, reason) = (kind(&error), Failure::of(&error).to_string());
        let is_long = give_up_at.is_none() && attempts > LONG_PAUSE.1;
        let again_at = BootClock.now().after(if is_long { LONG_PAUSE.0 } else { PAUSE });
        if error.is_permanent() || give_up_at.is_some_and(|give_up_at| again_at >= give_up_at) {
            return Err(unavailable(settings, address, kind, reason));
        }
        if last.is_none() && give_up_at.is_none() {
            let (kind, reason) = (kind.clone(), reason.clone());
            settings.reporter.report(&Event::Waiting { kind, reason });
        }
        last = Some((kind, reason));
        tokio::select! {
            biased;
            signal = signals.fatal() => return Err(interrupted(settings, signal)),
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

/// Why a server is unavailable, for programs.
fn kind(error: &Error) -> String {
    match error {
        Error::Unavailable { kind, .. } => kind.to_string().replace(' ', "_"),
        Error::Unknown => "unknown".into(),
        _ => "failed".into(),
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
    let give_up_at = if settings.try_now { Some(Instant::default()) } else { give_up_at };
    let rest = give_up_at.map(|at| MaxWait::AtMost(at.since(BootClock.now())));
    let options = settings.lock.clone().max_wait(rest.unwrap_or(MaxWait::Forever));
    let request = locker.lock_with(settings.key.as_str(), options);
    let granted = tokio::select! {
        biased;
        signal = signals.fatal() => return Err(interrupted(settings, signal)),
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
    let mut reason = reason(&error);
    let mut code = settings.exit_not_acquired;
    if let Error::Held(Some(contention)) | Error::TimedOut(Some(contention)) = &error
        && contention.holder.as_ref().is_some_and(has_ended)
    {
        reason.push_str(HOLDER_HAS_ENDED);
        code = NOT_ACQUIRED;
    }
    let event = match error {
        Error::Held(contention) => {
            Event::Held { holder: contention.and_then(|it| it.holder), reason }
        }
        Error::TimedOut(contention) => {
            let waited_ms = ms(settings.waited());
            Event::TimedOut { holder: contention.and_then(|it| it.holder), waited_ms, reason }
        }
        Error::InvalidKey { .. } | Error::InvalidOptions { .. } => {
            return Err(refused(settings, reason));
        }
        error => return Err(unavailable(settings, address, kind(&error), reason)),
    };
    settings.reporter.report(&event);
    Err(code)
}

/// Whether this process of this host does not run any more. A container sees only its own processes
/// and cannot know.
fn has_ended(holder: &Owner) -> bool {
    let sees_all = || fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it == Path::new(ALL_PIDS));
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
    // A process of another user exists, although it takes no signal.
    let is_here = || pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
    Owner::this_process(None).host == holder.host && sees_all() && !is_here()
}

fn unavailable(settings: &Settings, address: &Address, kind: String, reason: String) -> u8 {
    let (server, reason) = (address.shown().to_owned(), address.explain(reason));
    settings.reporter.report(&Event::Unavailable { kind, server, reason });
    UNAVAILABLE
}

fn refused(settings: &Settings, problem: impl Display) -> u8 {
    let problem = format!("{problem}; not run");
    settings.reporter.report(&Event::Failed { problem });
    WRONG_USE
}

/// A signal ended the run before its command started. The exit code is as shells show it.
pub(super) fn interrupted(settings: &Settings, signal: Signal) -> u8 {
    settings.reporter.report(&Event::Interrupted { signal: signals::name(signal) });
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

/// Waits for the reply to the last request. `None` if it takes `GRACE` longer than `most`, or than
/// a signal: `request_timeout` can be an hour.
async fn reply<T>(
    signals: &mut Signals,
    most: Duration,
    request: impl Future<Output = T>,
) -> Option<T> {
    let is_over = async {
        tokio::select! {
            _ = signals.fatal() => {}
            () = tokio::time::sleep(most) => {}
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        reply = request => Some(reply),
        () = is_over => None,
    }
}

/// Unlocks after the command has ended. A failure changes no exit code.
pub(super) async fn unlock(
    settings: &Settings,
    address: &Address,
    locker: &Locker,
    guard: Guard,
    signals: &mut Signals,
) {
    let most = guard.remaining().max(PATIENCE);
    let unlocked = reply(signals, most, guard.unlock()).await;
    let Err(error) = unlocked.unwrap_or(Err(Error::Unknown)) else {
        return settings.reporter.report(&Event::Unlocked);
    };
    let (server, reason) = (address.shown(), reason(&error));
    let consequence = match error {
        // The reason says that the lock was lost.
        Error::NotHolder | Error::Expired => String::new(),
        _ => format!("; it is free within {}", format_duration(settings.lease())),
    };
    let reason = format!("was not unlocked at {server}: {reason}{consequence}");
    settings.reporter.report(&Event::NotUnlocked { reason });
    close(locker).await;
}

/// Keeps the lock until then without this process, by one extension of its lease. One that fails is
/// repeated while the lock is held, or until a signal.
pub(super) async fn keep(settings: &Settings, guard: Guard, until: Instant, signals: &mut Signals) {
    let kept = loop {
        let rest = until.since(BootClock.now());
        if rest.is_zero() {
            break Ok(rest);
        }
        let extend = guard.extend(rest.max(DURATION_MIN));
        let extended = reply(signals, guard.remaining(), extend).await;
        let is_stopped = extended.is_none();
        let Err(error) = extended.unwrap_or(Err(Error::Unknown)) else { break Ok(rest) };
        let is_over = is_stopped || error.is_permanent() || !guard.is_valid();
        let is_ended = is_over
            || tokio::select! {
                biased;
                _ = signals.fatal() => true,
                () = BootClock.sleep_until(BootClock.now().after(PAUSE)) => false,
            };
        if is_ended {
            break Err(error);
        }
    };
    settings.reporter.report(&match kept {
        // The local deadline is earlier than the end of the lease, by the drift of clocks.
        Ok(rest) => {
            let free_in = (guard.remaining() + settings.lease() / 50).max(rest);
            Event::Kept { for_ms: ms(free_in) }
        }
        Err(error) => Event::NotKept { reason: reason(&error) },
    });
    let _ = guard.into_lock();
}

/// The reason of a failure. The library's advice for an unknown outcome is of use to programs only.
fn reason(error: &Error) -> String {
    match error {
        Error::Unknown => "no reply in time, it may have taken effect".into(),
        error => Failure::of(error).to_string(),
    }
}

/// Sends pending requests, such as a withdrawal.
pub(super) async fn close(locker: &Locker) {
    let _ = tokio::time::timeout(PATIENCE, locker.close()).await;
}
