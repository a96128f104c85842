//! The list of the cases, and the functions that run them.

use std::{panic::AssertUnwindSafe, pin::Pin};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

use super::{
    CASE_VARIABLE, Case, CaseReport, Fixture, Outcome, Report,
    cases::{basic, fences, identity, limits, operator, queue, time},
    context::{Context, Stop, Verdict},
    processes,
    watchdog::Watchdog,
};

type Run = for<'a> fn(&'a Context<'a>) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

macro_rules! case {
    ($number:literal, $module:ident :: $name:ident, $rule:literal) => {
        (Case { number: $number, name: stringify!($name), rule: $rule }, |context| {
            Box::pin($module::$name(context))
        })
    };
}

/// All cases, in the order of the numbers.
const CASES: [(Case, Run); 43] = [
    case!(1, basic::a_free_key_is_granted_at_once, "trait: lock"),
    case!(2, basic::a_second_lock_waits, "trait: lock"),
    case!(3, basic::an_unlock_wakes_a_waiter, "trait: unlock"),
    case!(4, basic::keys_are_independent, "rule 1"),
    case!(5, basic::one_attempt_takes_a_free_key, "trait: lock"),
    case!(6, basic::one_attempt_on_a_held_key_is_refused_at_once, "outcomes: Held"),
    case!(7, basic::dropping_a_guard_unlocks, "rule 11"),
    case!(8, basic::a_forgotten_lock_ends_with_its_lease, "rule 9"),
    case!(9, basic::a_second_unlock_is_refused, "outcomes: NotHolder"),
    case!(10, basic::an_unlock_of_what_was_never_locked_is_refused, "outcomes: NotHolder"),
    case!(11, time::a_waiter_is_granted_when_the_lease_ends, "rule 3"),
    case!(12, time::no_waiter_is_granted_before_the_holder_gave_up, "rules 1 and 2"),
    case!(13, time::max_wait_runs_out_and_leaves_nothing, "outcomes: TimedOut"),
    case!(14, time::max_wait_just_below_and_just_above_the_lease, "rule 8"),
    case!(15, time::a_duration_of_zero_is_refused, "limits"),
    case!(16, time::max_wait_may_be_a_day_or_unbounded, "limits"),
    case!(17, time::a_duration_may_be_a_day_and_no_longer, "limits"),
    case!(18, time::extend_lengthens_and_never_shortens, "rule 4"),
    case!(19, time::extend_never_creates_a_lock_again, "trait: extend"),
    case!(20, time::extend_by_another_nonce_is_refused, "trait: extend"),
    case!(21, identity::an_unlock_by_another_nonce_is_refused, "trait: unlock"),
    case!(22, identity::an_unlock_after_expiry_spares_the_new_holder, "outcomes: Expired"),
    case!(23, identity::a_new_nonce_of_the_same_client_waits, "words: nonce"),
    case!(24, fences::tokens_rise_per_key, "rule 5"),
    case!(25, fences::tokens_rise_across_expiry, "rule 5"),
    case!(26, fences::tokens_rise_across_a_restart, "rule 5"),
    case!(27, fences::tokens_rise_across_a_change_of_leader, "rules 3 and 5"),
    case!(28, fences::a_resource_rejects_the_stale_write, "trait: Lock"),
    case!(29, queue::waiters_are_served_in_order_or_at_least_all, "what differs: order"),
    case!(30, queue::a_cancelled_waiter_is_skipped, "rule 7"),
    case!(31, queue::a_waiter_cancelled_at_its_grant_passes_it_on, "rule 7"),
    case!(32, queue::many_waiters_are_all_served_once, "rules 1 and 7"),
    case!(33, queue::a_dropped_call_leaves_nothing_behind, "rules 7 and 11"),
    case!(34, limits::keys_are_kept_apart_and_checked, "limits"),
    case!(35, limits::many_keys_give_their_memory_back, "rule 11"),
    case!(36, limits::every_call_ends_while_the_backend_is_down, "rule 8"),
    case!(37, limits::the_client_recovers_with_its_backend, "rule 9"),
    case!(38, limits::closing_wakes_every_waiter, "trait: close"),
    case!(39, operator::a_listing_shows_held_keys_and_waiters, "operators"),
    case!(40, operator::a_forced_unlock_notifies_and_passes_on, "operators"),
    case!(41, operator::a_forced_unlock_spares_another_token, "operators"),
    case!(42, processes::processes_lose_no_increment, "rules 1 and 9"),
    case!(43, queue::unlock_all_ends_waits_before_it_unlocks, "trait: unlock_all"),
];

/// The list of the cases.
pub fn cases() -> impl Iterator<Item = Case> {
    CASES.iter().map(|(case, _)| *case)
}

/// Runs all cases, one after the other, each on distinct keys, or only the case that
/// [`CASE_VARIABLE`] names. In a process of [`Fixture::worker`] it makes the increments of case 42,
/// and ends the process.
///
/// # Panics
///
/// When [`CASE_VARIABLE`] is set and names no case. A panic inside a case fails that case only.
pub async fn run(fixture: &dyn Fixture) -> Report {
    processes::work(fixture).await;
    let chosen = std::env::var(CASE_VARIABLE).ok().map(|text| {
        let number = text.parse().ok().filter(|number| (1..=43).contains(number));
        number.expect("GAGGLE_CASE is the number of a case, 1 to 43")
    });
    fixture.settle().await;
    let handle = fixture.open().await;
    let strategy = handle.capabilities().strategy;
    fixture.done(handle).await;

    let mut report = Report { strategy, cases: Vec::new() };
    for case in cases().filter(|case| chosen.is_none_or(|number: u8| number == case.number)) {
        report.cases.push(run_case(fixture, case.number).await);
    }
    report
}

/// Runs one case, whose name it prints.
///
/// A case that exceeds [`Fixture::time_limit`] has failed. One that has not ended after twice as
/// much real time ends the process with status 101 and a message on stderr that names it: a
/// strategy that never yields blocks the runtime, and nothing in it can report that.
///
/// # Panics
///
/// When there is no case of this number; they go from 1 to 43.
pub async fn run_case(fixture: &dyn Fixture, number: u8) -> CaseReport {
    let found = CASES.iter().find(|(case, _)| case.number == number);
    let (case, run) = found.expect("cases are numbered 1 to 43");
    println!("conformance case {number} {}", case.name);
    let limit = fixture.time_limit();
    let _watchdog = Watchdog::start(format!("{number} {}", case.name), limit * 2);
    fixture.settle().await;

    let context = Context::new(fixture, number);
    let started = Instant::now();
    let outcome = match timeout(limit, AssertUnwindSafe(run(&context)).catch_unwind()).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(stop))) => stop.into(),
        Ok(Err(panic)) => Outcome::Failed(format!("panicked: {}", message(&*panic))),
        Err(_) => Stop::Failed(format!("not finished within {limit:?}")).into(),
    };
    let took = started.elapsed();
    for handle in context.opened() {
        fixture.done(handle).await;
    }
    CaseReport { case: *case, outcome, took }
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
