use super::{ClusterTime, claim::Waiter, row::Row, slab::Slot};
use crate::timeline::Timeline;

/// A time and the place of the claim to which something happens then: the order of what is due.
type When = (ClusterTime, u64);

/// Slots, by what is due.
type Due = Timeline<When, Slot>;

/// The ways to rows and waiters by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The ends of the leases for which nobody waits, each with its row.
    pub(super) uncontended: Due,
    /// Those for which somebody waits.
    pub(super) contended: Due,
    /// The deadlines of all waiters that have one, each with its waiter.
    pub(super) deadlines: Due,
}

impl Index {
    /// Enters the lease of a row.
    pub(super) fn add_lease(&mut self, slot: Slot, row: &Row) {
        self.leases(!row.queue.is_empty()).insert(lease_end(row), slot);
    }

    /// Takes the lease of a row out, before its holder, its end, or whether somebody waits for it, changes.
    pub(super) fn remove_lease(&mut self, row: &Row) {
        self.leases(!row.queue.is_empty()).remove(lease_end(row));
    }

    /// The first waiter has joined the queue of a row, or the last has left it.
    pub(super) fn move_lease(&mut self, slot: Slot, row: &Row) {
        let contended = !row.queue.is_empty();
        self.leases(!contended).remove(lease_end(row));
        self.leases(contended).insert(lease_end(row), slot);
    }

    fn leases(&mut self, contended: bool) -> &mut Due {
        if contended { &mut self.contended } else { &mut self.uncontended }
    }

    pub(super) fn set_deadline(&mut self, slot: Slot, waiter: &Waiter) {
        if let Some(deadline) = waiter.deadline {
            self.deadlines.insert((deadline, waiter.claim.place), slot);
        }
    }

    pub(super) fn unset_deadline(&mut self, waiter: &Waiter) {
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove((deadline, waiter.claim.place));
        }
    }

    /// The row of the first lease that ends at or before `now`.
    pub(super) fn due_lease(&self, now: ClusterTime) -> Option<Slot> {
        let (_, slot) = match (due(&self.uncontended, now), due(&self.contended, now)) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        Some(slot)
    }

    /// The first waiter whose deadline is at or before `now`.
    pub(super) fn due_waiter(&self, now: ClusterTime) -> Option<Slot> {
        due(&self.deadlines, now).map(|(_, slot)| slot)
    }

    /// When the first lease ends or the first waiter is dead.
    pub(super) fn next(&self) -> Option<ClusterTime> {
        let firsts = [&self.uncontended, &self.contended, &self.deadlines].map(first);
        firsts.into_iter().flatten().min()
    }

    /// When the first lease ends for which somebody waits.
    pub(super) fn next_contended(&self) -> Option<ClusterTime> {
        first(&self.contended)
    }

    /// Asserts that each of the three is one.
    pub(super) fn check(&self) {
        [&self.uncontended, &self.contended, &self.deadlines].into_iter().for_each(Timeline::check);
    }
}

fn due(order: &Due, now: ClusterTime) -> Option<(When, Slot)> {
    order.first().filter(|((time, _), _)| *time <= now)
}

fn first(order: &Due) -> Option<ClusterTime> {
    order.first().map(|((time, _), _)| time)
}

fn lease_end(row: &Row) -> When {
    (row.holder.expires_at, row.holder.claim.place)
}
