//! What may not happen, whoever wins. Simple rules, each of which a wrong strategy breaks within a
//! few calls.
//!
//! [`judge`] is the place where a checker of whole histories takes part: [`History`] holds every
//! call with the times of its beginning and end on one clock.

use std::{collections::BTreeMap, fmt, time::Duration};

use gaggle_strategies::{Instant, Nonce};

/// Every call that was made.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) events: Vec<Event>,
}

impl fmt::Display for History {
    /// One call a line, in the order of their ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event:?}"))
    }
}

/// One call.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the client is for messages")]
pub(super) struct Event {
    pub(super) client: usize,
    pub(super) key: String,
    /// `None` where the strategy has not shown it.
    pub(super) nonce: Option<Nonce>,
    pub(super) what: What,
    /// `Ok`, `dropped`, or the error's name.
    pub(super) outcome: &'static str,
    pub(super) invoked: Instant,
    pub(super) returned: Instant,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Lock {
        wait: Duration,
        /// Token and local deadline.
        granted: Option<(u64, Instant)>,
    },
    Unlock {
        deadline: Option<Instant>,
    },
    Extend {
        deadline: Option<Instant>,
        to: Option<Instant>,
    },
}

/// What a call may take beyond its limit: a turn of the member.
const SLACK: Duration = Duration::from_millis(50);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

type Verdict = Result<(), String>;

/// Judges a history; `faulty` where frames were lost or delayed.
pub(super) fn judge(history: &History, faulty: bool) -> Verdict {
    let events = &history.events;
    for event in events {
        ends_in_time(event)?;
        outcome_is_legal(event, faulty)?;
        not_holder_has_a_cause(event, events)?;
    }
    let holds = holds(events)?;
    tokens_rise(events)?;
    exclusion(&holds)
}

fn ends_in_time(event: &Event) -> Verdict {
    let limit = match event.what {
        What::Lock { wait, .. } if !wait.is_zero() => wait,
        _ => REQUEST_TIMEOUT,
    };
    let took = event.returned.since(event.invoked);
    require(took <= limit + SLACK, || format!("took {took:?}: {event:?}"))
}

fn outcome_is_legal(event: &Event, faulty: bool) -> Verdict {
    let legal = match event.what {
        What::Lock { wait, .. } => match event.outcome {
            "Ok" | "dropped" | "TimedOut" => true,
            "Held" => wait.is_zero(),
            "Unavailable" | "Unknown" => faulty,
            _ => false,
        },
        What::Unlock { .. } | What::Extend { .. } => match event.outcome {
            "Ok" | "NotHolder" | "Expired" => true,
            "Unavailable" | "Unknown" => faulty,
            _ => false,
        },
    };
    require(legal, || format!("no such outcome is possible: {event:?}"))
}

/// Before its deadline a lock is only gone where somebody gave it up.
fn not_holder_has_a_cause(event: &Event, events: &[Event]) -> Verdict {
    let deadline = match event.what {
        What::Unlock { deadline } | What::Extend { deadline, .. } => deadline,
        What::Lock { .. } => return Ok(()),
    };
    match event.outcome {
        "NotHolder" => {
            let mut others = events.iter().filter(|other| !std::ptr::eq(*other, event));
            let caused =
                others.any(|other| other.invoked <= event.returned && gives_up(other, event.nonce));
            require(caused, || format!("lost before its deadline: {event:?}"))
        }
        "Expired" => {
            let due = deadline.is_some_and(|deadline| event.returned >= deadline);
            require(due, || format!("expired before its deadline: {event:?}"))
        }
        _ => Ok(()),
    }
}

/// Whether the call may have ended the acquisition of `nonce`.
fn gives_up(event: &Event, nonce: Option<Nonce>) -> bool {
    event.nonce == nonce && matches!(event.what, What::Unlock { .. })
}

/// One acquisition, from when its first holder knew to when its last could not rely on it.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the nonce is for messages")]
struct Hold {
    key: String,
    nonce: Nonce,
    token: u64,
    from: Instant,
    until: Instant,
}

fn holds(events: &[Event]) -> Result<Vec<Hold>, String> {
    let mut holds: BTreeMap<Nonce, Hold> = BTreeMap::new();
    for event in events {
        let What::Lock { granted: Some((token, deadline)), .. } = event.what else { continue };
        let nonce = event.nonce.expect("a grant shows its nonce");
        let (key, from) = (event.key.clone(), event.returned);
        let hold = Hold { key, nonce, token, from, until: deadline };
        let known = holds.entry(nonce).or_insert_with(|| hold.clone());
        require(known.token == token, || format!("one nonce, two tokens: {known:?}, {hold:?}"))?;
        known.from = known.from.min(hold.from);
        known.until = known.until.max(hold.until);
    }
    for event in events {
        let Some(hold) = event.nonce.and_then(|nonce| holds.get_mut(&nonce)) else { continue };
        if let What::Extend { to: Some(to), .. } = event.what {
            hold.until = hold.until.max(to);
        }
    }
    for event in events {
        let Some(hold) = event.nonce.and_then(|nonce| holds.get_mut(&nonce)) else { continue };
        if gives_up(event, event.nonce) {
            hold.until = hold.until.min(event.invoked.max(hold.from));
        }
    }
    Ok(holds.into_values().collect())
}

/// Of two acquisitions of a key, one after the other, the later has the greater token.
fn tokens_rise(events: &[Event]) -> Verdict {
    let grants = || {
        events.iter().filter_map(|event| match event.what {
            What::Lock { granted: Some((token, _)), .. } => Some((event, token)),
            _ => None,
        })
    };
    for (one, earlier) in grants() {
        for (other, later) in grants().filter(|(other, _)| other.key == one.key) {
            let apart = one.nonce != other.nonce;
            require(!apart || earlier != later, || format!("one token twice: {one:?}, {other:?}"))?;
            let after = apart && one.returned < other.invoked;
            require(!after || earlier < later, || format!("tokens fall: {one:?}, {other:?}"))?;
        }
    }
    Ok(())
}

/// No two holders at one time, each by its own local deadline.
fn exclusion(holds: &[Hold]) -> Verdict {
    let mut relied_on: Vec<_> = holds.iter().collect();
    // One that was given up in its first moment is before others of that moment.
    relied_on.sort_by_key(|hold| (hold.from, hold.until));
    for (at, one) in relied_on.iter().enumerate() {
        for other in relied_on[at + 1..].iter().filter(|other| other.key == one.key) {
            let apart = one.until <= other.from;
            require(apart, || format!("two holders: {one:?}, {other:?}"))?;
        }
    }
    Ok(())
}

fn require(holds: bool, broken: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(broken()) }
}
