//! A process that has left its group rests before it founds another.

use std::{collections::BTreeMap, time::Duration};

use gaggle_strategies::{clock::Instant, member::GroupView};

/// Holders that learn of the loss of their group have this long before any other group grants.
const REST: Duration = Duration::from_secs(1);

/// When each process last voted in a group, by its own clock.
#[derive(Debug, Default)]
pub(super) struct Rests(BTreeMap<usize, (u128, Instant)>);

impl Rests {
    /// A founder has voted in no other group for [`REST`].
    pub(super) fn check(&mut self, slot: usize, now: Instant, view: &GroupView) {
        if !view.votes {
            return;
        }
        if let Some((group, at)) = self.0.insert(slot, (view.id, now))
            && group != view.id
            && view.start == (1, 1)
        {
            let rested = now.since(at);
            assert!(rested >= REST, "{slot} founded a group {rested:?} after it left another");
        }
    }

    pub(super) fn process_killed(&mut self, slot: usize) {
        self.0.remove(&slot);
    }
}
