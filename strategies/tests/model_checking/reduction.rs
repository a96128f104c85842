//! Merges equivalent states. A test compares the committed logs with and without the reduction.

use super::{
    account::CLIENTS_MAX,
    cluster::{Cluster, State},
    raft::Node,
};

impl Cluster {
    /// Whether no further election is possible, so that followers matter only for the quorum.
    pub(crate) fn last_term(&self, term: u8) -> bool {
        self.bounds.reduced && term == self.bounds.terms
    }

    /// Merges equivalent states.
    ///
    /// The numbers of nodes have no effect, nor those of clients that wait alike, so both are
    /// sorted. Under the leader of the last term the followers' logs matter only for the next
    /// commit, so they are set to the committed log.
    pub(crate) fn reduce(&self, state: &mut State) {
        let led = state.nodes.iter().find(|node| node.leads && self.last_term(node.term)).copied();
        if let Some(leader) = led.filter(|leader| leader.log.starts_with(&state.committed)) {
            let term = leader.term;
            let log = state.committed;
            let follower = Node { term, voted: true, leads: false, clock: 0, log };
            for node in state.nodes.iter_mut().filter(|node| **node != leader) {
                *node = follower;
            }
        }
        self.order_clients(state);
        state.nodes.sort_unstable();
    }

    fn order_clients(&self, state: &mut State) {
        let clients = self.bounds.waits.len();
        if self.bounds.waits.iter().any(|wait| *wait != self.bounds.waits[0]) {
            return;
        }
        let mut order = [0, 1, 2];
        let appears = |client: u8| {
            let mut logs = state.nodes.iter().flat_map(|node| node.log.entries());
            logs.position(|entry| entry.cmd.client() == Some(client))
        };
        order[..clients].sort_by_cached_key(|client: &u8| {
            (state.clients[usize::from(*client)], appears(*client))
        });
        if order.is_sorted() {
            return;
        }
        let mut names = [0; CLIENTS_MAX];
        for (new, old) in (0..).zip(order) {
            names[usize::from(old)] = new;
        }
        state.clients = order.map(|old| state.clients[usize::from(old)]);
        for node in &mut state.nodes {
            node.log.rename(names);
        }
        if state.committed.rename(names) {
            state.replayed = self.replays.of(&state.committed, &self.bounds);
        }
    }
}
