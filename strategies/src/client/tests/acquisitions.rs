//! Goal: `lock` checks, waits, retries and withdraws by the contract, and returns only locks with
//! half of their lease left.
//! Method: a handle and its driver in virtual time, and a scripted granting side.

use std::collections::BTreeSet;

use tokio::time::timeout;

use super::{
    scripted::{Script, Scripted, obliging, open, silent},
    *,
};
use crate::{client::Client, options::LockOptions, options::MaxWait};

fn options(max_wait: impl Into<MaxWait>) -> LockOptions {
    LockOptions::default().duration(LEASE).max_wait(max_wait)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The LOCKs among these commands, by nonce.
fn nonces(script: &Script) -> Vec<Nonce> {
    let nonce = |command: &Command| match command {
        Command::Lock { nonce, .. } => Some(*nonce),
        _ => None,
    };
    script.sent().iter().filter_map(nonce).collect()
}

fn now(client: &Client<Scripted>) -> Instant {
    client.clock().now()
}

#[tokio::test(start_paused = true)]
async fn grant_has_the_terms_of_its_call() {
    let (client, script) = open(profile(false), obliging);
    let options = options(ms(0)).duration(Duration::from_micros(9_500_400)).label("nightly");
    let lock = client.lock("k", &options).await.unwrap();
    assert_eq!((&**lock.key(), lock.fencing_token()), ("k", 41));
    assert_eq!(lock.deadline(), Some(at(9_500 - 95 - 1)));
    tokio::time::sleep(ms(1)).await;
    let sent = script.sent();
    let [Command::Lock { lease, owner, .. }] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((*lease, owner.label.as_deref()), (ms(9_500), Some("nightly")));
}

#[tokio::test(start_paused = true)]
async fn invalid_request_sends_nothing() {
    let mut profile = profile(false);
    profile.lease_max = ms(20_000);
    let (client, script) = open(profile, obliging);
    let empty = client.lock("", &options(ms(0))).await;
    assert!(matches!(empty, Err(Error::InvalidKey { .. })));
    let long = client.lock("k", &options(ms(0)).duration(ms(20_001))).await;
    assert!(matches!(long, Err(Error::InvalidOptions { field: "duration", .. })));
    assert!(client.lock("k", &options(ms(0)).duration(ms(20_000))).await.is_ok());
    assert_eq!(nonces(&script).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn max_wait_becomes_time_in_the_queue() {
    let five = MaxWait::AtMost(ms(5_000));
    for (queues, max_wait, sent_as, ends) in [
        (true, MaxWait::AtMost(ms(0)), Until::Now, Some(1_000)),
        (true, five, Until::At(at(5_000)), Some(5_000)),
        (true, MaxWait::Forever, Until::Forever, None),
        (false, five, Until::Now, Some(5_000)),
    ] {
        let profile = Profile { queues, ..profile(false) };
        let (client, script) = open(profile, silent);
        let error = timeout(ms(100_000), client.lock("k", &options(max_wait))).await;
        let sent = script.sent();
        let Command::Lock { until, .. } = &sent[0] else { panic!("{sent:?}") };
        assert_eq!((*until, error.is_err()), (sent_as, ends.is_none()));
        match (error, ends) {
            (Ok(Err(Error::Unknown)), Some(1_000)) | (Ok(Err(Error::TimedOut(None))), _) => {
                assert_eq!(Some(at(ends.unwrap())), Some(now(&client)));
            }
            (Err(_), None) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refused_wait_retries_under_fresh_nonces() {
    let refuse = |command: &Command| match command {
        Command::Lock { nonce, .. } => vec![Event::Held { nonce: *nonce }],
        _ => vec![],
    };
    let (client, script) = open(Profile { queues: false, ..profile(false) }, refuse);
    let error = client.lock("k", &options(ms(200))).await;
    assert!(matches!(error, Err(Error::TimedOut(None))), "{error:?}");
    assert_eq!(now(&client), at(200));
    let nonces = nonces(&script);
    // Pauses of 5 to 25 ms.
    assert!((8..=40).contains(&nonces.len()), "{}", nonces.len());
    assert_eq!(nonces.iter().collect::<BTreeSet<_>>().len(), nonces.len());
    let error = client.lock("k", &options(ms(0))).await;
    assert!(matches!(error, Err(Error::Held(None))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn grant_that_ended_unread_is_retried() {
    let mut replies = 0;
    let (client, script) = open(profile(false), move |command| {
        replies += 1;
        match command {
            Command::Lock { nonce, .. } if replies == 1 => vec![Event::Ended { nonce: *nonce }],
            // Granted, and lost in the same turn.
            Command::Lock { nonce, key, .. } if replies == 2 => {
                let (nonce, key, token) = (*nonce, key.clone(), 41);
                let lost = Event::Lost { nonce, key, token, forced: None };
                obliging(command).into_iter().chain([lost]).collect()
            }
            _ => obliging(command),
        }
    });
    client.lock("k", &options(ms(5_000))).await.unwrap();
    assert_eq!(nonces(&script).len(), 3);
    assert!((at(10)..=at(50)).contains(&now(&client)), "two pauses of 5 to 25 ms");
}

/// Grants leases of which 4 s are left, and extends as `extends` says.
fn late(extends: fn(&Command) -> Vec<Event>) -> impl FnMut(&Command) -> Vec<Event> + Send {
    move |command| {
        let mut events = match command {
            Command::Extend { .. } => extends(command),
            _ => obliging(command),
        };
        if let Some(Event::Granted { lease, .. }) = events.first_mut() {
            *lease = ms(4_000).min(*lease);
        }
        events
    }
}

#[tokio::test(start_paused = true)]
async fn late_grant_is_extended_before_it_is_returned() {
    let (client, script) = open(profile(false), late(obliging));
    let lock = client.lock("k", &options(ms(5_000))).await.unwrap();
    assert_eq!(lock.deadline(), Some(at(10_000 - 100 - 1)));
    let sent = script.sent();
    assert!(
        matches!(&sent[..], [Command::Lock { .. }, Command::Extend { lease, .. }] if *lease == LEASE)
    );
}

#[tokio::test(start_paused = true)]
async fn fourth_late_grant_ends_the_call() {
    let refuse = |command: &Command| match command {
        Command::Extend { id, nonce, .. } => {
            vec![Event::Extended { id: *id, nonce: *nonce, token: None }]
        }
        _ => vec![],
    };
    let (client, script) = open(profile(false), late(refuse));
    let error = client.lock("k", &options(MaxWait::Forever)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { kind: UnavailableKind::Unreachable, .. }));
    let text = error.to_string();
    let parts = ["the lease of 10s is too short", "4 grants arrived", "use a duration above twice"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(nonces(&script).len(), 4);
}

/// An extension that is not confirmed ends with the call, or with the request timeout.
#[tokio::test(start_paused = true)]
async fn late_grant_is_not_extended_past_the_wait() {
    for (max_wait, ends) in [(MaxWait::AtMost(ms(300)), 300), (MaxWait::Forever, 4_000)] {
        let (client, script) = open(profile(false), late(silent));
        let error = client.lock("k", &options(max_wait)).await.unwrap_err();
        // The wait is over, or there were four such grants.
        let is_over = matches!(error, Error::TimedOut(None));
        assert_eq!(is_over, max_wait != MaxWait::Forever, "{error:?}");
        assert!(is_over || error.to_string().contains("the last extension took 1s"), "{error}");
        assert!((at(ends)..at(ends + 100)).contains(&now(&client)), "{:?}", now(&client));
        let sent = script.sent();
        let is_unlock = |command: &&Command| matches!(command, Command::Unlock { .. });
        let is_lock = |command: &&Command| matches!(command, Command::Lock { .. });
        tokio::task::yield_now().await;
        let unlocks = sent.iter().chain(&script.sent()).filter(is_unlock).count();
        assert_eq!(unlocks, sent.iter().filter(is_lock).count(), "each is withdrawn");
    }
}

/// No lease of these lasts.
#[tokio::test(start_paused = true)]
async fn drift_beyond_half_the_lease_is_refused() {
    let drift = Drift::from_ppm(400_000).unwrap();
    let (client, script) = open(Profile { drift, ..profile(false) }, obliging);
    let error = client.lock("k", &options(MaxWait::Forever).duration(ms(4))).await;
    assert!(matches!(error, Err(Error::InvalidOptions { field: "duration", .. })), "{error:?}");
    assert_eq!(nonces(&script).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_lock_is_withdrawn() {
    let (client, script) = open(profile(false), silent);
    assert!(timeout(ms(10), client.lock("k", &options(ms(5_000)))).await.is_err());
    tokio::time::sleep(ms(1)).await;
    let sent = script.sent();
    let [Command::Lock { nonce, .. }, Command::Unlock { nonce: withdrawn, .. }] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(nonce, withdrawn);
}

/// A call that ended is not retried under another nonce, and a dropped call withdraws nothing:
/// another process may have taken over its nonce.
#[tokio::test(start_paused = true)]
async fn given_nonce_names_one_acquisition() {
    let given = Nonce::given(7);
    let options = options(ms(5_000)).nonce(Nonce::from_u128(7));
    let ends = |command: &Command| match command {
        Command::Lock { nonce, .. } => vec![Event::Ended { nonce: *nonce }],
        _ => vec![],
    };
    let (client, script) = open(profile(false), ends);
    assert!(matches!(client.lock("k", &options).await, Err(Error::TimedOut(None))));
    assert_eq!((nonces(&script), now(&client)), (vec![given], at(0)));

    let (client, script) = open(profile(false), silent);
    assert!(timeout(ms(10), client.lock("k", &options)).await.is_err());
    assert!(matches!(client.lock("k", &options).await, Err(Error::TimedOut(None))));
    // Late copies of the LOCK.
    obliging(&script.sent()[0]).into_iter().for_each(|granted| script.report(granted));
    tokio::time::sleep(ms(1)).await;
    client.close().await;
    assert!(script.sent().is_empty(), "it sends no UNLOCK");
}

/// The reply was not read: the repeated call gets it again.
#[tokio::test(start_paused = true)]
async fn repeated_given_nonce_gets_the_same_lock() {
    let (client, script) = open(profile(false), obliging);
    let options = options(ms(5_000)).nonce(Nonce::given(7));
    let mut call = Box::pin(client.lock("k", &options));
    assert!(futures_util::poll!(&mut call).is_pending());
    tokio::time::sleep(ms(1)).await;
    drop(call);
    let lock = client.lock("k", &options).await.unwrap();
    assert_eq!((lock.fencing_token(), nonces(&script).len()), (41, 2));
    assert!(script.sent().is_empty(), "it sends no UNLOCK");
}

/// The core ends a pending request, the handle a call between two requests.
#[tokio::test(start_paused = true)]
async fn unlock_all_ends_waits_of_the_prefix() {
    let refuse = |command: &Command| match command {
        Command::Lock { nonce, .. } => vec![Event::Held { nonce: *nonce }],
        command => obliging(command),
    };
    let (pending, pausing) = (open(profile(false), silent), open(profile(false), refuse));
    for (client, _) in [pending, pausing] {
        let (options, began) = (options(MaxWait::Forever), now(&client));
        let ended = async {
            let ended = timeout(ms(1_000), client.lock("a/1", &options)).await;
            assert!(matches!(ended, Ok(Err(Error::Withdrawn))), "{ended:?}");
            now(&client).since(began)
        };
        let kept = timeout(ms(100), client.lock("b", &options));
        let ending = async {
            tokio::time::sleep(ms(10)).await;
            client.unlock_all("a/").await.unwrap();
        };
        let (ended, kept, ()) = tokio::join!(ended, kept, ending);
        assert!(kept.is_err(), "the other wait goes on");
        assert!(ended <= ms(10 + 25), "within one pause: {ended:?}");
        let later = timeout(ms(100), client.lock("a/1", &options)).await;
        assert!(later.is_err(), "a later call waits");
    }
}
