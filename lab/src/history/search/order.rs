//! The order of the grants by token.

use super::super::{model::Action, timeline::Step};

/// The order of the grants that the tokens give: each waits for its turn.
pub(super) struct Order {
    /// For each step that takes the key, the rank of its token; `None` where none is known.
    ranks: Vec<Option<usize>>,
    /// For each rank, its grant: the one candidate when it is the rank's turn. `None` where more
    /// than one LOCK can have taken it.
    turns: Vec<Option<usize>>,
}

impl Order {
    /// Any grant may come at any time.
    pub(super) fn none(steps: &[Step]) -> Self {
        Self { ranks: vec![None; steps.len()], turns: Vec::new() }
    }

    /// Grants come in the order of the tokens.
    pub(super) fn by_token(steps: &[Step]) -> Self {
        let mut tokens: Vec<u64> = steps.iter().filter_map(|step| step.token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let ranks: Vec<Option<usize>> =
            steps.iter().map(|step| tokens.binary_search(&step.token?).ok()).collect();
        let mut turns = vec![None; tokens.len()];
        for (step, rank) in ranks.iter().enumerate() {
            if let (Some(rank), Action::Grant { repeated: false, .. }) = (*rank, steps[step].action)
            {
                turns[rank].get_or_insert(step);
            }
        }
        Self { ranks, turns }
    }

    /// Whether this step is a candidate in its turn only.
    pub(super) fn is_in_turn(&self, step: usize) -> bool {
        self.ranks[step].is_some_and(|rank| self.turn(rank) == Some(step))
    }

    /// The grant whose turn it is when `rank` tokens have had theirs.
    pub(super) fn turn(&self, rank: usize) -> Option<usize> {
        self.turns.get(rank).copied().flatten()
    }

    /// How many tokens have had a turn after this step, if it can be taken after `rank` had.
    pub(super) fn after(&self, step: usize, rank: usize) -> Option<usize> {
        match self.ranks[step] {
            Some(own) if own > rank => None,
            // One of an earlier rank is a repetition, which the model checks.
            Some(own) => Some(rank.max(own + 1)),
            None => Some(rank),
        }
    }
}
