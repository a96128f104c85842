//! Goal: what the driver makes of time: ticks after a stall, and how long a close takes at most.
//! Method: one driver that no other member speaks to, turned by hand at chosen moments.

use std::{future::poll_fn, ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use gaggle_channels::{Channel, Hub, NodeName};
use tokio::time::timeout;

use super::{hand::Hand, turn::Alone};
use crate::{
    client::{calls::Call, mailbox::Mail},
    clock::{Clock, Instant},
    lock::{Lock, Nonce},
    member::{Member, MemberOptions, Policy},
    options::LockOptions,
};

/// A leader must not depose itself, nor a follower campaign, because its own process stood still.
#[test]
fn at_most_three_missed_ticks_follow_a_stall() {
    for (stall, ticks, next) in [
        (9, 0, 1),
        (10, 1, 10),
        (19, 1, 1),
        (25, 2, 5),
        (30, 3, 10),
        (40, 3, 10),
        (49, 3, 10),
        (1_000, 3, 10),
    ] {
        // A forming process has work at each tick.
        let mut alone = Alone::among(&["a", "b"]);
        alone.turn();
        let before = alone.clock.wall_read();
        alone.clock.pass(stall);
        let _ = alone.driver.step();
        let made = alone.clock.wall_read() - before;
        let until_next = alone.driver.backend().next_tick().since(alone.now()).as_millis();
        assert_eq!((made, until_next), (ticks, next), "after {stall} ms");
    }
}

impl Alone {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Closes with these to unlock, and returns after how many milliseconds it ended.
    fn closes_after(&mut self, watched: Vec<Lock>) -> u64 {
        let mut next =
            self.driver.step_with(Some(Mail { call: Call::Close { watched }, reply: None }));
        for ms in 0..5_000 {
            if next.is_break() {
                return ms;
            }
            self.clock.pass(1);
            next = self.driver.step();
        }
        panic!("it never ends");
    }
}

fn lock() -> Lock {
    Lock::new("k", Nonce::from_u128(1), 1, None)
}

#[test]
fn idle_follower_closes_at_once() {
    assert_eq!(Alone::among(&["a", "b"]).closes_after(vec![]), 0);
}

/// Contract, rule 11: `close` unlocks within the request timeout.
#[test]
fn close_waits_for_an_unlock_until_timeout() {
    assert_eq!(Alone::among(&["a", "b"]).closes_after(vec![lock()]), 1_000);
}

#[test]
fn leader_without_a_successor_closes_at_once() {
    assert_eq!(Alone::leading().closes_after(vec![]), 0);
    assert_eq!(Alone::leading().closes_after(vec![lock()]), 0, "its unlock completes at once");
}

impl Alone {
    /// How long until a turn comes although nothing arrives (ms).
    fn sleeps(&self) -> u64 {
        u64::try_from(self.driver.next_wake().since(self.now()).as_millis()).unwrap()
    }

    /// The turn for which it wakes.
    fn wakes(&mut self) -> ControlFlow<()> {
        self.clock.pass(self.sleeps());
        self.driver.step()
    }
}

#[test]
fn resting_leader_wakes_only_to_heartbeat() {
    let mut alone = Alone::leading();
    let _ = alone.wakes();
    let mut slept = Vec::new();
    for _ in 0..20 {
        slept.push(alone.sleeps());
        let _ = alone.wakes();
    }
    assert_eq!(slept, [50; 20]);
}

#[test]
fn forming_needs_all_ticks() {
    let mut forming = Alone::among(&["a", "b"]);
    forming.turn();
    assert_eq!(
        [0; 5].map(|_| (forming.sleeps(), forming.wakes())),
        [(10, ControlFlow::Continue(())); 5]
    );
}

/// Quiet ticks are only counted, and those of a stall are made as usual.
#[test]
fn quiet_ticks_of_a_stall_are_all_counted() {
    for (stall, calls, next) in
        [(9, 0, 1), (25, 0, 5), (50, 1, 10), (70, 3, 10), (80, 3, 10), (999, 3, 10)]
    {
        let mut alone = Alone::leading();
        let _ = alone.wakes();
        let before = alone.clock.wall_read();
        alone.clock.pass(stall);
        let _ = alone.driver.step();
        let until_next = alone.driver.backend().next_tick().since(alone.now()).as_millis();
        assert_eq!(
            (alone.clock.wall_read() - before, until_next),
            (calls, next),
            "after {stall} ms"
        );
    }
}

/// How often the driver of a member with a pending request is polled, while its clock stands.
async fn looks(limit: Duration) -> usize {
    let names = ["a", "b"].map(|name| NodeName::new(name).unwrap());
    let options = MemberOptions::named("test", names.clone()).clock(Arc::new(Hand::default()));
    let channel = Arc::new(Hub::default().channel(names[0].clone()));
    channel.connect().await.unwrap();
    let (member, driver) =
        Member::assemble(channel, options.busy_poll(limit), Policy::Queue).unwrap();
    let (mut looks, mut running) = (0, pin!(member.run(driver)));
    let counted = poll_fn(|context| {
        looks += 1;
        running.as_mut().poll(context)
    });
    let asking = LockOptions::default();
    let both = async { tokio::join!(member.lock("k", &asking), counted) };
    let ended = timeout(Duration::from_millis(300), both).await;
    assert!(ended.is_err(), "nothing replies");
    looks
}

#[tokio::test]
async fn busy_polling_ends_at_its_limit() {
    let asleep = looks(Duration::ZERO).await;
    assert!(asleep < 200, "for the runtime's timer: {asleep}");
    let awake = looks(Duration::from_micros(1)).await;
    assert!((1_000..10_200).contains(&awake), "it gives up where a clock stands still: {awake}");
}
