//! What must hold in every state.

use stateright::Property;

use super::{
    account::broken as table,
    cluster::{Cluster, State, broken as step},
    raft::Node,
};

pub(crate) const ONE_LEADER: &str = "a term has one leader";
pub(crate) const LOG_MATCHING: &str = "logs that share an entry share all before it";
pub(crate) const LEADER_COMPLETE: &str = "the newest leader has every committed entry";
pub(crate) const COMMITTED: &str = "committed entries never change";
pub(crate) const QUORUM_HAS: &str = "a quorum has every committed entry";
pub(crate) const STAMPS: &str = "stamps never fall along a log";
pub(crate) const REFERENCE: &str = "the table does what the reference does";
pub(crate) const WITHDRAWN: &str = "nothing is granted for a nonce that has ended";
pub(crate) const ONE_GRANT: &str = "a nonce is granted once";
pub(crate) const TIME: &str = "the table's time never falls";
pub(crate) const SNAPSHOT: &str = "a table restored on the way comes to the same";
pub(crate) const ONE_BELIEVER: &str = "no two clients believe that they hold";
pub(crate) const BELIEVER_HOLDS: &str = "a client that believes holds";
pub(crate) const RESOURCE: &str = "the resource takes no smaller token after a greater";

pub(crate) fn all() -> Vec<Property<Cluster>> {
    let always = Property::<Cluster>::always;
    vec![
        always(ONE_LEADER, |_, s| pairs(s).all(|(a, b)| !(a.leads && b.leads && a.term == b.term))),
        always(LOG_MATCHING, |_, s| pairs(s).all(|(a, b)| logs_match(a, b))),
        always(LEADER_COMPLETE, |_, s| {
            let term = s.nodes.iter().map(|node| node.term).max();
            let mut newest = s.nodes.iter().filter(|node| node.leads && Some(node.term) == term);
            newest.all(|node| node.log.starts_with(&s.committed))
        }),
        always(COMMITTED, |_, s| s.broken & step::COMMITTED_CHANGED == 0),
        always(QUORUM_HAS, |_, s| {
            s.nodes.iter().filter(|node| node.log.starts_with(&s.committed)).count() > 1
        }),
        always(STAMPS, |_, s| {
            s.nodes.iter().all(|node| node.log.entries().is_sorted_by_key(|entry| entry.stamp))
        }),
        always(REFERENCE, |_, s| kept(s, table::REFERENCE)),
        always(WITHDRAWN, |_, s| kept(s, table::ENDED_GRANTED)),
        always(ONE_GRANT, |_, s| kept(s, table::GRANTED_TWICE)),
        always(TIME, |_, s| kept(s, table::TIME_FELL)),
        always(SNAPSHOT, |_, s| kept(s, table::SNAPSHOT)),
        always(ONE_BELIEVER, |_, s| {
            s.clients.iter().filter(|client| client.believes(s.tick)).count() <= 1
        }),
        always(BELIEVER_HOLDS, |_, s| {
            let holder = s.replayed.account.holder.map(usize::from);
            let mut believers = s.clients.iter().enumerate().filter(|(_, c)| c.believes(s.tick));
            believers.all(|(index, _)| Some(index) == holder)
        }),
        always(RESOURCE, |_, s| s.broken & step::RESOURCE_FELL == 0),
    ]
}

fn kept(state: &State, rule: u16) -> bool {
    state.replayed.account.broken & rule == 0
}

fn pairs(state: &State) -> impl Iterator<Item = (&Node, &Node)> {
    let [a, b, c] = &state.nodes;
    [(a, b), (a, c), (b, c)].into_iter()
}

fn logs_match(a: &Node, b: &Node) -> bool {
    let common = a.log.common(&b.log);
    let both = a.log.entries().iter().zip(b.log.entries()).skip(common);
    // An entry is known by its index and its term.
    both.into_iter().all(|(ours, theirs)| ours.term != theirs.term)
}
