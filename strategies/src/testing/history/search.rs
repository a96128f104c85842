use std::{collections::BTreeMap, time::Duration};

use super::{
    model::{Action, Model},
    timeline::{Step, Timeline},
};

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// An order explains everything.
    Legal,
    /// No order does.
    Illegal,
    /// The budget ended before the search.
    Undecided,
}

/// Looks for an order of the timeline's actions that `model` takes, each within its time: the
/// search of Wing and Gong, with Lowe's memory of what was tried.
///
/// Steps taken are subtracted from `budget`.
pub(super) fn search<M: Model>(model: &M, timeline: &Timeline, budget: &mut u64) -> Verdict {
    // The order by tokens is nearly always the right one, and leaves the search no choice.
    match Search::new(model, timeline, true).run(budget) {
        Verdict::Illegal if M::KIND != super::ModelKind::Fenced => {
            // Wrong tokens are another model's finding.
            Search::new(model, timeline, false).run(budget)
        }
        verdict => verdict,
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    timeline: &'a Timeline,
    /// Steps that must be taken and are not, by `from`.
    required: Links,
    /// The same, by `to`: the first bounds every time.
    by_end: Links,
    /// The place of each step in `by_end`.
    end_places: Vec<usize>,
    /// The steps of `by_end`.
    ends: Vec<usize>,
    /// Steps that may be taken and are not, by `from`.
    optional: Links,
    /// Of each step that takes the key, the rank of its token; `None` where tokens order nothing.
    ranks: Vec<Option<usize>>,
    taken: Vec<Taken<M::State>>,
    /// What was tried: the steps taken, as one number, and the state; with the earliest time at
    /// which it was reached, as an earlier time allows all that a later one does.
    tried: BTreeMap<u128, Vec<(M::State, Duration)>>,
}

/// A step taken, and what to return to.
struct Taken<S> {
    step: usize,
    before: At<S>,
    /// Whether nothing else needs to be tried in its place.
    forced: bool,
}

/// A step that can be taken, and where it leads.
struct Chosen<S> {
    step: usize,
    next: At<S>,
    forced: bool,
}

/// Where a search stands.
#[derive(Clone)]
struct At<S> {
    state: S,
    now: Duration,
    /// How many ranks of tokens have had their turn.
    rank: usize,
    /// The steps taken, as one number.
    set: u128,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, timeline: &'a Timeline, by_token: bool) -> Self {
        let steps = &timeline.steps;
        let mut ends: Vec<usize> = (0..steps.len()).filter(|&n| steps[n].to.is_some()).collect();
        ends.sort_by_key(|&step| steps[step].to);
        let mut end_places = vec![0; steps.len()];
        for (place, &step) in ends.iter().enumerate() {
            end_places[step] = place;
        }
        Self {
            model,
            timeline,
            required: Links::new(steps.len(), |step| steps[step].to.is_some()),
            by_end: Links::new(ends.len(), |_| true),
            end_places,
            ends,
            optional: Links::new(steps.len(), |step| steps[step].to.is_none()),
            ranks: ranks(steps, by_token),
            taken: Vec::new(),
            tried: BTreeMap::new(),
        }
    }

    fn run(mut self, budget: &mut u64) -> Verdict {
        let mut at = At { state: M::State::default(), now: Duration::ZERO, rank: 0, set: 0 };
        let mut after: Option<usize> = None;
        loop {
            let Some(first_end) = self.by_end.first() else { return Verdict::Legal };
            let limit = self.timeline.steps[self.ends[first_end]].to.unwrap_or(Duration::MAX);
            match self.next(&at, after, limit, budget) {
                Err(OutOfBudget) => return Verdict::Undecided,
                Ok(Some(Chosen { step, next, forced })) => {
                    self.take_out(step);
                    self.taken.push(Taken { step, before: at, forced });
                    (at, after) = (next, None);
                }
                Ok(None) => loop {
                    let Some(last) = self.taken.pop() else { return Verdict::Illegal };
                    self.put_back(last.step);
                    at = last.before;
                    if !last.forced {
                        after = Some(last.step);
                        break;
                    }
                },
            }
        }
    }

    /// The next step that can be taken at `at`, after the step `after` was tried; required ones
    /// come before optional ones.
    fn next(
        &mut self,
        at: &At<M::State>,
        after: Option<usize>,
        limit: Duration,
        budget: &mut u64,
    ) -> Result<Option<Chosen<M::State>>, OutOfBudget> {
        let was_optional = after.is_some_and(|step| self.timeline.steps[step].to.is_none());
        for optional in [false, true] {
            if was_optional && !optional {
                continue;
            }
            let links = if optional { &self.optional } else { &self.required };
            let mut candidate = match after {
                Some(step) if was_optional == optional => links.after(step),
                _ => links.first(),
            };
            while let Some(step) = candidate {
                if self.timeline.steps[step].from > limit {
                    break;
                }
                let links = if optional { &self.optional } else { &self.required };
                candidate = links.after(step);
                *budget = budget.checked_sub(1).ok_or(OutOfBudget)?;
                if let Some(chosen) = self.attempt(at, step, limit) {
                    return Ok(Some(chosen));
                }
            }
        }
        Ok(None)
    }

    fn attempt(
        &mut self,
        at: &At<M::State>,
        step: usize,
        limit: Duration,
    ) -> Option<Chosen<M::State>> {
        let Step { action, from, .. } = self.timeline.steps[step];
        let mut rank = at.rank;
        if let Some(own) = self.ranks[step] {
            if own > rank {
                return None;
            }
            // One below it is a repetition, which the model judges.
            rank = rank.max(own + 1);
        }
        let ghosts = &self.timeline.ghosts;
        let (state, now) = self.model.step(&at.state, &action, at.now.max(from), ghosts)?;
        if now > limit {
            return None;
        }
        let set = at.set ^ mark(step);
        // What changes nothing takes nothing from any other order: it can be taken at once.
        let forced = now == at.now && state == at.state && !matches!(action, Action::Ghost { .. });
        if !forced && !self.remember(set, &state, now) {
            return None;
        }
        Some(Chosen { step, next: At { state, now, rank, set }, forced })
    }

    /// Whether this place is new, or is reached at an earlier time than before.
    fn remember(&mut self, set: u128, state: &M::State, now: Duration) -> bool {
        let tried = self.tried.entry(set).or_default();
        match tried.iter_mut().find(|(known, _)| known == state) {
            Some((_, earliest)) if *earliest <= now => false,
            Some((_, earliest)) => {
                *earliest = now;
                true
            }
            None => {
                tried.push((state.clone(), now));
                true
            }
        }
    }

    fn take_out(&mut self, step: usize) {
        if self.timeline.steps[step].to.is_some() {
            self.required.take_out(step);
            self.by_end.take_out(self.end_places[step]);
        } else {
            self.optional.take_out(step);
        }
    }

    /// In the reverse order of taking out.
    fn put_back(&mut self, step: usize) {
        if self.timeline.steps[step].to.is_some() {
            self.by_end.put_back(self.end_places[step]);
            self.required.put_back(step);
        } else {
            self.optional.put_back(step);
        }
    }
}

struct OutOfBudget;

/// The rank of each step's token among all tokens.
fn ranks(steps: &[Step], by_token: bool) -> Vec<Option<usize>> {
    if !by_token {
        return vec![None; steps.len()];
    }
    // Only grants must happen: a ghost's token counts because a grant has shown it.
    let mut tokens: Vec<u64> = steps.iter().filter_map(|step| step.token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    steps.iter().map(|step| tokens.binary_search(&step.token?).ok()).collect()
}

/// A random-looking number for a step. A set of steps is the exclusive or of its numbers: two sets
/// of one history collide with a chance of 2⁻¹²⁸.
fn mark(step: usize) -> u128 {
    let half = |seed: u64| {
        let mut mixed = seed.wrapping_add((step as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (u128::from(half(0x2545_f491_4f6c_dd1d)) << 64) | u128::from(half(0))
}

/// A list of numbers in order, from which any can be taken out and put back in reverse.
struct Links {
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl Links {
    /// Those of `0..len` that are in the list. Place 0 is the list's own; number `n` has place
    /// `n + 1`.
    fn new(len: usize, contains: impl Fn(usize) -> bool) -> Self {
        let mut links = Self { next: vec![0; len + 1], previous: vec![0; len + 1] };
        let mut last = 0;
        for place in (1..=len).filter(|place| contains(place - 1)) {
            (links.next[last], links.previous[place]) = (place, last);
            last = place;
        }
        (links.next[last], links.previous[0]) = (0, last);
        links
    }

    fn first(&self) -> Option<usize> {
        self.next[0].checked_sub(1)
    }

    fn after(&self, number: usize) -> Option<usize> {
        self.next[number + 1].checked_sub(1)
    }

    fn take_out(&mut self, number: usize) {
        let (previous, next) = (self.previous[number + 1], self.next[number + 1]);
        (self.next[previous], self.previous[next]) = (next, previous);
    }

    fn put_back(&mut self, number: usize) {
        let (previous, next) = (self.previous[number + 1], self.next[number + 1]);
        (self.next[previous], self.previous[next]) = (number + 1, number + 1);
    }
}
