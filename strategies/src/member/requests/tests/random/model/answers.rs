//! What the log answered, and who is told of it.

use super::*;

impl Model {
    pub(in super::super) fn observe(&mut self, effect: &Effect) {
        let me = self.process;
        match effect {
            Effect::Granted(grant) => {
                if grant.process == me {
                    self.granted(grant);
                }
                self.place_has_gone(grant.nonce);
            }
            Effect::Queued { nonce, process, request, .. } if *process == me => {
                let Some(ask) = self.asked_by(*nonce, *request) else { return };
                if ask.until == NOW {
                    return self.end_lock(*nonce, Told::Held);
                }
                (ask.queued, ask.due) = (true, None);
                self.end_tries(*nonce);
            }
            Effect::Dropped { nonce, .. } => self.place_has_gone(*nonce),
            Effect::Refused { nonce, process, request, reason } if *process == me => {
                let now = self.now;
                let Some(ask) = self.asked_by(*nonce, *request) else { return };
                match reason {
                    Refusal::Stale { .. } => {
                        ask.due = Some(if ask.stale { now + 10 } else { now });
                        ask.stale = true;
                    }
                    Refusal::Held if ask.until != NOW => self.end_tries(*nonce),
                    Refusal::Held => self.end_lock(*nonce, Told::Held),
                    Refusal::Spent(_) => self.end_lock(*nonce, Told::Spent),
                    Refusal::Limit { .. } => self.end_lock(*nonce, Told::Limit),
                }
            }
            Effect::Unlocked { key, nonce, was, .. } => {
                let gone = self.gone(|hold| hold.call.nonce == *nonce && hold.call.key == *key);
                if let Some(ask) = self.remove(Kind::Unlock, *nonce) {
                    self.ended.extend(gone);
                    let asked_before = ask.sends > 1;
                    self.tell(ask.callers, Told::Unlocked { was: *was, asked_before });
                } else {
                    self.lost.extend(gone);
                }
                self.place_has_gone(*nonce);
            }
            Effect::Extended { process, request, held, .. } if *process == me => {
                let asked = |ask: &Ask| ask.kind == Kind::Extend && ask.request == *request;
                let Some(place) = self.asks.iter().position(asked) else { return };
                let ask = self.asks.remove(place);
                let (token, sent) = (held.map(|(token, _)| token), at(ask.first_sent.unwrap()));
                if let Some(token) = token {
                    let hold = self.receive(&ask.call, token, (true, false));
                    hold.extenders.push(ask.callers[0].0);
                }
                self.tell(ask.callers, Told::Extended { token, sent });
            }
            Effect::Expired { nonce, .. } => self.lose(|hold| hold.call.nonce == *nonce),
            _ => {}
        }
    }

    fn asked_by(&mut self, nonce: Nonce, request: u64) -> Option<&mut Ask> {
        self.find(Kind::Lock, nonce).filter(|ask| ask.request == request)
    }

    /// The hold of this acquisition; a former one of the nonce is lost.
    fn receive(&mut self, call: &LockCall, token: u64, (adopted, sole): (bool, bool)) -> &mut Hold {
        self.lose(|hold| hold.call.nonce == call.nonce && hold.token != token);
        if self.hold(call.nonce).is_none() {
            let (call, receivers, extenders) = (call.clone(), Vec::new(), Vec::new());
            self.holds.push(Hold { call, token, adopted, sole, receivers, extenders });
        }
        self.hold(call.nonce).unwrap()
    }

    fn granted(&mut self, grant: &Grant) {
        let Grant { nonce, token, .. } = *grant;
        if self.asked_by(nonce, grant.request).is_none() {
            if !self.knows(nonce) {
                let lease = grant.expires_at.since(grant.granted_at);
                let call = LockCall { key: grant.key.clone(), nonce, ..call(0, 0) };
                self.unlock(None, &call, self.now + lease);
            }
            return;
        }
        let ask = self.remove(Kind::Lock, nonce).unwrap();
        let callers = || ask.callers.iter().map(|(caller, _)| *caller);
        self.again.retain(|(other, _)| !callers().any(|caller| caller == *other));
        let sole = ask.call.unused && ask.sends == 1 && !ask.over_channel;
        let hold = self.receive(&ask.call, token, (false, sole));
        // Found, and perhaps in other hands: whoever goes leaves it there.
        let found = !ask.call.drawn && grant.asked_at > grant.granted_at;
        if !found || !hold.receivers.is_empty() {
            hold.receivers.extend(callers());
        }
        let sent = at(ask.first_sent.unwrap());
        self.tell(ask.callers, Told::Granted { token, sent });
    }

    fn place_has_gone(&mut self, nonce: Nonce) {
        let now = self.now;
        if let Some(ask) = self.find(Kind::Lock, nonce).filter(|ask| ask.queued) {
            ask.queued = false;
            if ask.until > now {
                ask.due = Some(now);
            }
        }
    }

    /// Who does not wait finds the key held; where nobody is left, the place is withdrawn.
    fn end_tries(&mut self, nonce: Nonce) {
        let now = self.now;
        let Some(ask) = self.find(Kind::Lock, nonce) else { return };
        let tries: Vec<_> = ask.callers.extract_if(.., |(_, until)| *until == NOW).collect();
        if ask.callers.is_empty() {
            let ask = self.remove(Kind::Lock, nonce).unwrap();
            self.unlock(None, &ask.call, ask.over(now));
        }
        self.tell(tries, Told::Held);
    }

    pub(in super::super) fn end_lock(&mut self, nonce: Nonce, told: Told) {
        let Some(ask) = self.remove(Kind::Lock, nonce) else { return };
        if told != Told::Held {
            self.again.retain(|(other, _)| !ask.callers.iter().any(|(caller, _)| caller == other));
        }
        self.tell(ask.callers, told);
    }
}
