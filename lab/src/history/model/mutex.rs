//! The holder of one key, shared by all models.

use std::time::Duration;

use super::Action;

/// The state that all models share: the present holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::history) struct Mutex {
    /// The present hold.
    pub(super) hold: Option<Hold>,
    /// Nonces that held, do no more, and could be asked for again; in order.
    spent: Vec<u32>,
}

/// An acquisition that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    acquisition: u32,
    /// The token, if a grant showed it.
    pub(super) token: Option<u64>,
    /// The deadline of its holder; zero before a caller was granted.
    pub(super) until: Duration,
    /// From when on an unlock without a reply may have ended it.
    released: Option<Duration>,
    /// How many actions are still to find it holding. It cannot end by itself before they have:
    /// stated here, it ends at once a path that a search would leave much later.
    finds: u32,
    /// Whether its nonce could be asked for again.
    repeated: bool,
}

impl Mutex {
    /// Whether this acquisition holds.
    pub(super) fn holds(&self, acquisition: u32) -> bool {
        self.hold.is_some_and(|hold| hold.acquisition == acquisition)
    }

    /// Takes `action` at `at` or as soon after it as possible. `ends` returns when a hold may end
    /// by itself, at or after a time.
    ///
    /// A hold ends by itself only when another action needs it to: as it may end at any later time
    /// too, ending it early would only forbid more.
    pub(super) fn step(
        &self,
        action: &Action,
        at: Duration,
        ends: fn(&Hold, Duration) -> Duration,
    ) -> Option<(Self, Duration)> {
        let mut next = self.clone();
        let at = match *action {
            Action::Grant { acquisition, token, until, released, finds, repeated, .. } => {
                if next.holds(acquisition) {
                    return next.found(acquisition, until).map(|()| (next, at));
                }
                let token = Some(token);
                next.take(Hold { acquisition, token, until, released, finds, repeated }, at, ends)?
            }
            Action::Ghost { acquisition, token, released, finds, repeated } => {
                if next.holds(acquisition) {
                    return None;
                }
                let until = Duration::ZERO;
                next.take(Hold { acquisition, token, until, released, finds, repeated }, at, ends)?
            }
            Action::Unlock { acquisition } => {
                if !next.holds(acquisition) {
                    return None;
                }
                next.free();
                at
            }
            Action::Extend { acquisition, until } => {
                next.found(acquisition, until)?;
                at
            }
            Action::NotHolder { acquisition } => {
                if next.holds(acquisition) {
                    next.vacate(at, ends)?
                } else {
                    at
                }
            }
        };
        Some((next, at))
    }

    /// An action found `acquisition` holding, with a lease until then.
    fn found(&mut self, acquisition: u32, until: Duration) -> Option<()> {
        let hold = self.hold.as_mut().filter(|hold| hold.acquisition == acquisition)?;
        hold.until = hold.until.max(until);
        hold.finds = hold.finds.saturating_sub(1);
        Some(())
    }

    /// Gives the key to `hold`, whose nonce never held.
    fn take(
        &mut self,
        hold: Hold,
        at: Duration,
        ends: fn(&Hold, Duration) -> Duration,
    ) -> Option<Duration> {
        if self.spent.contains(&hold.acquisition) {
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
            Some(hold) => {
                let end = ends(hold, at);
                hold.released.map_or(end, |released| end.min(at.max(released)))
            }
            None => at,
        };
        self.free();
        Some(at)
    }

    fn free(&mut self) {
        if let Some(Hold { acquisition, repeated: true, .. }) = self.hold.take()
            && let Err(place) = self.spent.binary_search(&acquisition)
        {
            self.spent.insert(place, acquisition);
        }
    }
}
