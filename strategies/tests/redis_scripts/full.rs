//! Goal: a server whose memory is full refuses only LOCK, and before its first write (contract,
//! rule 9). Method: every verb in every state of a key, with `maxmemory` of one byte; the content
//! of Redis is compared.

use std::collections::BTreeMap;

use redis::Value;

use super::scripts::*;

/// The state of the key when memory becomes full.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Free,
    Held,
    /// The holder came from the queue.
    HeldFromQueue,
    /// By a LOCK of which copies may be in flight.
    HeldRepeated,
    /// Nonce 1 holds, nonces 2 and 3 wait.
    Waited,
    /// The same, and the lease is over.
    Expired,
    /// The lease of a holder that came from the queue is over, and one waits.
    ExpiredFromQueue,
    /// The first waiter's process is silent.
    DeadHead,
    /// The first waiter's process is silent, and so were all others for a while.
    Standstill,
    /// A nonce is remembered.
    Remembers,
}

const STATES: [State; 10] = [
    State::Free,
    State::Held,
    State::HeldFromQueue,
    State::HeldRepeated,
    State::Waited,
    State::Expired,
    State::ExpiredFromQueue,
    State::DeadHead,
    State::Standstill,
    State::Remembers,
];

async fn bring_about(scripts: &mut Scripts, state: State) {
    match state {
        State::Free => {}
        State::Held => drop(scripts.lock(1, 60_000, 0, false).await),
        State::HeldRepeated => drop(scripts.lock(1, 60_000, 0, true).await),
        State::HeldFromQueue | State::ExpiredFromQueue => {
            scripts.lock(9, 60_000, 0, false).await;
            scripts.lock(1, 60_000, -1, false).await;
            scripts.unlock(9, false).await;
            if state == State::ExpiredFromQueue {
                scripts.lock(2, 60_000, -1, false).await;
                scripts.expire().await;
            }
        }
        State::Remembers => drop(scripts.unlock(8, true).await),
        State::Waited | State::Expired | State::DeadHead | State::Standstill => {
            scripts.lock(1, 60_000, 0, false).await;
            scripts.lock_as(2, 2, 60_000, -1, false).await;
            scripts.lock(3, 60_000, -1, true).await;
        }
    }
    match state {
        State::Expired => scripts.expire().await,
        State::DeadHead => {
            let _: Value = scripts.server.command(&["HSET", WAITERS, &alive(2), "1"]).await;
        }
        State::Standstill => {
            let now: Vec<u64> = scripts.server.command(&["TIME"]).await;
            let now = now[0] * 1000 + now[1] / 1000;
            let heard = format!("{} 0 0", now - 5_000);
            let over = (now - 1_000).to_string();
            let fields = [alive(1), over.clone(), alive(2), over, "#r".into(), heard];
            let mut words = vec!["HSET", WAITERS];
            words.extend(fields.iter().map(String::as_str));
            let _: Value = scripts.server.command(&words).await;
        }
        _ => {}
    }
}

fn alive(process: u8) -> String {
    format!("@{process:032x}")
}

/// The fields of the hash, whose dump has no fixed order, and dumps of the rest.
pub(super) type Dump = (BTreeMap<String, String>, Vec<Option<Vec<u8>>>);

/// Everything in Redis.
pub(super) async fn dump(scripts: &Scripts) -> Dump {
    let mut dumps = Vec::new();
    for name in NAMES.into_iter().filter(|name| *name != WAITERS) {
        dumps.push(scripts.server.command(&["DUMP", name]).await);
    }
    (scripts.server.command(&["HGETALL", WAITERS]).await, dumps)
}

#[tokio::test]
async fn full_memory_refuses_whole_scripts() {
    let nonces = [hex(1), hex(2), hex(5)];
    let mut scripts = Scripts::start().await;
    for state in STATES {
        for verb in [LOCK, UNLOCK, EXTEND, POLL, INSPECT] {
            for nonce in &nonces {
                for copies in ["-", "c"] {
                    let _: Value = scripts.server.command(&["FLUSHALL"]).await;
                    bring_about(&mut scripts, state).await;
                    let before = dump(&scripts).await;
                    let value: Option<String> = scripts.server.command(&["GET", HOLDER]).await;
                    let token = value.iter().flat_map(|value| value.split(' ')).nth(2);
                    let full = ["CONFIG", "SET", "maxmemory", "1"];
                    let _: Value = scripts.server.command(&full).await;
                    let arguments: &[&str] = match verb {
                        LOCK => &[NEVER, nonce, "60000", "-1", copies, "1 host -"],
                        UNLOCK => &[nonce, token.unwrap_or("0"), copies, ""],
                        EXTEND => &[nonce, "90000", token.unwrap_or("0")],
                        POLL => &[nonce],
                        _ => &[],
                    };
                    let ran = scripts.try_run(verb, 1, arguments).await;
                    let what = format!("{verb} of {nonce} {copies}, {state:?}: {ran:?}");
                    if let Err(error) = ran {
                        assert_eq!(error.code(), Some("OOM"), "{what}");
                        assert_eq!(verb, LOCK, "{what}");
                        // Repetitions of a LOCK find what it was granted.
                        assert!(!value.is_some_and(|it| it.starts_with(nonce)), "{what}");
                        assert_eq!(dump(&scripts).await, before, "{what}");
                    }
                    let _: Value =
                        scripts.server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
                    let (queue, asked) = (["EXISTS", QUEUE], ["EXISTS", WAITERS]);
                    let queue = scripts.number(&queue).await;
                    assert_eq!(queue, scripts.number(&asked).await, "{what}");
                }
            }
        }
    }
}
