//! Goal: listing returns each held key once, and a force-unlock ends only the grant that it means.
//! Method: a handle and its driver in virtual time, and a scripted granting side.

use super::{
    scripted::{obliging, open, silent},
    *,
};
use crate::{
    lock::Inspection,
    operator::{Cursor, ForcedUnlock, ListOptions, Operator},
};

fn held(token: u64) -> Inspection {
    Inspection {
        fencing_token: token,
        nonce: nonce(token.into()),
        owner: Owner::default(),
        held_for: Duration::ZERO,
        remaining: LEASE,
        waiters: 0,
    }
}

/// A listing in pieces of one key, which finds the key `k1` twice; `k2` is free and `k3` no lock.
fn pieces(command: &Command) -> Vec<Event> {
    vec![match command {
        Command::Scan { id, after, .. } => {
            let at: usize = after.as_ref().map_or(0, |at| at.parse().unwrap());
            let key = ["k1", "k1", "k2", "k3", "k4", "k5"].get(at).copied().unwrap_or("k6");
            let next = (at < 40).then(|| (at + 1).to_string().into());
            Event::Scanned { id: *id, keys: vec![key.into()], next }
        }
        Command::Inspect { id, key } => match &**key {
            "k2" => Event::Inspected { id: *id, found: Ok(None) },
            "k3" => {
                let cause = Cause::new(UnavailableKind::Misconfigured, "no lock");
                Event::Inspected { id: *id, found: Err(cause) }
            }
            _ => Event::Inspected { id: *id, found: Ok(Some(held(41))) },
        },
        other => return obliging(other),
    }]
}

#[tokio::test(start_paused = true)]
async fn page_ends_at_its_limit() {
    let (client, _) = open(profile(false), pieces);
    let page = client.list(ListOptions::default().limit(4)).await.unwrap();
    let keys: Vec<&str> = page.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!((keys, page.unreadable), (vec!["k1", "k4"], vec!["k3".into()]));
    assert_eq!(page.next, Some(Cursor::new("5")));
    let rest = client.list(ListOptions::default().after(page.next.unwrap())).await.unwrap();
    assert_eq!(&*rest.entries[0].key, "k5");
    assert_eq!(rest.next, Some(Cursor::new("21")), "16 scans a page");
    let last = client.list(ListOptions::default().after(Cursor::new("40"))).await.unwrap();
    assert_eq!((last.entries.len(), last.next), (1, None));
}

/// The inspections of a page are sent at once.
#[tokio::test(start_paused = true)]
async fn page_fits_into_the_mailbox() {
    let ten = |command: &Command| match command {
        Command::Scan { id, after, limit, .. } => {
            let from = after.as_ref().map_or(0, |at| at.parse().unwrap());
            let to = (from + limit).min(10);
            let keys = (from..to).map(|number| number.to_string().into()).collect();
            let next = (to < 10).then(|| to.to_string().into());
            vec![Event::Scanned { id: *id, keys, next }]
        }
        other => pieces(other),
    };
    let (client, _) = open(Profile { requests_max: 4, ..profile(false) }, ten);
    let (mut options, mut listed) = (ListOptions::default(), String::new());
    loop {
        let page = client.list(options).await.unwrap();
        listed.extend(page.entries.iter().map(|entry| &*entry.key));
        let Some(next) = page.next else { break };
        options = ListOptions::default().after(next);
    }
    assert_eq!(listed, "0123456789");
}

/// The first scan of the page has one key less than it may: the second one fills the page.
#[tokio::test(start_paused = true)]
async fn page_of_two_scans_fits_into_the_mailbox() {
    let uneven = |command: &Command| match command {
        Command::Scan { id, after, limit, .. } => {
            let is_first = after.is_none();
            let count = if is_first { limit - 1 } else { *limit };
            let name = |number| format!("{}{number}", if is_first { 'a' } else { 'b' }).into();
            let next = is_first.then(|| "more".into());
            vec![Event::Scanned { id: *id, keys: (0..count).map(name).collect(), next }]
        }
        other => pieces(other),
    };
    for (requests_max, entries) in [(1, 1), (4, 3), (7, 5), (200, 199)] {
        let (client, _) = open(Profile { requests_max, ..profile(false) }, uneven);
        let page = client.list(ListOptions::default().limit(1_000)).await.unwrap();
        assert_eq!((page.entries.len(), page.next), (entries, None), "{requests_max} requests");
    }
}

#[tokio::test(start_paused = true)]
async fn listing_refuses_what_it_cannot_do() {
    let (client, script) = open(profile(false), silent);
    assert!(client.list(ListOptions::default().limit(0)).await.is_err());
    assert!(script.sent().is_empty());
    assert!(client.list(ListOptions::default()).await.is_err(), "no reply comes");
    client.close().await;
    assert!(matches!(client.list(ListOptions::default()).await, Err(Error::Closed)));
}

/// A granting side whose key is held with the token 41, and then with 42.
fn held_twice() -> impl FnMut(&Command) -> Vec<Event> + Send {
    let mut token = 41;
    move |command| {
        vec![match command {
            Command::Inspect { id, .. } => {
                Event::Inspected { id: *id, found: Ok(Some(held(token))) }
            }
            // The first has been unlocked and granted again since it was inspected.
            Command::Unlock { nonce, .. } => {
                token += 1;
                Event::Unlocked { nonce: *nonce, held: token > 42 }
            }
            Command::Extend { id, nonce, .. } => {
                Event::Extended { id: *id, nonce: *nonce, token: None }
            }
            other => return obliging(other),
        }]
    }
}

#[tokio::test(start_paused = true)]
async fn force_unlock_ends_the_grant_that_it_found() {
    let (client, script) = open(profile(false), held_twice());
    let forced = client.force_unlock("k", None, "it hangs").await.unwrap();
    assert_eq!(forced, ForcedUnlock::Unlocked(held(42)));
    let sent = script.sent();
    let [
        Command::Inspect { .. },
        Command::Unlock { .. },
        Command::Inspect { .. },
        Command::Unlock { token: 42, forced: Some(note), nonce: n, .. },
    ] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert!(note.ends_with(": it hangs") && *n == nonce(42), "{note}");
}

#[tokio::test(start_paused = true)]
async fn force_unlock_of_another_grant_changes_nothing() {
    let (client, script) = open(profile(false), held_twice());
    let forced = client.force_unlock("k", Some(40), "it hangs").await.unwrap();
    assert_eq!(forced, ForcedUnlock::OtherToken(held(41)));
    assert!(matches!(script.sent()[..], [Command::Inspect { .. }]));
    let (client, _) = open(profile(false), obliging);
    let forced = client.force_unlock("k", Some(40), "it hangs").await.unwrap();
    assert_eq!(forced, ForcedUnlock::NotHeld);
    assert!(client.force_unlock("", None, "").await.is_err());
    assert!(client.force_unlock("k", None, &"long".repeat(100)).await.is_err());
}

/// The key is granted again each time: the outcome is unknown in the end.
#[tokio::test(start_paused = true)]
async fn force_unlock_ends_with_the_timeout() {
    let (client, script) = open(profile(false), |command| match command {
        Command::Inspect { id, .. } => {
            vec![Event::Inspected { id: *id, found: Ok(Some(held(41))) }]
        }
        _ => vec![],
    });
    let forced = client.force_unlock("k", None, "it hangs").await;
    assert!(matches!(forced, Err(Error::Unknown)), "{forced:?}");
    assert_eq!((client.clock().now(), script.sent().len()), (at(1_000), 2));
}

/// Contract, rule 8: a second inspection has what the first has left.
#[tokio::test(start_paused = true)]
async fn force_unlock_that_looks_twice_ends_with_the_timeout() {
    let (client, script) = open(profile(false), silent);
    let late_replies = async {
        client.clock().sleep_until(at(900)).await;
        let Command::Inspect { id, .. } = script.sent()[0] else { panic!("no inspection") };
        script.report(Event::Inspected { id, found: Ok(Some(held(41))) });
        client.clock().sleep_until(at(950)).await;
        script.report(Event::Unlocked { nonce: nonce(41), held: false });
    };
    let (forced, ()) = tokio::join!(client.force_unlock("k", None, "it hangs"), late_replies);
    assert!(forced.is_err(), "{forced:?}");
    assert!(matches!(script.sent()[..], [Command::Unlock { .. }, Command::Inspect { .. }]));
    assert_eq!(client.clock().now(), at(1_000));
}

/// A member's own table may be behind the log.
#[tokio::test(start_paused = true)]
async fn force_unlock_catches_up_with_the_log() {
    let mut profile = profile(false);
    profile.capabilities.waits_for_leader = true;
    let (client, script) = open(profile, held_twice());
    client.force_unlock("k", Some(41), "it hangs").await.unwrap();
    let sent = script.sent();
    assert!(matches!(&sent[..], [Command::Extend { .. }, Command::Inspect { .. }, ..]), "{sent:?}");
    let (client, script) = open(profile, silent);
    assert!(client.force_unlock("k", None, "it hangs").await.is_err());
    assert!(matches!(script.sent()[..], [Command::Extend { .. }]), "no inspection without it");
}
