use std::mem;

use smallvec::SmallVec;

use super::CallerId;

/// What is known of each of a few callers, in the order of their numbers: nearly always of one. Of very many
/// with one nonce each that goes moves those behind it.
#[derive(Debug)]
pub(super) struct Callers<T>(SmallVec<[(CallerId, T); 1]>);

impl<T> Callers<T> {
    /// Replaces what was known of it.
    pub(super) fn insert(&mut self, caller: CallerId, known: T) {
        match self.place(caller) {
            Ok(place) => self.0[place].1 = known,
            Err(place) => self.0.insert(place, (caller, known)),
        }
    }

    pub(super) fn remove(&mut self, caller: CallerId) -> Option<T> {
        self.place(caller).ok().map(|place| self.0.remove(place).1)
    }

    /// Takes out those of which this is so.
    pub(super) fn extract(&mut self, so: impl Fn(&T) -> bool) -> Self {
        let (out, kept) = mem::take(&mut self.0).into_iter().partition(|(_, known)| so(known));
        self.0 = kept;
        Self(out)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, known)| known)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self, caller: CallerId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&caller, |(other, _)| *other)
    }
}

impl<T> Default for Callers<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> IntoIterator for Callers<T> {
    type Item = (CallerId, T);
    type IntoIter = smallvec::IntoIter<[(CallerId, T); 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_and_in_order() {
        let mut callers = Callers::default();
        assert!(callers.is_empty());
        for (caller, known) in [(7, 'a'), (3, 'b'), (9, 'c'), (3, 'd'), (8, 'e')] {
            callers.insert(caller, known);
        }
        assert!(!callers.is_empty());
        assert_eq!(callers.known().collect::<String>(), "daec");
        assert_eq!((callers.remove(7), callers.remove(7)), (Some('a'), None));
        let out = callers.extract(|known| *known < 'e');
        assert_eq!(out.into_iter().collect::<Vec<_>>(), [(3, 'd'), (9, 'c')]);
        assert_eq!(callers.into_iter().collect::<Vec<_>>(), [(8, 'e')]);
    }
}
