//! Goal: the client core makes each transition of Nessy's claim machine, over HTTP.
//! Method: one row for each of the 57 transitions, with a server that answers by a script, in virtual
//! time. Rows in which the requests differ from Nessy's say so.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod http_support;

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{Error, KeyedMutex, Lock, LockOptions, clock::TokioClock};
use http_support::{Scripted, open};
use tokio::{task::JoinHandle, time::sleep};

/// What the program does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Locks, and waits for the outcome.
    Lock,
    /// Locks in a task.
    Start,
    /// Drops the call of that task.
    Cancel,
    Extend,
    /// Extends in a task.
    StartExtend,
    Unlock,
    /// The signal: closes the handle.
    Close,
}
use Act::{Cancel, Close, Extend, Lock as Take, Start, StartExtend, Unlock};

/// The transition, what the program does, the answers to each kind of request (the last one is
/// repeated), the requests (`+`: several times) and the outcomes.
type Row = (
    &'static str,
    &'static [Act],
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

const GRANTED: (&str, &str) = ("POST", "201");
const HANGS: (&str, &str) = ("POST", "hang");
const WAITS: (&str, &str) = ("POST", "202 hang");
const FREED: (&str, &str) = ("released", "204");
const GONE: (&str, &str) = ("withdrawn", "204");

/// Here an active claim is released, where Nessy aborts it. A claim without an answer is withdrawn,
/// where Nessy leaves it. The `POST` is repeated, where Nessy sends `status=active`.
const ROWS: [Row; 57] = [
    ("new -> Registering", &[Take], &[GRANTED], "POST", "granted"),
    ("Aborting -> aborted: 204", &[Take, Close], &[GRANTED, FREED], "POST released", "granted"),
    (
        "Aborting -> done: signal",
        &[Take, Close, Close],
        &[GRANTED, ("released", "hang")],
        "POST released",
        "granted",
    ),
    (
        "Aborting -> done: timeout",
        &[Take, Close],
        &[GRANTED, ("released", "hang")],
        "POST released",
        "granted",
    ),
    (
        "Aborting -> fail: 4xx",
        &[Take, Close],
        &[GRANTED, ("released", "400")],
        "POST released",
        "granted",
    ),
    (
        "Aborting -> retrying abort: 5xx",
        &[Take, Close],
        &[GRANTED, ("released", "503 204")],
        "POST released+",
        "granted",
    ),
    ("Activating -> Aborted: signal", &[Start, Close], &[WAITS, GONE], "POST+ withdrawn", "Closed"),
    ("Activating -> Withdrawing: timeout", &[Take], &[WAITS, GONE], "POST+ withdrawn", "TimedOut"),
    ("Activating -> active: 200", &[Take], &[("POST", "202 201")], "POST+", "granted"),
    (
        "Activating -> fail: 4xx",
        &[Take],
        &[("POST", "202 bad"), GONE],
        "POST+ withdrawn",
        "Unavailable",
    ),
    (
        "Activating -> retrying activate: 5xx",
        &[Take],
        &[("POST", "202 503 201")],
        "POST+",
        "granted",
    ),
    ("Activating -> waiting: 409", &[Take], &[("POST", "202 202 201")], "POST+", "granted"),
    ("Registering -> done: signal", &[Start, Close], &[HANGS, GONE], "POST withdrawn", "Closed"),
    ("Registering -> done: timeout", &[Take], &[HANGS, GONE], "POST withdrawn", "TimedOut"),
    ("Registering -> fail: 4xx", &[Take], &[("POST", "bad")], "POST", "Unavailable"),
    ("Registering -> retrying register: 5xx", &[Take], &[("POST", "503 201")], "POST+", "granted"),
    ("Registering -> waiting: 201", &[Take], &[GRANTED], "POST", "granted"),
    ("Registering -> waiting: 202", &[Start], &[WAITS, GONE], "POST+ withdrawn", "TimedOut"),
    (
        "Releasing -> done: signal",
        &[Take, Unlock, Close],
        &[GRANTED, ("released", "hang")],
        "POST released",
        "granted Unknown",
    ),
    (
        "Releasing -> done: timeout",
        &[Take, Unlock],
        &[GRANTED, ("released", "hang")],
        "POST released",
        "granted Unknown",
    ),
    (
        "Releasing -> fail: 4xx",
        &[Take, Unlock],
        &[GRANTED, ("released", "400")],
        "POST released",
        "granted NotHolder",
    ),
    (
        "Releasing -> released: 204",
        &[Take, Unlock],
        &[GRANTED, FREED],
        "POST released",
        "granted ok",
    ),
    (
        "Releasing -> retrying release: 5xx",
        &[Take, Unlock],
        &[GRANTED, ("released", "503 204")],
        "POST released+",
        "granted ok",
    ),
    (
        "Renewing -> Aborting: signal",
        &[Take, StartExtend, Close],
        &[GRANTED, ("ttl", "hang"), FREED],
        "POST ttl released",
        "granted Closed",
    ),
    (
        "Renewing -> Releasing: release",
        &[Take, StartExtend, Unlock],
        &[GRANTED, ("ttl", "hang"), FREED],
        "POST ttl released",
        "granted ok Unknown",
    ),
    (
        "Renewing -> active: 200",
        &[Take, Extend],
        &[GRANTED, ("ttl", "200")],
        "POST ttl",
        "granted ok",
    ),
    (
        "Renewing -> fail: 4xx",
        &[Take, Extend],
        &[GRANTED, ("ttl", "400")],
        "POST ttl",
        "granted NotHolder",
    ),
    (
        "Renewing -> retrying renew: 5xx",
        &[Take, Extend],
        &[GRANTED, ("ttl", "503 200")],
        "POST ttl+",
        "granted ok",
    ),
    (
        "Withdrawing -> done: signal",
        &[Start, Cancel, Close],
        &[HANGS, ("withdrawn", "hang")],
        "POST withdrawn",
        "",
    ),
    (
        "Withdrawing -> done: timeout",
        &[Start, Cancel],
        &[HANGS, ("withdrawn", "hang")],
        "POST withdrawn",
        "",
    ),
    (
        "Withdrawing -> fail: 4xx",
        &[Start, Cancel],
        &[HANGS, ("withdrawn", "400")],
        "POST withdrawn",
        "",
    ),
    (
        "Withdrawing -> retrying withdraw: 5xx",
        &[Start, Cancel],
        &[HANGS, ("withdrawn", "503 204")],
        "POST withdrawn+",
        "",
    ),
    ("Withdrawing -> withdrawn: 204", &[Start, Cancel], &[HANGS, GONE], "POST withdrawn", ""),
    ("active -> Aborting: signal", &[Take, Close], &[GRANTED, FREED], "POST released", "granted"),
    (
        "active -> Releasing: release",
        &[Take, Unlock],
        &[GRANTED, FREED],
        "POST released",
        "granted ok",
    ),
    (
        "active -> Renewing: timer",
        &[Take, Extend],
        &[GRANTED, ("ttl", "200")],
        "POST ttl",
        "granted ok",
    ),
    (
        "retrying abort -> Aborting: timer",
        &[Take, Close],
        &[GRANTED, ("released", "503 503 204")],
        "POST released+",
        "granted",
    ),
    (
        "retrying abort -> done: signal",
        &[Take, Close, Close],
        &[GRANTED, ("released", "503")],
        "POST released+",
        "granted",
    ),
    (
        "retrying abort -> done: timeout",
        &[Take, Close],
        &[GRANTED, ("released", "503")],
        "POST released+",
        "granted",
    ),
    (
        "retrying activate -> Aborting: signal",
        &[Start, Close],
        &[("POST", "202 503"), GONE],
        "POST+ withdrawn",
        "Closed",
    ),
    (
        "retrying activate -> Activating: timer",
        &[Take],
        &[("POST", "202 503 503 201")],
        "POST+",
        "granted",
    ),
    (
        "retrying activate -> Withdrawing: timeout",
        &[Take],
        &[("POST", "202 503"), GONE],
        "POST+ withdrawn",
        "TimedOut",
    ),
    (
        "retrying register -> Registering: timer",
        &[Take],
        &[("POST", "503 503 201")],
        "POST+",
        "granted",
    ),
    (
        "retrying register -> done: signal",
        &[Start, Close],
        &[("POST", "503"), GONE],
        "POST+ withdrawn",
        "Closed",
    ),
    (
        "retrying register -> done: timeout",
        &[Take],
        &[("POST", "503"), GONE],
        "POST+ withdrawn",
        "Unavailable",
    ),
    (
        "retrying release -> Releasing: timer",
        &[Take, Unlock],
        &[GRANTED, ("released", "503 503 204")],
        "POST released+",
        "granted ok",
    ),
    (
        "retrying release -> done: signal",
        &[Take, Unlock, Close],
        &[GRANTED, ("released", "503")],
        "POST released+",
        "granted Unknown",
    ),
    (
        "retrying release -> done: timeout",
        &[Take, Unlock],
        &[GRANTED, ("released", "503")],
        "POST released+",
        "granted Unknown",
    ),
    (
        "retrying renew -> Aborting: signal",
        &[Take, StartExtend, Close],
        &[GRANTED, ("ttl", "503"), FREED],
        "POST ttl+ released",
        "granted Closed",
    ),
    (
        "retrying renew -> Releasing: release",
        &[Take, StartExtend, Unlock],
        &[GRANTED, ("ttl", "503 hang"), FREED],
        "POST ttl+ released",
        "granted ok Unknown",
    ),
    (
        "retrying renew -> Renewing: timer",
        &[Take, Extend],
        &[GRANTED, ("ttl", "503 503 200")],
        "POST ttl+",
        "granted ok",
    ),
    (
        "retrying withdraw -> Withdrawing: timer",
        &[Start, Cancel],
        &[HANGS, ("withdrawn", "503 503 204")],
        "POST withdrawn+",
        "",
    ),
    (
        "retrying withdraw -> done: signal",
        &[Start, Cancel, Close],
        &[HANGS, ("withdrawn", "503")],
        "POST withdrawn+",
        "",
    ),
    (
        "retrying withdraw -> done: timeout",
        &[Start, Cancel],
        &[HANGS, ("withdrawn", "503")],
        "POST withdrawn+",
        "",
    ),
    ("waiting -> Aborting: signal", &[Start, Close], &[WAITS, GONE], "POST+ withdrawn", "Closed"),
    ("waiting -> Activating: timer", &[Take], &[("POST", "202 201")], "POST+", "granted"),
    ("waiting -> Withdrawing: timeout", &[Take], &[WAITS, GONE], "POST+ withdrawn", "TimedOut"),
];

fn outcome<T>(result: Result<T, Error>, success: &str) -> String {
    match result {
        Ok(_) => success.into(),
        Err(Error::TimedOut(_)) => "TimedOut".into(),
        Err(Error::NotHolder) => "NotHolder".into(),
        Err(Error::Unavailable { .. }) => "Unavailable".into(),
        Err(Error::Unknown) => "Unknown".into(),
        Err(Error::Closed) => "Closed".into(),
        Err(other) => other.to_string(),
    }
}

const LEASE: Duration = Duration::from_secs(60);
/// Longer than a request without a wait.
const SETTLED: Duration = Duration::from_millis(50);

async fn requests_and_outcomes(acts: &[Act], server: &Scripted) -> (String, String) {
    let client = Arc::new(open(vec![server.clone()], Arc::new(TokioClock::new())));
    let (mut outcomes, mut held): (Vec<String>, Option<Lock>) = (Vec::new(), None);
    let mut started: Option<JoinHandle<String>> = None;
    let mut watches = Vec::new();
    let wants = LockOptions::default().duration(LEASE).max_wait(Duration::from_secs(2));
    for act in acts {
        match act {
            Act::Lock => {
                let result = client.lock("k", wants.clone()).await;
                held = result.as_ref().ok().cloned();
                watches.extend(held.iter().map(|lock| client.watch(lock)));
                outcomes.push(outcome(result, "granted"));
            }
            Act::Start => {
                let (client, wants) = (client.clone(), wants.clone());
                let call = async move { outcome(client.lock("k", wants).await, "granted") };
                started = Some(tokio::spawn(call));
                sleep(SETTLED).await;
            }
            Act::Cancel => {
                let call = started.take().unwrap();
                call.abort();
                let _ = call.await;
            }
            Act::Extend => {
                outcomes.push(outcome(client.extend(held.as_ref().unwrap(), LEASE).await, "ok"));
            }
            Act::StartExtend => {
                let (client, lock) = (client.clone(), held.clone().unwrap());
                let call = async move { outcome(client.extend(&lock, LEASE).await, "ok") };
                started = Some(tokio::spawn(call));
                sleep(SETTLED).await;
            }
            Act::Unlock => {
                outcomes.push(outcome(client.unlock(held.as_ref().unwrap()).await, "ok"));
            }
            Act::Close => client.close().await,
        }
    }
    if let Some(call) = started {
        outcomes.push(call.await.unwrap());
    }
    sleep(Duration::from_secs(3)).await;
    (server.summary(), outcomes.join(" "))
}

#[tokio::test(start_paused = true)]
async fn each_transition_sends_its_requests() {
    let mut wrong = Vec::new();
    for (transition, acts, answers, requests, outcomes) in ROWS {
        let found = requests_and_outcomes(acts, &Scripted::new(answers)).await;
        let expected = (requests.to_owned(), outcomes.to_owned());
        if found != expected {
            wrong.push(format!("{transition}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
