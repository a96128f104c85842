//! The decoded commands of entries that are not applied yet.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::Entry;

use crate::member::entry::Stamped;

/// The most entries that are kept, each of up to sixteen commands: more than one turn appends. The
/// others are decoded again.
const DECODED_MAX: usize = 1024;

/// The commands of entries that were decoded on arrival and are not applied yet, in the order of
/// the log. A member decodes each entry once, and the leader decodes none.
#[derive(Debug, Default)]
pub(super) struct Decoded(VecDeque<(u64, Bytes, Stamped)>);

impl Decoded {
    /// Keeps what the entry at `index` was decoded to. `data` is that entry's own buffer.
    pub(super) fn note(&mut self, index: u64, data: &Bytes, stamped: Stamped) {
        // Retransmitted or contradicted (Raft §5.3): entries noted before it may be later in the
        // log.
        while self.0.back().is_some_and(|(last, ..)| *last >= index) {
            self.0.pop_back();
        }
        if self.0.len() < DECODED_MAX {
            self.0.push_back((index, data.clone(), stamped));
        }
    }

    /// Returns the commands of an entry that is applied now, and forgets all before it. `None`
    /// unless they were decoded from this very buffer: others may have arrived under the same
    /// index.
    pub(super) fn take(&mut self, entry: &Entry) -> Option<Stamped> {
        while self.0.front().is_some_and(|(first, ..)| *first < entry.index) {
            self.0.pop_front();
        }
        if self.0.front()?.0 != entry.index {
            return None;
        }
        let (_, data, stamped) = self.0.pop_front()?;
        let same = data.as_ptr() == entry.data.as_ptr() && data.len() == entry.data.len();
        same.then_some(stamped)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_table::{ClusterTime, Command};

    fn stamped(stamp: u64) -> Stamped {
        Stamped { stamp: ClusterTime(stamp), commands: vec![Command::Noop] }
    }

    fn entry(index: u64, data: &Bytes) -> Entry {
        Entry { index, data: data.clone(), ..Entry::default() }
    }

    #[test]
    fn taking_forgets_all_up_to_the_entry() {
        let data = Bytes::from(vec![1, 2, 3]);
        let mut decoded = Decoded::default();
        for index in 5..8 {
            decoded.note(index, &data, stamped(index));
        }
        assert_eq!(decoded.take(&entry(6, &data)), Some(stamped(6)));
        assert_eq!(decoded.take(&entry(6, &data)), None);
        assert_eq!(decoded.take(&entry(5, &data)), None);
        assert_eq!(decoded.take(&entry(7, &data)), Some(stamped(7)));
    }

    #[test]
    fn contradicted_suffix_is_forgotten() {
        let (old, new) = (Bytes::from(vec![1]), Bytes::from(vec![2]));
        let mut decoded = Decoded::default();
        for index in 5..8 {
            decoded.note(index, &old, stamped(index));
        }
        decoded.note(6, &new, stamped(60));
        assert_eq!(decoded.take(&entry(5, &old)), Some(stamped(5)));
        assert_eq!(decoded.take(&entry(6, &new)), Some(stamped(60)));
        assert_eq!(decoded.take(&entry(7, &old)), None);
    }

    /// A forged copy of an entry may arrive before or after the entry that the log takes.
    #[test]
    fn commands_of_another_buffer_are_not_taken() {
        let mut decoded = Decoded::default();
        decoded.note(5, &Bytes::from(vec![1, 2]), stamped(5));
        assert_eq!(decoded.take(&entry(5, &Bytes::from(vec![1, 2]))), None);
        let data = Bytes::from(vec![1, 2]);
        decoded.note(6, &data, stamped(6));
        assert_eq!(decoded.take(&entry(6, &data.slice(..1))), None);
    }

    #[test]
    fn bounded_number_of_entries_is_kept() {
        let data = Bytes::from(vec![1]);
        let mut decoded = Decoded::default();
        for index in 0..DECODED_MAX as u64 + 10 {
            decoded.note(index, &data, stamped(index));
        }
        assert_eq!(decoded.0.len(), DECODED_MAX);
        let last = DECODED_MAX as u64 - 1;
        assert_eq!(decoded.take(&entry(last, &data)), Some(stamped(last)));
    }
}
