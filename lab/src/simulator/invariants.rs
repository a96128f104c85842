//! The invariants, checked after every event.
//!
//! One a file; a broken one panics with its name.

mod belief;
mod committed;
mod election;
mod ledger;
mod log;
mod rest;
mod scripts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gaggle_strategies::{
    Lock,
    clock::Instant,
    lock::Nonce,
    lock_table::{Command, Effect, LockTable, PriorState, Sizes},
    member::GroupView,
};

use self::{
    belief::Beliefs,
    committed::Committed,
    election::ElectionSafety,
    ledger::Ledger,
    log::{LogMatching, Mirror},
    rest::Rests,
};
pub(super) use self::{
    belief::{Acquisition, Belief},
    scripts::Scripts,
};
use super::{coverage::Coverage, machine::Member, random::mixed, recorder::Op};

/// All that is known of all groups and all members so far.
#[derive(Default)]
pub(super) struct Invariants {
    elections: ElectionSafety,
    logs: LogMatching,
    groups: BTreeMap<u128, GroupHistory>,
    scripts: Scripts,
    members: BTreeMap<usize, Watched>,
    rests: Rests,
    beliefs: Beliefs,
    last_tokens: BTreeMap<Arc<str>, u64>,
    /// Every nonce that a client ever held.
    believed: BTreeSet<Nonce>,
    /// Every nonce that a client unlocked without waiting, with its process and token.
    released: BTreeSet<(usize, Nonce, u64)>,
    /// Acquisitions of whose force-unlock a process has read.
    notified: BTreeSet<(usize, Acquisition)>,
    /// Which operation a nonce was sent for, by the label of its committed LOCK.
    ops: BTreeMap<Nonce, Op>,
    /// Operations that were enqueued, each with its nonce, or lost their position.
    queued: Vec<(Op, Nonce, bool)>,
    formed_again: bool,
    /// Every operation of which a LOCK was granted.
    granted: BTreeSet<Op>,
    /// Every acquisition that an unlock found held.
    unlocked: BTreeSet<Acquisition>,
    /// Committed commands and the effects, for a trace.
    pub(super) lines: Option<Vec<String>>,
    pub(super) coverage: Coverage,
    /// Entries of the log that were committed.
    pub(super) committed: u64,
}

/// A member as it was after its last turn.
#[derive(Default)]
struct Watched {
    mirror: Mirror,
    group: u128,
    me: u64,
    checked: u64,
    applied: u64,
    term: Option<u64>,
}

/// A group's committed past, applied once more to a table of our own.
struct GroupHistory {
    committed: Committed,
    ledger: Ledger,
    table: LockTable,
    /// By applied index, from 1: the state of the table after it.
    looks: Vec<Look>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    now: u64,
    last_token: u64,
    sizes: Sizes,
}

impl Look {
    fn of(table: &LockTable) -> Self {
        Self { now: table.now().0, last_token: table.last_token(), sizes: table.sizes() }
    }
}

impl GroupHistory {
    fn begin(table: &LockTable) -> Self {
        let table = LockTable::new(table.config().clone());
        Self {
            committed: Committed::default(),
            ledger: Ledger::of_group(table.config().outside_max_ms),
            looks: vec![Look::of(&table)],
            table,
        }
    }
}

impl Invariants {
    /// `traces` keeps a line for each committed command.
    pub(super) fn new(traces: bool) -> Self {
        Self { lines: traces.then(Vec::new), ..Self::default() }
    }

    /// Looks at a member after its turn, at `now` by its own clock.
    pub(super) fn after_turn(&mut self, slot: usize, run: u64, now: Instant, machine: &Member) {
        let Some(view) = machine.view() else { return };
        self.rests.check(slot, now, &view);
        let table = machine.table().expect("a group has a table");
        if !self.groups.contains_key(&view.id) {
            let founds = view.votes && view.start == (1, 1);
            assert!(founds, "a group is first seen at one of its founders");
            if !self.groups.is_empty() {
                self.coverage.reach("group formed again");
                if self.beliefs.outside(None) > 0 {
                    self.coverage.reach("lock outlived its group");
                }
                self.formed_again = true;
            }
            self.groups.insert(view.id, GroupHistory::begin(table));
        }
        let group = self.groups.get_mut(&view.id).expect("it was just put in");
        let watched = self.members.entry(slot).or_default();
        if (watched.group, watched.me) != (view.id, view.me) {
            *watched = Watched { group: view.id, me: view.me, ..Watched::default() };
        }
        let change = self.logs.check(&mut watched.mirror, machine, &view);
        let coverage = &mut self.coverage;
        if change.overwritten {
            coverage.reach("uncommitted entry overwritten");
        }
        if change.compacted {
            coverage.reach("log compacted");
        }
        if change.installed {
            coverage.reach("snapshot installed");
            if table.sizes().waiters > 0 {
                coverage.reach("snapshot with a queue installed");
            }
            if run > 1 {
                coverage.reach("snapshot installed on a returning member");
            }
        }
        if self.elections.check(&view) {
            group.committed.check_leader(&watched.mirror, &view);
            if group.ledger.has_leases() {
                coverage.reach("leader changed while leases live");
            }
        }
        let same_term = watched.term.replace(view.term) == Some(view.term);
        let new =
            group.committed.check(watched.checked, &watched.mirror, machine, &view, same_term);
        watched.checked = watched.checked.max(view.commit);
        self.committed += new.len() as u64;
        let mut noted = Vec::new();
        for entry in new {
            let believed = &self.believed;
            let effects = Self::commit(group, &entry, &mut self.last_tokens, believed, coverage);
            if let (Some(lines), Some(stamped)) = (&mut self.lines, &entry.commands) {
                lines.push(format!("commit {} {stamped:?}: {effects:?}", entry.index));
            }
            for (_, command) in entry.stamped() {
                if let Command::Lock(request) = command
                    && let Some(op) = Op::of_label(request.owner.label.as_deref())
                {
                    self.ops.insert(request.nonce, op);
                }
            }
            noted.extend(effects);
        }
        self.unlocked.extend(group.ledger.take_unlocked());
        let applied = std::mem::replace(&mut watched.applied, view.applied);
        assert!(view.applied >= applied, "a member's applied index never falls");
        if view.applied != applied {
            let whole = Self::compare(group, table, &view, change.installed);
            if whole {
                self.coverage.reach("table compared whole");
            }
        }
        noted.iter().for_each(|effect| self.note_effect(effect));
    }

    /// Notes an effect for the history.
    fn note_effect(&mut self, effect: &Effect) {
        let op = |nonce: &Nonce| self.ops.get(nonce).copied();
        match effect {
            Effect::Queued { nonce, .. } => {
                self.queued.extend(op(nonce).map(|op| (op, *nonce, true)));
            }
            // A grant that expired unread still counts as that waiter's turn.
            Effect::Dropped { nonce, .. } | Effect::Expired { nonce, .. } => {
                self.queued.extend(op(nonce).map(|op| (op, *nonce, false)));
            }
            Effect::Granted(grant) => self.granted.extend(op(&grant.nonce)),
            // A lock that was read too late to be used, and given back, had no holder.
            Effect::Unlocked { nonce, was: PriorState::Held, .. }
                if !self.believed.contains(nonce) =>
            {
                self.queued.extend(op(nonce).map(|op| (op, *nonce, false)));
            }
            _ => {}
        }
    }

    fn commit(
        group: &mut GroupHistory,
        entry: &committed::NewlyCommitted,
        last_tokens: &mut BTreeMap<Arc<str>, u64>,
        believed: &BTreeSet<Nonce>,
        coverage: &mut Coverage,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        if entry.replaces {
            coverage.reach("member replaced");
        }
        for (place, (stamp, command)) in entry.stamped().enumerate() {
            if place == 1 {
                coverage.reach("entry of several commands");
            }
            let heads = Self::heads(&group.table);
            let mut of_command = Vec::new();
            group.table.apply(stamp, command, &mut of_command);
            let of_key = |key: &str| heads.iter().find(|(other, _)| **other == *key);
            let head = |key: &str| of_key(key).map(|(_, nonce)| *nonce);
            let released_late = |effect: &Effect| {
                matches!(effect, Effect::Unlocked { nonce, was: PriorState::Held, .. }
                    if !believed.contains(nonce))
            };
            if of_command.iter().any(released_late) {
                coverage.reach("lock released after its caller had ended");
            }
            let stamped = (stamp, command);
            group.ledger.check(entry.term, stamped, &of_command, last_tokens, head, coverage);
            if mixed(entry.index).is_multiple_of(8) {
                group.table.check();
            }
            effects.append(&mut of_command);
        }
        group.looks.push(Look::of(&group.table));
        effects
    }

    /// The head of each key's queue.
    fn heads(table: &LockTable) -> Vec<(Arc<str>, Nonce)> {
        let keys = table.keys();
        keys.filter_map(|key| Some((key.clone(), table.next_waiter(key)?.0))).collect()
    }

    /// Replaces our table of a group by its restored snapshot. The members go on with theirs, so
    /// that a difference shows later.
    pub(super) fn restore_table(&mut self, group: u128) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        let restored = LockTable::restore(&group.table.snapshot());
        let restored = restored.expect("a table's own snapshot restores");
        assert!(restored == group.table, "a restored table differs");
        if group.table.has_leases() {
            self.coverage.reach("table restored from its snapshot");
        }
        group.table = restored;
    }

    /// Tables are equal at equal applied index. Whether all of them was compared.
    fn compare(group: &GroupHistory, table: &LockTable, view: &GroupView, whole: bool) -> bool {
        let place = usize::try_from(view.applied - 1).expect("an index fits");
        let look = group.looks.get(place).expect("what is applied was committed");
        assert_eq!(*look, Look::of(table), "tables differ at applied index {}", view.applied);
        let latest = view.applied == group.committed.last();
        let whole = latest && (whole || mixed(view.applied ^ view.me).is_multiple_of(8));
        if whole {
            let same = *table == group.table;
            assert!(same, "tables differ at applied index {}", view.applied);
            table.check();
        }
        whole
    }

    /// Refused if two clients then believe that they hold.
    pub(super) fn believe(&mut self, belief: Belief) -> Result<(), String> {
        self.believed.insert(belief.lock.nonce());
        let (slot, acquisition) = (belief.slot, belief.acquisition());
        let outcome = self.beliefs.begin(belief);
        if self.notified.contains(&(slot, acquisition)) {
            self.check_notified(slot, acquisition);
        }
        outcome
    }

    /// An operator ends this acquisition. Returns its operation, which may go on believing.
    pub(super) fn force(&mut self, acquisition: Acquisition) -> Option<Op> {
        self.beliefs.orphan(acquisition);
        self.ops.get(&acquisition.0).copied()
    }

    /// The notice of a force-unlock has come to a process, and was read: no client of it relies on
    /// the lock.
    pub(super) fn notify(&mut self, slot: usize, acquisition: Acquisition) {
        self.notified.insert((slot, acquisition));
        self.coverage.reach("force-unlock noticed");
        self.check_notified(slot, acquisition);
    }

    fn check_notified(&self, slot: usize, acquisition: Acquisition) {
        if let Some(Belief { client, lock, .. }) = self.beliefs.valid(slot, acquisition) {
            panic!("client {client} was notified of a force-unlock, and relies on {lock:?}");
        }
    }

    pub(super) fn believe_longer(
        &mut self,
        client: u32,
        nonce: Nonce,
        deadline: Instant,
    ) -> Result<(), String> {
        self.beliefs.extend(client, nonce, deadline)
    }

    /// The granting side has said of this very acquisition that it is unlocked (contract,
    /// Outcomes).
    pub(super) fn check_unlocked(&self, lock: &Lock) {
        let acquisition = (lock.nonce(), lock.fencing_token());
        let is_unlocked = self.unlocked.contains(&acquisition);
        assert!(is_unlocked, "an unlock says Ok, and nothing has unlocked {lock:?}");
    }

    pub(super) fn release(&mut self, slot: usize, nonce: Nonce, token: u64) {
        self.released.insert((slot, nonce, token));
    }

    pub(super) fn let_go(&mut self, client: u32, nonce: Nonce) {
        self.beliefs.end(client, nonce);
    }

    /// The client has ended. Returns the locks that it held.
    pub(super) fn client_dropped(&mut self, client: u32) -> Vec<(Op, Arc<str>)> {
        self.beliefs.forget(|belief| belief.client == client)
    }

    /// The process has ended. Returns the locks that it held.
    pub(super) fn process_killed(&mut self, slot: usize) -> Vec<(Op, Arc<str>)> {
        self.members.remove(&slot);
        self.rests.process_killed(slot);
        self.released.retain(|(other, ..)| *other != slot);
        self.notified.retain(|(other, _)| *other != slot);
        (0..self.beliefs.outside(Some(slot)))
            .for_each(|_| self.coverage.reach("lock outlived its process"));
        self.beliefs.forget(|belief| belief.slot == slot && !belief.outside)
    }

    /// The locks of a process that were reported lost since the last call. None of them `lives` on
    /// the granting side, unless the process released it itself.
    pub(super) fn take_lost(
        &mut self,
        slot: usize,
        lives: impl Fn(&Self, &Lock) -> bool,
    ) -> Vec<(Op, Arc<str>)> {
        for Belief { lock, lost, .. } in self.beliefs.lost_early(slot) {
            self.coverage.reach("lock lost before its deadline");
            let own = *lost || self.released.contains(&(slot, lock.nonce(), lock.fencing_token()));
            assert!(own || !lives(self, lock), "a live lock is reported lost: {lock:?}");
        }
        self.beliefs.forget(|belief| belief.slot == slot && belief.watch.is_lost())
    }

    /// Whether this group holds the key for this very lock.
    pub(super) fn lives_in(&self, group: u128, lock: &Lock) -> bool {
        let grant = self.groups.get(&group).and_then(|group| group.table.holder(lock.key()));
        grant
            .is_some_and(|grant| (grant.nonce, grant.token) == (lock.nonce(), lock.fencing_token()))
    }

    /// The operations that were enqueued, or lost their position, since the last call.
    pub(super) fn take_queued(&mut self) -> Vec<(Op, Nonce, bool)> {
        std::mem::take(&mut self.queued)
    }

    /// Whether a group was formed after the first, since the last call.
    pub(super) fn take_formed_again(&mut self) -> bool {
        std::mem::take(&mut self.formed_again)
    }

    /// Every operation that was granted in any group.
    pub(super) const fn granted(&self) -> &BTreeSet<Op> {
        &self.granted
    }
}
