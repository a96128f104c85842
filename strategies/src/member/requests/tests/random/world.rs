//! The map, the model and the table between which the steps go, and their comparison.

use super::*;

fn table(groups: u64) -> LockTable {
    let first_token = 1 + groups * 1000;
    LockTable::new(TableConfig { first_token, waiters_per_key_max: 2, ..TableConfig::default() })
}

/// A caller, with what it asked for.
pub(super) struct Caller {
    pub(super) call: LockCall,
    pub(super) wait: u64,
    kind: Kind,
    gone: bool,
    answered: Option<Told>,
    claim: Option<Claim>,
}

pub(super) struct World {
    pub(super) requests: Requests,
    pub(super) model: Model,
    pub(super) table: LockTable,
    groups: u64,
    /// What was sent, and whether through a channel.
    flight: Vec<(Command, bool)>,
    pub(super) callers: BTreeMap<CallerId, Caller>,
    pub(super) waiting: BTreeSet<CallerId>,
    pub(super) now: u64,
}

pub(super) type Checked = Result<(), TestCaseError>;

impl World {
    pub(super) fn new() -> Self {
        Self {
            requests: Requests::new(ME),
            model: Model { process: ME, ..Model::default() },
            table: table(0),
            groups: 0,
            flight: Vec::new(),
            callers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            now: 0,
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.model.now = self.now;
    }

    fn tell(&mut self, call: Call) {
        self.requests.call(at(self.now), call);
    }

    fn come(&mut self, call: LockCall, wait: u64, kind: Kind) -> CallerId {
        let caller = self.callers.len() as CallerId;
        let new = Caller { call, wait, kind, gone: false, answered: None, claim: None };
        self.callers.insert(caller, new);
        self.waiting.insert(caller);
        caller
    }

    fn lock(&mut self, caller: CallerId) {
        let Caller { call, wait, .. } = &self.callers[&caller];
        let until = match *wait {
            NOW => Until::Now,
            EVER => Until::Never,
            end => Until::At(at(end)),
        };
        let lock = LockCall { until, ..call.clone() };
        self.model.lock(caller, &lock, *wait);
        self.tell(Call::Lock { caller, lock });
    }

    fn again(&mut self, caller: CallerId) {
        let Caller { call, gone, answered, .. } = &self.callers[&caller];
        if call.retries && !gone && *answered == Some(Told::Held) && self.waiting.insert(caller) {
            self.lock(caller);
        }
    }

    pub(super) fn go(&mut self, caller: CallerId) {
        let asked = self.callers.get_mut(&caller).unwrap();
        if asked.kind == Kind::Unlock {
            // It is kept for its answer.
            return;
        }
        asked.gone = true;
        self.waiting.remove(&caller);
        if asked.kind == Kind::Extend {
            self.model.give_up(caller);
            return self.tell(Call::GiveUp { caller });
        }
        self.model.cancel(caller, &asked.call);
        let LockCall { key, nonce, .. } = asked.call.clone();
        self.tell(Call::Cancel { caller, key, nonce });
    }

    fn send(&mut self, over_channel: bool) -> Checked {
        let sending = Sending { seen: Seen::At { group: 0, time: self.table.now() }, over_channel };
        let sent = self.requests.take_due(at(self.now), sending);
        let mut expected = self.model.send(sending);
        for command in &sent {
            let at = expected.iter().position(|other| other == command);
            prop_assert!(at.is_some(), "sent: {command:?}, of {expected:?}");
            expected.remove(at.unwrap());
        }
        prop_assert!(expected.is_empty(), "not sent: {expected:?}");
        self.flight.extend(sent.into_iter().map(|command| (command, over_channel)));
        Ok(())
    }

    fn observe(&mut self, effect: &Effect) -> Checked {
        self.requests.observe(at(self.now), effect);
        self.model.observe(effect);
        if let Effect::Granted(grant) = effect
            && grant.process == self.model.process
        {
            prop_assert!(self.requests.knows(grant.nonce), "nobody gives {grant:?} back");
        }
        Ok(())
    }

    fn apply(&mut self, command: &Command) -> Result<Vec<Effect>, TestCaseError> {
        let mut effects = Vec::new();
        self.table.apply(ClusterTime(self.now), command, &mut effects);
        effects.iter().try_for_each(|effect| self.observe(effect))?;
        Ok(effects)
    }

    fn deliver_all(&mut self) -> Checked {
        let flight = std::mem::take(&mut self.flight);
        flight.iter().try_for_each(|(command, _)| self.apply(command).map(drop))
    }

    pub(super) fn take_step(&mut self, step: Step) -> Checked {
        let now = self.now;
        // The newest callers, so that they often meet.
        let newest: Vec<CallerId> = self.callers.keys().rev().take(8).copied().collect();
        let pick = |index: Index| (!newest.is_empty()).then(|| *index.get(&newest));
        let frame =
            |flight: &Vec<_>, index: Index| (!flight.is_empty()).then(|| index.index(flight.len()));
        match step {
            Step::Lock { key, nonce, wait, retries, lease } => {
                let drawn = nonce.is_none();
                let fresh = 100 + self.callers.len() as u128;
                let call = call(key, nonce.unwrap_or(fresh));
                let call = LockCall { drawn, unused: drawn, duration_ms: lease, retries, ..call };
                let wait = if wait == NOW || wait == EVER { wait } else { now + wait };
                let caller = self.come(call, wait, Kind::Lock);
                self.lock(caller);
            }
            Step::Again(index) => pick(index).into_iter().for_each(|caller| self.again(caller)),
            Step::Go(index) => pick(index).into_iter().for_each(|caller| self.go(caller)),
            Step::Take(index) => {
                let Some(caller) = pick(index) else { return Ok(()) };
                let Some(claim) = &self.callers[&caller].claim else { return Ok(()) };
                let Model { taken, revoked, .. } = &mut self.model;
                let has = taken.contains(&caller) || !revoked.contains(&caller);
                prop_assert_eq!(claim.take(), has, "whether {} has it", caller);
                taken.extend(has.then_some(caller));
            }
            Step::Unlock { of, told, within } => {
                let Some(of) = pick(of) else { return Ok(()) };
                let call = self.callers[&of].call.clone();
                let caller = told.then(|| self.come(call.clone(), 0, Kind::Unlock));
                self.model.unlock(caller, &call, now + within);
                let (until, LockCall { key, nonce, .. }) = (at(now + within), call);
                self.tell(Call::Unlock { caller, key, nonce, until });
            }
            Step::Extend { of, lease: duration_ms } => {
                let Some(of) = pick(of) else { return Ok(()) };
                let call = LockCall { duration_ms, ..self.callers[&of].call.clone() };
                let caller = self.come(call.clone(), 0, Kind::Extend);
                self.model.extend(caller, &call);
                let LockCall { key, nonce, .. } = call;
                self.tell(Call::Extend { caller, key, nonce, duration_ms });
            }
            Step::Pass(ms) => self.pass(ms),
            Step::Turn { over_channel } => self.send(over_channel)?,
            Step::Deliver(index) => {
                if let Some(index) = frame(&self.flight, index) {
                    let (command, _) = self.flight.remove(index);
                    self.apply(&command)?;
                }
            }
            Step::DeliverAll => self.deliver_all()?,
            Step::Copy(index) => {
                if let Some((command, true)) =
                    frame(&self.flight, index).map(|at| self.flight[at].clone())
                {
                    self.apply(&command)?;
                }
            }
            Step::LoseFrame(index) => {
                frame(&self.flight, index).map(|index| self.flight.remove(index));
            }
            Step::Other(command) => _ = self.apply(&command)?,
            Step::Refuse(index, reason) => {
                let Some(caller) = pick(index) else { return Ok(()) };
                let (nonce, process) = (self.callers[&caller].call.nonce, self.model.process);
                let asked = self.model.find(Kind::Lock, nonce).filter(|ask| !ask.queued);
                if let Some(Ask { request, .. }) = asked {
                    let request = *request;
                    self.observe(&Effect::Refused { nonce, process, request, reason })?;
                }
            }
            Step::RefuseAll => {
                self.model.refuse_locks();
                self.requests.refuse_locks(&Answer::Limit { what: "members", limit: 1 });
            }
            Step::NewLeader => {
                self.model.ask_again(false);
                self.requests.ask_again(at(now), false);
            }
            Step::Snapshot(unseen) => {
                for (command, _) in self.flight.drain(..unseen.min(self.flight.len())) {
                    self.table.apply(ClusterTime(now), &command, &mut Vec::new());
                }
                let table = &self.table;
                self.model.keep_held(|key| table.grant(key));
                self.requests.keep_held(|key| table.grant(key));
                self.model.ask_again(true);
                self.requests.ask_again(at(now), true);
            }
            Step::LeaveGroup => {
                self.groups += 1;
                let process = ProcessId(ME.0 + self.groups);
                self.flight.clear();
                self.table = table(self.groups);
                self.model.left_group(process);
                self.requests.left_group(at(now), process);
            }
        }
        Ok(())
    }

    pub(super) fn check(&mut self) -> Checked {
        let (mut told, mut expected) = (Vec::new(), std::mem::take(&mut self.model.told));
        for (caller, answer) in self.requests.take_answers().collect::<Vec<_>>() {
            prop_assert!(self.waiting.remove(&caller), "{caller} waits for nothing: {answer:?}");
            let asked = self.callers.get_mut(&caller).unwrap();
            let answer = match answer {
                Answer::Granted { grant, sent, received, claim } => {
                    prop_assert_eq!((received, &grant.key), (at(self.now), &asked.call.key));
                    asked.claim = Some(claim);
                    Told::Granted { token: grant.token, sent }
                }
                Answer::Extended { token, sent, claim } => {
                    asked.claim = Some(claim);
                    Told::Extended { token, sent }
                }
                Answer::Held => Told::Held,
                Answer::Spent => Told::Spent,
                Answer::Limit { .. } => Told::Limit,
                Answer::Unlocked { was, asked_before } => Told::Unlocked { was, asked_before },
                Answer::Unanswered => Told::Unanswered,
            };
            asked.answered = Some(answer);
            told.push((caller, answer));
        }
        told.sort_by_key(|(caller, _)| *caller);
        expected.sort_by_key(|(caller, _)| *caller);
        prop_assert_eq!(told, expected, "who was told");
        let locks = |locks: Vec<Lock>| {
            let locks = locks.iter().map(|lock| (lock.nonce(), lock.fencing_token()));
            locks.collect::<BTreeSet<_>>()
        };
        let lost = std::mem::take(&mut self.model.lost).into_iter().collect::<BTreeSet<_>>();
        let ended = std::mem::take(&mut self.model.ended).into_iter().collect::<BTreeSet<_>>();
        let token = lost.iter().chain(&ended).map(|(_, token)| *token).max();
        prop_assert_eq!(locks(self.requests.lost_locks()), lost, "lost");
        prop_assert_eq!(locks(self.requests.ended_locks()), ended, "ended");
        prop_assert_eq!(self.requests.take_lost_token(), token.unwrap_or(0));
        prop_assert_eq!(self.requests.next_due(), self.model.next_due().map(at), "next due");
        prop_assert_eq!(self.requests.len(), self.model.asks.len());
        for nonce in self.callers.values().map(|asked| asked.call.nonce) {
            let moot = self.model.unlocks_for_another(nonce);
            prop_assert_eq!(self.requests.unlocks_for_another(nonce), moot);
            prop_assert_eq!(self.requests.knows(nonce), self.model.knows(nonce));
        }
        let asking = |kind| {
            let asks = self.model.asks.iter().filter(|ask| ask.kind == kind);
            asks.map(|ask| ask.callers.len()).sum()
        };
        let kept = [
            ("locking", self.requests.callers.len(), asking(Kind::Lock)),
            ("extending", self.requests.extending.len(), asking(Kind::Extend)),
            ("resting", self.requests.retrying.len(), self.model.again.len()),
            ("held", self.requests.held.len(), self.model.holds.len()),
            (
                "received",
                self.requests.held.values().map(|held| held.receivers.len()).sum(),
                self.model.holds.iter().map(|hold| hold.receivers.len()).sum(),
            ),
        ];
        for (what, here, expected) in kept {
            prop_assert_eq!(here, expected, "{}", what);
        }
        Ok(())
    }

    pub(super) fn close(&mut self) -> Checked {
        self.requests.withdraw_all(at(self.now));
        self.model.withdraw_all();
        // Their locks and extensions end with the process; unlocks are still answered.
        self.waiting.retain(|caller| self.callers[caller].kind == Kind::Unlock);
        for (caller, asked) in &self.callers {
            let void = self.model.revoked.contains(caller) && !self.model.taken.contains(caller);
            let take = asked.claim.as_ref().filter(|_| void).is_some_and(Claim::take);
            prop_assert!(!take, "{} takes what was passed on", caller);
        }
        self.check()
    }

    /// Everything is delivered, and whoever has a lock gives it on, until nothing moves.
    pub(super) fn come_to_rest(&mut self, closing: bool) -> Checked {
        for _ in 0..80 {
            self.pass(1000);
            self.send(true)?;
            self.deliver_all()?;
            self.apply(&Command::Noop)?;
            self.check()?;
            let receivers = self.model.holds.iter().flat_map(|hold| hold.receivers.clone());
            receivers.collect::<Vec<_>>().into_iter().for_each(|caller| self.go(caller));
            let resting = self.model.again.iter().map(|(caller, _)| *caller);
            for caller in resting.collect::<Vec<_>>() {
                if closing { self.go(caller) } else { self.again(caller) }
            }
            self.check()?;
        }
        Ok(())
    }
}
