//! The effects of the scripts, read from the server's data after each run.

mod memory;
mod repeated;
mod view;

use std::{collections::BTreeMap, sync::Arc};

use gaggle_strategies::{
    Lock,
    lock::{Nonce, Owner},
    lock_table::{
        Bound, ClusterTime, Command, Effect, Grant, LockRequest, PriorState, ProcessId, Refusal,
        Seen, Wait,
    },
};

use self::view::{Holder, KeyView};
use super::{Acquisition, Invariants, Ledger};
use crate::{
    redis_server::{KeySpace, Run, Verb},
    simulator::recorder::Op,
};

/// The state of every key after the last script. It feeds the [`Ledger`], and adds two rules of a
/// queue in Redis (contract, rule 7): no grant overtakes a waiter, and no waiter of a process with
/// signs of life is dropped before its deadline.
#[derive(Clone)]
pub(in crate::simulator) struct Scripts {
    ledger: Ledger,
    keys: BTreeMap<Arc<str>, KeyView>,
    /// Until when a process may be silent for a key (ms): `waiter_ttl` after its last sign of life.
    alive_until: BTreeMap<(Arc<str>, String), u64>,
    waiters: BTreeMap<Nonce, Waiter>,
    /// From when on (ms) a LOCK of a nonce whose lease expired may be granted again: when its
    /// sender has seen a later time, or at once where no copy of the LOCK was in flight at the
    /// grant, of which Redis remembers nothing.
    expired: BTreeMap<Nonce, u64>,
}

/// A LOCK that may wait.
#[derive(Clone)]
struct Waiter {
    process: String,
    /// When the wait of one of its copies is over (ms): the first, and the last.
    until: Option<(u64, u64)>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            ledger: Ledger::of_scripts(),
            keys: BTreeMap::new(),
            alive_until: BTreeMap::new(),
            waiters: BTreeMap::new(),
            expired: BTreeMap::new(),
        }
    }
}

impl Invariants {
    /// Checks the effects of one request of a script, which left these keys.
    pub(in crate::simulator) fn after_script(
        &mut self,
        keys: &mut KeySpace,
        now_us: u64,
        run: &Run,
    ) {
        let now = ClusterTime(now_us / 1000);
        self.expire(now);
        let names = &run.keys[2..];
        let lock = String::from_utf8_lossy(&names[0]);
        let key: Arc<str> = lock.split_once(":l:").expect("the name of a lock").1.into();
        let after = KeyView::read(keys, names);
        let before = self.scripts.keys.insert(key.clone(), after.clone()).unwrap_or_default();
        let command = self.scripts.command(&key, now, run);
        // A POLL is a sign of life before the key is granted to the next waiter, unless the queue
        // has expired; a LOCK that waits is one after it.
        if run.verb == Verb::Poll && before.queue_end.is_some_and(|end| now.0 <= end) {
            self.scripts.note_life(&key, now, run);
        }
        let effects = self.scripts.effects(&key, now, (&before, &after), run);
        if run.verb == Verb::Lock && run.reply.as_ref().is_ok_and(|reply| word(reply) == "queued") {
            self.scripts.note_life(&key, now, run);
            self.scripts.enqueued(now, run, &before);
            if repeated::check(keys, now_us, run, &before, &after) {
                self.coverage.reach("repeated nonce of another call while it waits");
            }
        }
        let head = before.queue.first().copied();
        self.ledger(now, &command, &effects, |_| head);
        self.scripts.check_queue_lasts(&key, &after);
        memory::check(keys, now, run, &before, &after);
    }

    /// Leases end by the server's clock, whether a script sees it or not.
    fn expire(&mut self, now: ClusterTime) {
        let (mut effects, mut heads) = (Vec::new(), BTreeMap::new());
        for (key, view) in &mut self.scripts.keys {
            let is_remembered = view.remembers();
            if let Some(held) = view.holder.take_if(|held| held.expires_at <= now.0) {
                effects.push(expired(key, held.nonce, held.token));
                heads.extend(view.queue.first().map(|head| (key.clone(), *head)));
                let end = if is_remembered { held.expires_at } else { 0 };
                self.scripts.expired.insert(held.nonce, end);
            }
        }
        if !effects.is_empty() {
            self.ledger(now, &Command::Noop, &effects, |key| heads.get(key).copied());
        }
    }

    fn ledger(
        &mut self,
        now: ClusterTime,
        command: &Command,
        effects: &[Effect],
        head: impl Fn(&str) -> Option<Nonce>,
    ) {
        let ledger = &mut self.scripts.ledger;
        let (tokens, coverage) = (&mut self.last_tokens, &mut self.coverage);
        ledger.check(0, (now, command), effects, tokens, head, coverage);
        self.unlocked.extend(ledger.take_unlocked());
        if let Some(lines) = &mut self.lines {
            lines.push(format!("at {} {command:?}: {effects:?}", now.0));
        }
        if let Command::Lock(LockRequest { nonce, owner, .. }) = command
            && let Some(op) = Op::of_label(owner.label.as_deref())
        {
            self.ops.insert(*nonce, op);
        }
        effects.iter().for_each(|effect| self.note_effect(effect));
    }

    /// What the server has now.
    pub(in crate::simulator) fn scripts(&self) -> Scripts {
        self.scripts.clone()
    }

    /// The server has only this. Returns the locks that it lost, or of which it lost an
    /// extension; if it was allowed to lose them, they protect no more. Nor do those whose end it
    /// lost.
    pub(in crate::simulator) fn replace_server(
        &mut self,
        scripts: Scripts,
        may_lose: bool,
    ) -> Vec<(Op, Arc<str>)> {
        let mut locks = Vec::new();
        let before = std::mem::replace(&mut self.scripts, scripts).keys;
        let acquisition = |holder: Holder| (holder.nonce, holder.token);
        for (key, view) in &self.scripts.keys {
            let ended = view.holder.map(acquisition);
            let held = before.get(key).and_then(|view| view.holder).map(acquisition);
            if let Some(ended) = ended.filter(|ended| held != Some(*ended)) {
                self.beliefs.orphan(ended);
                // If it was force-unlocked, that is undone.
                self.notified.retain(|(_, notified)| *notified != ended);
            }
        }
        for (key, view) in before {
            let now = self.scripts.keys.get(&key).and_then(|view| view.holder);
            if let Some(holder) = view.holder
                && now != Some(holder)
            {
                if may_lose {
                    self.beliefs.orphan(acquisition(holder));
                }
                locks.extend(self.ops.get(&holder.nonce).map(|op| (*op, key)));
            }
        }
        locks
    }

    /// The grant of whose force-unlock this publication of a script notifies.
    pub(in crate::simulator) fn forced_by(run: &Run, push: &[u8]) -> Option<Acquisition> {
        let notice = run.args.get(4).filter(|_| run.verb == Verb::Unlock)?;
        let is_notice = push.ends_with(&[notice, b"\r\n".as_slice()].concat());
        let text = String::from_utf8_lossy(notice);
        let mut words = text.strip_prefix("2 ").filter(|_| is_notice)?.split(' ');
        Some((nonce(words.next()?), number(words.next()?)))
    }

    /// How many wait for the key.
    pub(in crate::simulator) fn waiters(&self, key: &str) -> usize {
        self.scripts.keys.get(key).map_or(0, |view| view.queue.len())
    }

    /// Whether Redis holds the key for this very lock.
    pub(in crate::simulator) fn is_held(&self, lock: &Lock) -> bool {
        let view = self.scripts.keys.get(lock.key());
        let acquisition = (lock.nonce(), lock.fencing_token());
        view.and_then(|view| view.holder)
            .is_some_and(|holder| (holder.nonce, holder.token) == acquisition)
            && !self.beliefs.is_orphan(acquisition)
    }
}

impl Scripts {
    fn note_life(&mut self, key: &Arc<str>, now: ClusterTime, run: &Run) {
        let process = setting(run, 0);
        let until = now.0 + number(&setting(run, 2));
        self.alive_until.insert((key.clone(), process), until);
    }

    /// A LOCK waits. A copy of one that waits already may end its wait earlier or later; that of
    /// another call replaces it.
    fn enqueued(&mut self, now: ClusterTime, run: &Run, before: &KeyView) {
        let arg = |at: usize| String::from_utf8_lossy(&run.args[at]);
        let (nonce, mut process) = (nonce(&arg(2)), setting(run, 0));
        let mut until = (arg(4) != "-1").then(|| now.0 + number(&arg(4))).map(|end| (end, end));
        let copy = self.waiters.get(&nonce).filter(|_| before.queue.contains(&nonce));
        if let Some(waiter) = copy.filter(|_| arg(5) == "c") {
            process.clone_from(&waiter.process);
            until = waiter
                .until
                .zip(until)
                .map(|(one, other)| (one.0.min(other.0), one.1.max(other.1)));
        }
        self.waiters.insert(nonce, Waiter { process, until });
    }

    /// The command of the lock table that a script stands for.
    fn command(&self, key: &Arc<str>, now: ClusterTime, run: &Run) -> Command {
        let arg = |at: usize| String::from_utf8_lossy(&run.args[at]);
        let key = key.clone();
        match run.verb {
            Verb::Lock => {
                let (nonce, wait) = (nonce(&arg(2)), arg(4));
                let wait = match &*wait {
                    "0" => Wait::No,
                    "-1" => Wait::Forever,
                    ms => Wait::Ms(number(ms)),
                };
                let seen = number(&arg(1)) / 1000 - number(&setting(run, 1));
                let again = self.expired.get(&nonce).is_some_and(|end| *end < seen);
                let time = ClusterTime(if again { now.0 + 1 } else { seen });
                let seen = Seen::At { group: 0, time };
                let owner = arg(6);
                let label = owner.split_once(" +").map(|(_, label)| label.to_owned());
                Command::Lock(LockRequest {
                    key,
                    nonce,
                    process: ProcessId(0),
                    duration_ms: number(&arg(3)),
                    wait,
                    seen,
                    owner: Arc::new(Owner { host: String::new(), pid: 0, label }),
                })
            }
            Verb::Unlock => Command::Unlock { key, nonce: nonce(&arg(1)), forget: false },
            Verb::Extend => Command::Extend {
                key,
                nonce: nonce(&arg(1)),
                process: ProcessId(0),
                request: 0,
                duration_ms: number(&arg(2)),
            },
            Verb::Poll | Verb::Inspect | Verb::Mark => Command::Noop,
        }
    }

    /// The effects of a script on a key, by the data before and after it and by its reply.
    fn effects(
        &self,
        key: &Arc<str>,
        now: ClusterTime,
        (before, after): (&KeyView, &KeyView),
        run: &Run,
    ) -> Vec<Effect> {
        let arg = |at: usize| String::from_utf8_lossy(&run.args[at]);
        let own = match run.verb {
            Verb::Lock => Some(nonce(&arg(2))),
            Verb::Unlock | Verb::Extend => Some(nonce(&arg(1))),
            Verb::Poll | Verb::Inspect | Verb::Mark => None,
        };
        let word = run.reply.as_deref().map(word).unwrap_or_default();
        let mut effects = Vec::new();
        let (process, request) = (ProcessId(0), 0);
        let mut passed = Vec::new();
        let ends = run.verb == Verb::Unlock && !word.is_empty() && !is_late_force(run);
        let unlocked = own.filter(|_| ends);
        if let Some(nonce) = unlocked {
            let was = match word {
                "held" => PriorState::Held,
                // Granted again with another token: the UNLOCK frees it, and does not say so.
                _ if before.holder.is_some_and(|held| held.nonce == nonce) => PriorState::Held,
                _ if before.queue.contains(&nonce) => PriorState::Waited,
                _ => PriorState::Unknown,
            };
            effects.push(Effect::Unlocked { key: key.clone(), nonce, process: None, was });
        }
        let acquisition = |view: &KeyView| view.holder.map(|held| (held.nonce, held.token));
        let (was, is) = (acquisition(before), acquisition(after));
        if let Some((nonce, token)) = was
            && was != is
            && unlocked != Some(nonce)
        {
            effects.push(expired(key, nonce, token));
        }
        for nonce in before.queue.iter().filter(|nonce| !after.queue.contains(nonce)) {
            if Some(*nonce) != unlocked && is.is_none_or(|(holder, _)| holder != *nonce) {
                self.check_dropped(*nonce, key, now);
                let (key, nonce) = (key.clone(), *nonce);
                effects.push(Effect::Dropped { key, nonce, process });
            }
        }
        if let Some(Holder { nonce, token, expires_at, .. }) = after.holder {
            if was != is {
                let place = before.queue.iter().position(|waiter| *waiter == nonce);
                if let Some(waiter) = self.waiters.get(&nonce).filter(|_| place.is_some()) {
                    // A LOCK that arrives again after its first wait brings a wait of its own.
                    let waits =
                        word == "granted" || waiter.until.is_none_or(|(_, last)| now.0 <= last);
                    assert!(waits, "{nonce} was granted {key} after its wait");
                }
                let ahead = place.map_or(&*after.queue, |place| &before.queue[..place]);
                let tries = run.verb == Verb::Lock && own == Some(nonce) && arg(4) == "0";
                for waiter in ahead.iter().filter(|waiter| after.queue.contains(waiter)) {
                    // Dropped, and enqueued again by this script; or passed by a try.
                    let again = run.verb == Verb::Lock && own == Some(*waiter);
                    assert!(again || tries, "{nonce} was granted {key} before {waiter}");
                    self.check_dropped(*waiter, key, now);
                    if tries {
                        let (key, nonce) = (key.clone(), *waiter);
                        passed.push(nonce);
                        effects.push(Effect::Dropped { key, nonce, process });
                    }
                }
            }
            let end = ClusterTime(expires_at);
            if was != is || run.verb == Verb::Lock && own == Some(nonce) {
                effects.push(Effect::Granted(Grant {
                    key: key.clone(),
                    nonce,
                    process,
                    token,
                    asked_at: now,
                    granted_at: now,
                    expires_at: end,
                }));
            } else if before.holder.is_some_and(|held| held.expires_at != expires_at)
                || own == Some(nonce) && run.verb == Verb::Extend
            {
                let held = Some((token, end));
                effects.push(Effect::Extended { nonce, process, request, held });
            }
        }
        for nonce in &after.queue {
            let repeated = run.verb == Verb::Lock && own == Some(*nonce);
            if repeated || passed.contains(nonce) || !before.queue.contains(nonce) {
                let (key, nonce) = (key.clone(), *nonce);
                effects.push(Effect::Queued { key, nonce, process });
            }
        }
        let refusal = own.zip(refusal(word)).filter(|_| run.verb == Verb::Lock);
        if let Some((nonce, reason)) = refusal {
            if reason == Refusal::Held {
                let is_free = after.holder.is_none() && after.queue.is_empty();
                assert!(!is_free, "refused as held, though {key} is free");
            } else {
                effects.push(Effect::Refused { nonce, process, reason });
            }
        }
        if run.verb == Verb::Extend && word == "gone" {
            let nonce = own.expect("an EXTEND has a nonce");
            effects.push(Effect::Extended { nonce, process, request, held: None });
        }
        effects
    }

    /// A waiter is dropped only after its own deadline, or when its process is silent.
    fn check_dropped(&self, nonce: Nonce, key: &Arc<str>, now: ClusterTime) {
        let Some(waiter) = self.waiters.get(&nonce) else { return };
        let over = waiter.until.is_some_and(|(first, _)| first <= now.0);
        let alive_until = self.alive_until.get(&(key.clone(), waiter.process.clone()));
        let silent = alive_until.is_none_or(|until| now.0 >= *until);
        assert!(over || silent, "a waiter for {key} was dropped before its time: {nonce}");
    }

    /// A queue does not expire before the last of its processes is silent.
    fn check_queue_lasts(&self, key: &Arc<str>, after: &KeyView) {
        for waiter in after.queue.iter().filter_map(|nonce| self.waiters.get(nonce)) {
            let alive_until = self.alive_until.get(&(key.clone(), waiter.process.clone()));
            let lasts = alive_until.is_none_or(|until| after.queue_end >= Some(*until));
            assert!(lasts, "the queue of {key} expires before {} is silent", waiter.process);
        }
    }
}

fn expired(key: &Arc<str>, nonce: Nonce, token: u64) -> Effect {
    Effect::Expired { key: key.clone(), nonce, process: ProcessId(0), token }
}

/// Whether it is a force-unlock that found another grant, or none, and changed nothing.
fn is_late_force(run: &Run) -> bool {
    !run.args[4].is_empty() && run.reply.as_ref().is_ok_and(|reply| word(reply) != "held")
}

/// An option that the script has: the process, nonce_memory, waiter_ttl and more.
fn setting(run: &Run, at: usize) -> String {
    let settings = String::from_utf8_lossy(&run.args[0]);
    settings.split(' ').nth(at).expect("a script has all options").to_owned()
}

/// The first word of a result.
fn word(reply: &str) -> &str {
    reply.split(' ').next().unwrap_or_default()
}

fn refusal(word: &str) -> Option<Refusal> {
    Some(match word {
        "held" => Refusal::Held,
        "spent" => Refusal::Spent,
        "stale" => Refusal::Stale,
        "waiters" => Refusal::Limit { what: Bound::WaitersPerKey, limit: 0 },
        "nonces" => Refusal::Limit { what: Bound::Nonces, limit: 0 },
        _ => return None,
    })
}

fn nonce(hex: &str) -> Nonce {
    Nonce::from_u128(u128::from_str_radix(hex, 16).expect("a nonce"))
}

fn number(digits: &str) -> u64 {
    digits.parse().expect("a whole number")
}
