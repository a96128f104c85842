//! One leader for each term.

use std::collections::BTreeMap;

use gaggle_strategies::member::GroupView;

/// Election safety (Raft §5.2): at most one leader in a term.
#[derive(Debug, Default)]
pub(super) struct ElectionSafety {
    leaders: BTreeMap<(u128, u64), u64>,
}

impl ElectionSafety {
    /// Whether this member has come to lead a term that had no leader before.
    pub(super) fn check(&mut self, view: &GroupView) -> bool {
        if !view.leads {
            return false;
        }
        let leader = *self.leaders.entry((view.id, view.term)).or_insert(0);
        assert!(
            leader == 0 || leader == view.me,
            "election safety: {leader:x} and {:x} lead term {} of one group",
            view.me,
            view.term
        );
        self.leaders.insert((view.id, view.term), view.me);
        leader == 0
    }
}
