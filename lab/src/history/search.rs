//! The search for a legal order of the operations.

mod links;
mod mixer;
mod order;

use std::{hash::BuildHasherDefault, time::Duration};

use self::{links::Links, mixer::Mixer, order::Order};
use super::{
    ModelKind,
    model::Model,
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
/// search of Wing and Gong, with Lowe's memory of tried states.
///
/// Where tokens can be trusted they give the order of the grants, which leaves hardly a choice.
/// Where they cannot, only the fenced model keeps to them: the others are right or wrong without.
///
/// Steps taken are subtracted from `budget`.
pub(super) fn search<M: Model>(model: &M, timeline: &Timeline, budget: &mut u64) -> Verdict {
    let by_token = timeline.by_token || M::KIND == ModelKind::Fenced;
    Search::new(model, timeline, by_token).run(budget)
}

/// Places in the search that were tried: the steps taken, as one number, and the state; with the
/// earliest time at which it was reached, as an earlier time allows all that a later one does.
#[expect(clippy::disallowed_types, reason = "its order is never seen, and its hash has no key")]
type Tried<S> = std::collections::HashMap<(u128, S), Duration, BuildHasherDefault<Mixer>>;

struct Search<'a, M: Model> {
    model: &'a M,
    timeline: &'a Timeline,
    /// Steps that must still be taken, by `from`, except those in `order`.
    required: Links,
    /// All that must be taken, by `to`: the first bounds every time.
    by_end: Links,
    /// The place of each step in `by_end`.
    end_places: Vec<usize>,
    /// The steps of `by_end`.
    ends: Vec<usize>,
    /// Steps that may be taken and are not, by `from`.
    optional: Links,
    order: Order,
    taken: Vec<Taken<M::State>>,
    tried: Tried<M::State>,
}

/// A step taken, and the state to return to.
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

/// The state of a search.
#[derive(Clone)]
struct At<S> {
    state: S,
    now: Duration,
    /// How many ranks of tokens have had a turn.
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
        let order = if by_token { Order::by_token(steps) } else { Order::none(steps) };
        Self {
            model,
            timeline,
            required: Links::new(steps.len(), |step| {
                steps[step].to.is_some() && !order.is_in_turn(step)
            }),
            by_end: Links::new(ends.len(), |_| true),
            end_places,
            ends,
            optional: Links::new(steps.len(), |step| steps[step].to.is_none()),
            order,
            taken: Vec::new(),
            tried: Tried::default(),
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

    /// The next step that can be taken at `at`, after the step `after` was tried: first the steps
    /// that must be taken, then the grant whose turn it is, then optional steps.
    fn next(
        &mut self,
        at: &At<M::State>,
        after: Option<usize>,
        limit: Duration,
        budget: &mut u64,
    ) -> Result<Option<Chosen<M::State>>, OutOfBudget> {
        let mut candidate = match after {
            Some(step) => self.follow(at, step),
            None => self.start(at, List::Required),
        };
        while let Some((list, step)) = candidate {
            if self.timeline.steps[step].from > limit {
                candidate = self.start_after(at, list);
                continue;
            }
            *budget = budget.checked_sub(1).ok_or(OutOfBudget)?;
            if let Some(chosen) = self.attempt(at, step, limit) {
                return Ok(Some(chosen));
            }
            candidate = self.follow(at, step);
        }
        Ok(None)
    }

    /// The candidate after `step`.
    fn follow(&self, at: &At<M::State>, step: usize) -> Option<(List, usize)> {
        let (list, next) = if self.order.is_in_turn(step) {
            (List::Turn, None)
        } else if self.timeline.steps[step].to.is_some() {
            (List::Required, self.required.after(step))
        } else {
            (List::Optional, self.optional.after(step))
        };
        next.map(|next| (list, next)).or_else(|| self.start_after(at, list))
    }

    /// The first candidate of `list`, or of those after it.
    fn start(&self, at: &At<M::State>, list: List) -> Option<(List, usize)> {
        let first = match list {
            List::Required => self.required.first(),
            List::Turn => self.order.turn(at.rank),
            List::Optional => self.optional.first(),
        };
        first.map(|step| (list, step)).or_else(|| self.start_after(at, list))
    }

    /// The first candidate of the lists after `list`.
    fn start_after(&self, at: &At<M::State>, list: List) -> Option<(List, usize)> {
        match list {
            List::Required => self.start(at, List::Turn),
            List::Turn => self.start(at, List::Optional),
            List::Optional => None,
        }
    }

    fn attempt(
        &mut self,
        at: &At<M::State>,
        step: usize,
        limit: Duration,
    ) -> Option<Chosen<M::State>> {
        let Step { action, from, .. } = self.timeline.steps[step];
        let rank = self.order.after(step, at.rank)?;
        let (state, now) = self.model.step(&at.state, &action, at.now.max(from))?;
        if now > limit {
            return None;
        }
        let set = at.set ^ mark(step);
        // A step that changes nothing excludes no other order: it can be taken at once.
        let forced = now == at.now && state == at.state;
        if !forced && !self.remember(set, &state, now) {
            return None;
        }
        Some(Chosen { step, next: At { state, now, rank, set }, forced })
    }

    /// Whether this place is new, or is reached at an earlier time than before.
    fn remember(&mut self, set: u128, state: &M::State, now: Duration) -> bool {
        let earliest = self.tried.entry((set, state.clone())).or_insert(Duration::MAX);
        let earlier = now < *earliest;
        *earliest = now.min(*earliest);
        earlier
    }

    fn take_out(&mut self, step: usize) {
        if self.timeline.steps[step].to.is_none() {
            self.optional.take_out(step);
            return;
        }
        self.by_end.take_out(self.end_places[step]);
        if !self.order.is_in_turn(step) {
            self.required.take_out(step);
        }
    }

    /// In the reverse order of taking out.
    fn put_back(&mut self, step: usize) {
        if self.timeline.steps[step].to.is_none() {
            self.optional.put_back(step);
            return;
        }
        self.by_end.put_back(self.end_places[step]);
        if !self.order.is_in_turn(step) {
            self.required.put_back(step);
        }
    }
}

struct OutOfBudget;

/// The candidates of a state.
#[derive(Clone, Copy)]
enum List {
    Required,
    Turn,
    Optional,
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
