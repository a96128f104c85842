use std::{
    future::{Future, poll_fn},
    mem,
    task::{Poll, Waker},
};

use smallvec::SmallVec;

use super::shards::lock;
use crate::{
    lock_table::{Ended, Grant},
    sync::Mutex,
};

/// What reaches the calls that wait for one acquisition. It is theirs alone: a later acquisition,
/// also one of the same nonce, has another, or this one anew once nobody has it any more.
///
/// Its mutex is taken last, and nothing of a waker runs while it is held: whoever is woken, or copied or dropped
/// with its waker, may come back here.
#[derive(Debug, Default)]
pub(super) struct Signal(Mutex<Heard>);

/// What has been heard so far.
#[derive(Debug, Default)]
struct Heard {
    granted: Option<Grant>,
    /// `Unlocked`, `Expired`, or `Waited` where it was never granted. Closing ends all as `Unlocked`.
    ended: Option<Ended>,
    stirs: u32,
    /// How many calls have joined. Of four billion two share a seat: one of them may then only look for itself.
    seats: u32,
    /// Of the calls that sleep, by their seats.
    wakers: Wakers,
}

type Wakers = SmallVec<[(u32, Waker); 1]>;

/// Who is to be woken, once no mutex is held.
pub(super) type Woken = SmallVec<[Waker; 2]>;

impl Signal {
    /// A seat for a call that joins.
    pub(super) fn seat(&self) -> u32 {
        let mut heard = lock(&self.0);
        heard.seats = heard.seats.wrapping_add(1);
        heard.seats
    }

    /// How the acquisition ended.
    pub(super) fn ended(&self) -> Option<Ended> {
        lock(&self.0).ended
    }

    #[cfg(test)]
    pub(super) fn is_granted(&self) -> bool {
        lock(&self.0).granted.is_some()
    }

    /// How often there was news, and the grant, if it was made and has not ended as far as the table knows. It
    /// shows before the step that made it is over: no step grants a nonce and ends it as well.
    pub(super) fn heard(&self) -> (u32, Option<Grant>) {
        let heard = lock(&self.0);
        (heard.stirs, heard.granted.clone().filter(|_| heard.ended.is_none()))
    }

    /// The grant was made. A LOCK that repeats the nonce of a holder is answered by its grant once more, which
    /// is no news.
    pub(super) fn grant(&self, grant: &Grant, woken: &mut Woken) {
        let mut heard = lock(&self.0);
        if heard.granted.is_none() {
            heard.granted = Some(grant.clone());
            heard.stir(woken);
        }
    }

    /// The acquisition has ended. Who was granted it was told then, and may have taken it long ago.
    pub(super) fn end(&self, how: Ended, woken: &mut Woken) {
        let mut heard = lock(&self.0);
        assert_eq!(heard.ended.replace(how), None, "an acquisition ends once");
        if heard.granted.is_none() {
            heard.stir(woken);
        }
    }

    /// There is news: everybody looks at the table.
    pub(super) fn stir(&self, woken: &mut Woken) {
        lock(&self.0).stir(woken);
    }

    /// Completes once there was news beyond the `seen` that was [heard](Self::heard) before. Who stops waiting
    /// for it [leaves](Self::leave).
    pub(super) fn stirred(&self, seat: u32, seen: u32) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            // Copied before the mutex is taken, and what is not needed dropped after it.
            let mut waker = Some(context.waker().clone());
            let mut heard = lock(&self.0);
            if heard.stirs != seen {
                return Poll::Ready(());
            }
            heard.sleep(seat, &mut waker);
            Poll::Pending
        })
    }

    /// The call of this seat does not sleep any more.
    pub(super) fn leave(&self, seat: u32) {
        let mut heard = lock(&self.0);
        let place = heard.wakers.iter().position(|(other, _)| *other == seat);
        let waker = place.map(|place| heard.wakers.swap_remove(place));
        drop(heard);
        drop(waker);
    }
}

impl Heard {
    fn stir(&mut self, woken: &mut Woken) {
        self.stirs = self.stirs.wrapping_add(1);
        woken.extend(mem::take(&mut self.wakers).into_iter().map(|(_, waker)| waker));
    }

    /// Takes the waker of a seat, and leaves the one that it replaces.
    fn sleep(&mut self, seat: u32, waker: &mut Option<Waker>) {
        match self.wakers.iter_mut().find(|(other, _)| *other == seat) {
            Some((_, own)) => mem::swap(own, waker.as_mut().expect("it was just made")),
            None => self.wakers.extend(waker.take().map(|waker| (seat, waker))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use futures_util::task::{ArcWake, waker};
    use shuttle::{future::block_on, thread};

    use super::*;
    use crate::sync::{explore, found, switch};

    #[derive(Default)]
    struct Count(AtomicU32);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Sleeps, and returns how often it was woken.
    fn sleep(signal: &Signal, seat: u32, seen: u32, count: &Arc<Count>) -> (bool, u32) {
        let waker = waker(count.clone());
        let mut stirred = std::pin::pin!(signal.stirred(seat, seen));
        let ready = stirred.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_ready();
        (ready, count.0.load(Ordering::SeqCst))
    }

    fn stir(signal: &Signal) {
        let mut woken = Woken::new();
        signal.stir(&mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    #[test]
    fn news_wakes_each_that_sleeps_once_and_none_is_missed() {
        let (signal, counts) = (Signal::default(), [(); 3].map(|()| Arc::<Count>::default()));
        let seats = [(); 3].map(|()| signal.seat());
        assert_eq!(signal.heard().0, 0);
        for _ in 0..2 {
            assert_eq!(sleep(&signal, seats[0], 0, &counts[0]), (false, 0));
        }
        assert_eq!(sleep(&signal, seats[1], 0, &counts[1]), (false, 0));
        stir(&signal);
        assert_eq!(sleep(&signal, seats[0], 0, &counts[0]), (true, 1));
        assert_eq!(sleep(&signal, seats[2], 0, &counts[2]), (true, 0), "it heard nothing before");
        assert_eq!(sleep(&signal, seats[1], 1, &counts[1]), (false, 1), "it has heard that");
        stir(&signal);
        assert_eq!(sleep(&signal, seats[1], 1, &counts[1]), (true, 2));
    }

    #[test]
    fn only_the_newest_waker_of_a_seat_is_kept_and_none_of_who_has_gone() {
        let (signal, old, new) = (Signal::default(), Arc::default(), Arc::default());
        let (seat, other) = (signal.seat(), signal.seat());
        assert_eq!(sleep(&signal, seat, 0, &old), (false, 0));
        assert_eq!(sleep(&signal, seat, 0, &new), (false, 0));
        assert_eq!(sleep(&signal, other, 0, &old), (false, 0));
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (2, 2));
        signal.leave(other);
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 2));
        stir(&signal);
        assert_eq!(sleep(&signal, seat, 0, &new), (true, 1));
        assert_eq!(Arc::strong_count(&new), 1);
    }

    /// With it goes a call of this very signal: the future that it was to wake may be its own.
    struct Comes(Arc<Signal>);

    impl ArcWake for Comes {
        fn wake_by_ref(comes: &Arc<Self>) {
            comes.0.heard();
        }
    }

    impl Drop for Comes {
        fn drop(&mut self) {
            self.0.leave(7);
        }
    }

    #[test]
    fn whoever_is_dropped_or_woken_with_a_waker_may_come_back() {
        let signal = Arc::<Signal>::default();
        let sleep = |seat| {
            let waker = waker(Arc::new(Comes(signal.clone())));
            let mut stirred = std::pin::pin!(signal.stirred(seat, 0));
            assert!(
                stirred.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending()
            );
        };
        let seats = [(); 2].map(|()| signal.seat());
        seats.into_iter().chain(seats).for_each(sleep);
        signal.leave(seats[0]);
        stir(&signal);
        assert_eq!(Arc::strong_count(&signal), 1, "every waker is gone");
    }

    /// A hand-over by a flag and a signal; `late` hears what there was only after its look.
    fn hand_over(late: bool) {
        let shared = Arc::new((Mutex::new(false), Signal::default()));
        let giving = {
            let shared = shared.clone();
            thread::spawn(move || {
                *lock(&shared.0) = true;
                stir(&shared.1);
            })
        };
        let (flag, signal) = &*shared;
        let seat = signal.seat();
        loop {
            let mut seen = signal.heard().0;
            if *lock(flag) {
                break;
            }
            switch();
            if late {
                seen = signal.heard().0;
            }
            block_on(signal.stirred(seat, seen));
        }
        giving.join().unwrap();
    }

    #[test]
    fn a_planted_lost_wake_up_is_found() {
        explore("a_planted_lost_wake_up_is_found", || hand_over(false));
        let found = found("a_planted_lost_wake_up_is_found", || hand_over(true));
        assert!(found.is_some_and(|failure| failure.contains("deadlock")));
    }
}
