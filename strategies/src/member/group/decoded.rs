use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::Entry;

use crate::member::entry::Stamped;

/// The most entries that are kept, each of up to sixteen commands: more than a turn appends where they
/// have several. What is not kept is decoded again.
const DECODED_MAX: usize = 1024;

/// The commands of entries that were decoded when they came in and are not applied yet, in the order
/// of the log: so that a member decodes each entry once, and its leader none.
#[derive(Debug, Default)]
pub(super) struct Decoded(VecDeque<(u64, Bytes, Stamped)>);

impl Decoded {
    /// Keeps what the entry at `index` was decoded to. `data` is that entry's own buffer.
    pub(super) fn note(&mut self, index: u64, data: &Bytes, stamped: Stamped) {
        // Sent again, or contradicted (Raft §5.3): what comes later in the log was noted before it.
        while self.0.back().is_some_and(|(last, ..)| *last >= index) {
            self.0.pop_back();
        }
        if self.0.len() < DECODED_MAX {
            self.0.push_back((index, data.clone(), stamped));
        }
    }

    /// Hands out the command of an entry that is applied now, and forgets all before it. `None`
    /// unless it was decoded from this very buffer, whatever else came under the same index.
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
    fn a_command_is_handed_out_once_and_with_it_all_before_are_forgotten() {
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
    fn a_suffix_that_is_contradicted_is_forgotten() {
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

    /// A forged copy of an entry may come before or after the one that the log takes.
    #[test]
    fn what_was_decoded_from_another_buffer_is_not_taken_for_the_entry() {
        let mut decoded = Decoded::default();
        decoded.note(5, &Bytes::from(vec![1, 2]), stamped(5));
        assert_eq!(decoded.take(&entry(5, &Bytes::from(vec![1, 2]))), None);
        let data = Bytes::from(vec![1, 2]);
        decoded.note(6, &data, stamped(6));
        assert_eq!(decoded.take(&entry(6, &data.slice(..1))), None);
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
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
