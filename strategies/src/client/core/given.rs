//! When the first call of a given nonce began.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{clock::Instant, lock::Nonce};

/// How long a call is remembered after the last one of its nonce began. A grant that arrives later
/// belongs to a connection that has long been given up.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The first calls of given nonces.
///
/// The grant that one call was to get may arrive during the next call of its nonce. A lease counts
/// from before the first LOCK of its nonce was sent (contract, rule 2), so that such a grant is not
/// relied on for too long: with less than half of its lease left, it is extended first.
#[derive(Debug, Default)]
pub(super) struct GivenCalls {
    /// When the first and the last call of each nonce began.
    spans: BTreeMap<Nonce, (Instant, Instant)>,
    /// The calls, in order.
    by_time: VecDeque<(Instant, Nonce)>,
}

impl GivenCalls {
    /// A call begins.
    pub(super) fn begin(&mut self, now: Instant, nonce: Nonce) {
        let is_old = |(at, _): &mut (Instant, Nonce)| at.after(REMEMBERED) <= now;
        while let Some((at, old)) = self.by_time.pop_front_if(is_old) {
            if self.spans.get(&old).is_some_and(|(_, last)| *last == at) {
                self.spans.remove(&old);
            }
        }
        self.by_time.push_back((now, nonce));
        self.spans.entry(nonce).or_insert((now, now)).1 = now;
    }

    /// When the first call of the nonce began.
    pub(super) fn first(&self, nonce: Nonce) -> Option<Instant> {
        self.spans.get(&nonce).map(|(first, _)| *first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_forgotten_after_the_last_of_their_nonce() {
        let at = |secs| Instant::from_origin(Duration::from_secs(secs));
        let (one, other) = (Nonce::given(1), Nonce::given(2));
        let mut calls = GivenCalls::default();
        calls.begin(at(0), one);
        calls.begin(at(20), one);
        calls.begin(at(40), other);
        assert_eq!((calls.first(one), calls.first(other)), (Some(at(0)), Some(at(40))));
        calls.begin(at(60), other);
        assert_eq!((calls.first(one), calls.first(other)), (None, Some(at(40))));
        assert_eq!((calls.spans.len(), calls.by_time.len()), (1, 2));
    }
}
