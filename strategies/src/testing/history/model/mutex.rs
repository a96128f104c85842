//! The holder of one key, shared by all models.

use std::time::Duration;

use super::Action;

/// The state that all models share: the present holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mutex {
    /// The present hold.
    pub hold: Option<Hold>,
    /// Nonces that held, do no more, and could be asked for again; in order.
    pub spent: Vec<u32>,
    /// How many of the unseen calls have had a turn.
    pub ghosts_used: usize,
}

/// One acquisition that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Its acquisition; `None` is one of the unseen calls.
    pub acquisition: Option<u32>,
    /// Its token, if a grant showed it.
    pub token: Option<u64>,
    /// The deadline of its holder; zero if no caller was granted.
    pub until: Duration,
    /// Whether a caller was granted. If not, its withdrawal may end it at any time.
    pub granted: bool,
    /// From when on an unlock without a reply may have ended it.
    pub released: Option<Duration>,
    /// How many actions are still to find it holding. It cannot end by itself before they have:
    /// stated here, it ends at once a path that a search would leave much later.
    finds: u32,
    /// Whether its nonce could be asked for again.
    repeated: bool,
}

impl Hold {
    /// One of the unseen calls.
    const fn unseen() -> Self {
        Self {
            acquisition: None,
            token: None,
            until: Duration::ZERO,
            granted: false,
            released: None,
            finds: 0,
            repeated: false,
        }
    }
}

impl Mutex {
    /// Whether this acquisition holds.
    #[must_use]
    pub fn holds(&self, acquisition: u32) -> bool {
        self.hold.is_some_and(|hold| hold.acquisition == Some(acquisition))
    }

    /// Takes `action` at `at` or as soon after it as possible. `ends` returns when a granted
    /// hold may end by itself, at or after a time.
    ///
    /// A hold ends by itself only when another action needs it to: as it may end at any later time
    /// too, ending it early would only forbid more.
    #[must_use]
    pub fn step(
        &self,
        action: &Action,
        at: Duration,
        ghosts: &[Duration],
        ends: fn(&Hold, Duration) -> Duration,
    ) -> Option<(Self, Duration)> {
        let mut next = self.clone();
        let at = match *action {
            Action::Grant { acquisition, token, until, released, finds, repeated, .. } => {
                if let Some(hold) = next.hold.as_mut()
                    && hold.acquisition == Some(acquisition)
                {
                    hold.until = hold.until.max(until);
                    (hold.granted, hold.token) = (true, Some(token));
                    hold.finds = hold.finds.saturating_sub(1);
                    return Some((next, at));
                }
                let (acquisition, token) = (Some(acquisition), Some(token));
                let hold =
                    Hold { acquisition, token, until, granted: true, released, finds, repeated };
                next.take(hold, at, ends)?
            }
            Action::Ghost { acquisition, token, released, finds, repeated } => {
                if next.holds(acquisition) {
                    return None;
                }
                let (acquisition, until) = (Some(acquisition), Duration::ZERO);
                let hold =
                    Hold { acquisition, token, until, granted: false, released, finds, repeated };
                next.take(hold, at, ends)?
            }
            Action::Unlock { acquisition } => {
                if !next.holds(acquisition) {
                    return None;
                }
                next.free();
                at
            }
            Action::Extend { acquisition, until } => {
                let hold =
                    next.hold.as_mut().filter(|hold| hold.acquisition == Some(acquisition))?;
                hold.until = hold.until.max(until);
                hold.granted = true;
                hold.finds = hold.finds.saturating_sub(1);
                at
            }
            Action::NotHolder { acquisition } => {
                if next.holds(acquisition) {
                    next.vacate(at, ends)?
                } else {
                    at
                }
            }
            Action::Held { acquisition } => {
                if next.hold.is_some_and(|hold| hold.acquisition != Some(acquisition)) {
                    return Some((next, at));
                }
                let at = next.vacate(at, ends)?;
                // One of the unseen calls holds: any, as each can at any time since it was invoked.
                let invoked = ghosts.get(next.ghosts_used)?;
                next.ghosts_used += 1;
                next.hold = Some(Hold::unseen());
                at.max(*invoked)
            }
        };
        Some((next, at))
    }

    /// Gives the key to `hold`, whose nonce never held.
    fn take(
        &mut self,
        hold: Hold,
        at: Duration,
        ends: fn(&Hold, Duration) -> Duration,
    ) -> Option<Duration> {
        if hold.acquisition.is_some_and(|acquisition| self.spent.contains(&acquisition)) {
            return None;
        }
        let at = self.vacate(at, ends)?;
        self.hold = Some(hold);
        Some(at)
    }

    /// Lets the present hold end by itself, if it can.
    fn vacate(&mut self, at: Duration, ends: fn(&Hold, Duration) -> Duration) -> Option<Duration> {
        let at = match &self.hold {
            Some(hold) if hold.finds > 0 => return None,
            Some(hold) if hold.granted => {
                let end = ends(hold, at);
                hold.released.map_or(end, |released| end.min(at.max(released)))
            }
            _ => at,
        };
        self.free();
        Some(at)
    }

    fn free(&mut self) {
        if let Some(Hold { acquisition: Some(acquisition), repeated: true, .. }) = self.hold.take()
            && let Err(place) = self.spent.binary_search(&acquisition)
        {
            self.spent.insert(place, acquisition);
        }
    }
}
