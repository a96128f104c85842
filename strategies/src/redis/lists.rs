//! The requests of a turn in lists, so that one script runs several.

use std::{collections::BTreeMap, mem, sync::Arc};

use super::{
    request::{List, Request},
    script::Verb,
};

/// How many requests one script runs at most. This bounds for how long a script blocks the server:
/// 0.3 ms for 16 LOCKs, 1.5 ms for 16 POLLs of 32 nonces each, and 10 ms if it also drops 1,600 dead
/// waiters, which is the longest (Redis 7.0.15, a busy core).
pub(super) const LIST_MAX: usize = 16;

/// Requests of one verb join one list, in their order. A request never leaves before an earlier one
/// for the same key.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: Vec<List>,
    /// The latest list of each verb.
    of_verb: BTreeMap<Verb, usize>,
    /// The latest list that names each key.
    of_key: BTreeMap<Arc<str>, usize>,
}

impl Lists {
    pub(super) fn push(&mut self, request: Request) {
        let open = request.verb().and_then(|verb| self.of_verb.get(&verb).copied());
        let earlier = request.key().and_then(|key| self.of_key.get(key).copied());
        let joins = |at: &usize| self.lists[*at].len() < LIST_MAX && earlier <= Some(*at);
        let at = open.filter(joins).unwrap_or(self.lists.len());
        if let (Some(verb), Some(key)) = (request.verb(), request.key()) {
            self.of_verb.insert(verb, at);
            self.of_key.insert(key.clone(), at);
        }
        match self.lists.get_mut(at) {
            Some(list) => list.push(request),
            None => self.lists.push(vec![request]),
        }
    }

    /// Takes the lists in the order in which they must be sent.
    pub(super) fn take(&mut self) -> Vec<List> {
        self.of_verb.clear();
        self.of_key.clear();
        mem::take(&mut self.lists)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{client::commands::Command, lock::Nonce, redis::request::Poll};

    /// A request for a key, whose number names it.
    fn request(verb: u8, key: u8, number: usize) -> Request {
        let (key, id): (Arc<str>, _) = (format!("k{key}").into(), number as u64);
        let nonce = Nonce::from_u128(number as u128);
        match verb {
            0 => Request::Command(Command::Inspect { id, key }),
            1 => Request::Command(Command::Unlock {
                nonce,
                key,
                token: id,
                copies: false,
                forced: None,
            }),
            2 => Request::Poll(Poll { key, checks: Vec::new() }),
            _ => Request::Command(Command::Scan { id, after: None, prefix: "".into(), limit: 1 }),
        }
    }

    fn sent(requests: impl IntoIterator<Item = Request>) -> Vec<List> {
        let mut lists = Lists::default();
        requests.into_iter().for_each(|request| lists.push(request));
        let sent = lists.take();
        assert!(lists.take().is_empty());
        sent
    }

    #[test]
    fn unlocks_and_locks_of_many_keys_need_two_lists() {
        let turn = (0..8).flat_map(|key| [request(1, key, 1), request(0, key, 2)]);
        let lengths: Vec<_> = sent(turn).iter().map(Vec::len).collect();
        assert_eq!(lengths, [8, 8]);
    }

    proptest! {
        #[test]
        fn requests_of_a_key_keep_their_order(
            turn in proptest::collection::vec((0_u8..4, 0_u8..40), 0..200),
        ) {
            let text = |request: &Request| format!("{request:?}");
            let turn = turn.iter().enumerate();
            let turn: Vec<_> = turn.map(|(at, &(verb, key))| request(verb, key, at)).collect();
            let lists = sent(turn.clone());
            for list in &lists {
                prop_assert!((1..=LIST_MAX).contains(&list.len()));
                prop_assert!(list.iter().all(|request| request.verb() == list[0].verb()));
                prop_assert!(list[0].verb().is_some() || list.len() == 1);
            }
            let sent: Vec<_> = lists.concat();
            prop_assert_eq!(sent.len(), turn.len());
            for key in 0..40 {
                let key = format!("k{key}");
                let of_key = |requests: &[Request]| -> Vec<_> {
                    let of_key = |request: &&Request| request.key().is_some_and(|it| **it == *key);
                    requests.iter().filter(of_key).map(text).collect()
                };
                prop_assert_eq!(of_key(&sent), of_key(&turn));
            }
        }
    }
}
