//! What is asked, rested, held and told, as plain lists that are searched from end to end. It keeps no
//! index, no schedule and no state that follows from another.

mod answers;

use super::*;

/// A wait in milliseconds of the test's clock: [`NOW`] does not wait, [`EVER`] has no end.
pub(super) const NOW: u64 = 0;
pub(super) const EVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Granted { token: u64, sent: Instant },
    Held,
    Spent,
    Limit,
    Unlocked { was: Ended, asked_before: bool },
    Unanswered,
    Extended { token: Option<u64>, sent: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lock,
    Unlock,
    Extend,
}

/// One thing that is asked of the log, for one caller or for several.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) kind: Kind,
    pub(super) call: LockCall,
    /// Each with how long it waits itself.
    pub(super) callers: Vec<(CallerId, u64)>,
    /// The longest wait of all who were ever among them; of an unlock, until when it is repeated.
    until: u64,
    pub(super) request: u64,
    sends: u32,
    first_sent: Option<u64>,
    over_channel: bool,
    due: Option<u64>,
    pub(super) queued: bool,
    stale: bool,
    forget: bool,
}

impl Ask {
    fn command(&self, now: u64, process: ProcessId, seen: Seen) -> Command {
        let LockCall { key, nonce, duration_ms, owner, .. } = self.call.clone();
        let request = self.request;
        match self.kind {
            Kind::Unlock => Command::Unlock { key, nonce, forget: self.forget },
            Kind::Extend => Command::Extend { key, nonce, process, request, duration_ms },
            Kind::Lock => {
                let wait = match self.until {
                    NOW => Wait::No,
                    EVER => Wait::Forever,
                    end => Wait::Ms(end.saturating_sub(now).max(1)),
                };
                let asked =
                    LockRequest { key, nonce, process, request, duration_ms, wait, seen, owner };
                Command::Lock(asked)
            }
        }
    }

    /// By when a place of it in the queue, and then its lease, is over in any case.
    fn over(&self, now: u64) -> u64 {
        let end = if self.until == EVER { now + 3_600_000 } else { self.until.max(now) };
        end + self.call.duration_ms
    }
}

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) call: LockCall,
    pub(super) token: u64,
    adopted: bool,
    /// Its LOCK was sent once and by no channel.
    sole: bool,
    pub(super) receivers: Vec<CallerId>,
    extenders: Vec<CallerId>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) process: ProcessId,
    pub(super) requests: u64,
    pub(super) asks: Vec<Ask>,
    pub(super) holds: Vec<Hold>,
    /// Who asks again whenever it is refused, also between two askings.
    pub(super) again: Vec<(CallerId, LockCall)>,
    pub(super) told: Vec<(CallerId, Told)>,
    pub(super) lost: Vec<(Nonce, u64)>,
    pub(super) ended: Vec<(Nonce, u64)>,
    /// Whose answers are worth nothing any more, unless they were taken before.
    pub(super) revoked: Vec<CallerId>,
    pub(super) taken: Vec<CallerId>,
}

impl Model {
    fn tell(&mut self, callers: impl IntoIterator<Item = (CallerId, u64)>, told: Told) {
        self.told.extend(callers.into_iter().map(|(caller, _)| (caller, told)));
    }

    pub(super) fn find(&mut self, kind: Kind, nonce: Nonce) -> Option<&mut Ask> {
        self.asks.iter_mut().find(|ask| ask.kind == kind && ask.call.nonce == nonce)
    }

    fn remove(&mut self, kind: Kind, nonce: Nonce) -> Option<Ask> {
        let at = self.asks.iter().position(|ask| ask.kind == kind && ask.call.nonce == nonce)?;
        Some(self.asks.remove(at))
    }

    fn hold(&mut self, nonce: Nonce) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.call.nonce == nonce)
    }

    fn asks_again(&self, nonce: Nonce) -> bool {
        self.again.iter().any(|(_, call)| call.nonce == nonce)
    }

    pub(super) fn knows(&mut self, nonce: Nonce) -> bool {
        let asked = [Kind::Lock, Kind::Unlock].map(|kind| self.find(kind, nonce).is_some());
        asked.contains(&true) || self.hold(nonce).is_some() || self.asks_again(nonce)
    }

    pub(super) fn unlocks_for_another(&mut self, nonce: Nonce) -> bool {
        let own = self.hold(nonce).is_some_and(|hold| !hold.adopted);
        self.find(Kind::Unlock, nonce).is_some() && !own
    }

    fn ask(&mut self, kind: Kind, call: LockCall, callers: Vec<(CallerId, u64)>, until: u64) {
        if kind != Kind::Unlock {
            self.requests += 1;
        }
        let forget = kind == Kind::Unlock && self.hold(call.nonce).is_some_and(|hold| hold.sole);
        let (request, due) = (self.requests, Some(self.now));
        let new = Ask {
            kind,
            call,
            callers,
            until,
            request,
            due,
            forget,
            sends: 0,
            first_sent: None,
            over_channel: false,
            queued: false,
            stale: false,
        };
        self.asks.push(new);
    }

    pub(super) fn lock(&mut self, caller: CallerId, call: &LockCall, until: u64) {
        let (now, nonce) = (self.now, call.nonce);
        let asked = self.find(Kind::Lock, nonce).map(|ask| (ask.call.key.clone(), ask.queued));
        let elsewhere = asked.as_ref().is_some_and(|(key, _)| *key != call.key);
        if elsewhere || self.find(Kind::Unlock, nonce).is_some() {
            self.again.retain(|(other, _)| *other != caller);
            return self.tell([(caller, 0)], Told::Spent);
        }
        if until == NOW && asked.is_some_and(|(_, queued)| queued) {
            return self.tell([(caller, 0)], Told::Held);
        }
        if call.retries && !self.again.iter().any(|(other, _)| *other == caller) {
            self.again.push((caller, call.clone()));
        }
        if let Some(ask) = self.find(Kind::Lock, nonce) {
            ask.callers.push((caller, until));
            (ask.until, ask.due) = (ask.until.max(until), Some(now));
        } else {
            self.ask(Kind::Lock, call.clone(), vec![(caller, until)], until);
        }
    }

    pub(super) fn unlock(&mut self, caller: Option<CallerId>, call: &LockCall, until: u64) {
        let (now, callers) = (self.now, caller.map(|caller| (caller, 0)));
        if let Some(ask) = self.find(Kind::Unlock, call.nonce) {
            ask.callers.extend(callers);
            ask.until = ask.until.max(until);
        } else {
            self.ask(Kind::Unlock, call.clone(), callers.into_iter().collect(), until);
        }
        let ask = self.find(Kind::Unlock, call.nonce).unwrap();
        ask.due = if ask.sends == 0 { Some(now) } else { ask.due };
    }

    pub(super) fn extend(&mut self, caller: CallerId, call: &LockCall) {
        self.ask(Kind::Extend, call.clone(), vec![(caller, 0)], 0);
    }

    pub(super) fn give_up(&mut self, caller: CallerId) {
        self.asks.retain(|ask| ask.kind != Kind::Extend || ask.callers[0].0 != caller);
    }

    pub(super) fn cancel(&mut self, caller: CallerId, call: &LockCall) {
        let (now, nonce) = (self.now, call.nonce);
        let rested = self.again.iter().position(|(other, _)| *other == caller);
        let rested = rested.map(|at| self.again.remove(at).1);
        let is_he = |other: &(CallerId, u64)| other.0 == caller;
        if let Some(ask) = self.find(Kind::Lock, nonce).filter(|ask| ask.callers.iter().any(is_he))
        {
            ask.callers.retain(|other| !is_he(other));
            if ask.callers.is_empty() {
                let ask = self.remove(Kind::Lock, nonce).unwrap();
                if ask.sends > 0 && self.hold(nonce).is_none() && !self.asks_again(nonce) {
                    self.unlock(None, &ask.call, ask.over(now));
                }
            }
        } else if let Some(hold) = self.hold(nonce).filter(|hold| hold.receivers.contains(&caller))
        {
            hold.receivers.retain(|other| *other != caller);
            if hold.receivers.is_empty() {
                let call = hold.call.clone();
                self.unlock(None, &call, now + call.duration_ms);
            }
        } else if let Some(rested) = rested.filter(|_| !self.knows(nonce)) {
            self.unlock(None, &rested, now + rested.duration_ms);
        }
    }

    /// What is to be sent now.
    pub(super) fn send(&mut self, sending: Sending) -> Vec<Command> {
        let (now, process) = (self.now, self.process);
        let over = |ask: &Ask| ask.kind == Kind::Unlock && ask.sends > 0 && now > ask.until;
        let is_due = |ask: &Ask| ask.due.is_some_and(|due| due <= now);
        let ended: Vec<Ask> = self.asks.extract_if(.., |ask| is_due(ask) && over(ask)).collect();
        ended.into_iter().for_each(|ask| self.tell(ask.callers, Told::Unanswered));
        let due = self.asks.iter_mut().filter(|ask| is_due(ask));
        let sent = due.map(|ask| {
            ask.sends += 1;
            ask.over_channel |= sending.over_channel;
            ask.first_sent.get_or_insert(now);
            ask.forget &= !ask.over_channel && ask.sends == 1;
            ask.due = Some(now + [100, 200, 400, 800].get(ask.sends as usize - 1).unwrap_or(&1000));
            ask.command(now, process, sending.seen)
        });
        sent.collect()
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.asks.iter().filter_map(|ask| ask.due).min()
    }

    pub(super) fn ask_again(&mut self, queued: bool) {
        for ask in self.asks.iter_mut().filter(|ask| queued || !ask.queued) {
            (ask.queued, ask.due) = (false, Some(self.now));
        }
    }

    /// Ends a hold, and what was answered of its extensions.
    fn gone(&mut self, which: impl Fn(&Hold) -> bool) -> Vec<(Nonce, u64)> {
        let gone: Vec<Hold> = self.holds.extract_if(.., |hold| which(hold)).collect();
        self.revoked.extend(gone.iter().flat_map(|hold| &hold.extenders));
        gone.into_iter().map(|hold| (hold.call.nonce, hold.token)).collect()
    }

    fn lose(&mut self, which: impl Fn(&Hold) -> bool) {
        let lost = self.gone(which);
        self.lost.extend(lost);
    }

    pub(super) fn keep_held(&mut self, granted: impl Fn(&str) -> Option<Grant>) {
        self.lose(|hold| {
            let grant = granted(&hold.call.key);
            grant.is_none_or(|grant| (grant.nonce, grant.token) != (hold.call.nonce, hold.token))
        });
    }

    pub(super) fn refuse_locks(&mut self) {
        let asked = |ask: &Ask| ask.kind == Kind::Lock;
        while let Some(nonce) = self.asks.iter().find(|ask| asked(ask)).map(|ask| ask.call.nonce) {
            self.end_lock(nonce, Told::Limit);
        }
    }

    pub(super) fn withdraw_all(&mut self) {
        let locks = self.asks.iter().filter(|ask| ask.kind == Kind::Lock).cloned();
        for ask in locks.collect::<Vec<_>>() {
            ask.callers.iter().for_each(|(caller, _)| self.cancel(*caller, &ask.call));
        }
        self.asks.retain(|ask| ask.kind != Kind::Extend);
        let is_free = |hold: &&Hold| {
            let untaken = |caller: &CallerId| !self.taken.contains(caller);
            !hold.receivers.is_empty() && hold.receivers.iter().all(untaken)
        };
        let free = self
            .holds
            .iter()
            .filter(is_free)
            .map(|hold| (hold.call.clone(), hold.receivers.clone()));
        for (call, receivers) in free.collect::<Vec<_>>() {
            self.revoked.extend(receivers);
            self.unlock(None, &call, self.now + call.duration_ms);
        }
    }

    pub(super) fn left_group(&mut self, process: ProcessId) {
        self.process = process;
        self.revoked.extend(self.holds.iter().flat_map(|hold| &hold.receivers));
        self.lose(|_| true);
        let moot: Vec<Ask> = self.asks.extract_if(.., |ask| ask.kind != Kind::Lock).collect();
        for ask in moot {
            let told = match ask.kind {
                Kind::Extend => Told::Extended { token: None, sent: at(self.now) },
                _ => Told::Unlocked { was: Ended::Unknown, asked_before: ask.sends > 0 },
            };
            self.tell(ask.callers, told);
        }
        for ask in &mut self.asks {
            (ask.sends, ask.over_channel, ask.first_sent) = (0, false, None);
        }
        self.ask_again(true);
    }
}
