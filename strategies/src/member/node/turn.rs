//! What one turn of a node has gathered so far.

use std::mem;

use super::Event;

#[derive(Debug, Default)]
pub(super) struct Turn {
    /// What the next flush reports.
    events: Vec<Event>,
    /// The turn has had its first flush.
    is_flushed: bool,
    /// A snapshot was installed: local holds and waits must be compared with it.
    is_installed: bool,
}

impl Turn {
    pub(super) fn report(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events);
    }

    pub(super) fn drain_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    /// Begins a flush. Returns whether it is the first of the turn.
    pub(super) fn begin_flush(&mut self) -> bool {
        !mem::replace(&mut self.is_flushed, true)
    }

    pub(super) fn end(&mut self) {
        self.is_flushed = false;
    }

    pub(super) fn install(&mut self) {
        self.is_installed = true;
    }

    pub(super) fn is_installed(&self) -> bool {
        self.is_installed
    }

    /// Whether a snapshot was installed since the last call.
    pub(super) fn take_installed(&mut self) -> bool {
        mem::take(&mut self.is_installed)
    }
}
