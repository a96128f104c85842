//! Everything that reads bytes from the network or from a log, for the fuzzer: private decoders
//! behind one door.

use crate::lock_table::LockTable;
pub use crate::member::world::hostile::{Hostilities, run as live_cluster};

/// Feeds `bytes` to every decoder of this crate: member frames, log entries, the mirrored messages
/// of the engine, snapshots of tables and groups, Redis replies and publications. Returns how many
/// took them.
///
/// # Panics
///
/// When what was decoded does not come back from its own encoding.
pub fn feed(bytes: &[u8]) -> u32 {
    let mut taken = crate::member::decoders::feed(bytes) + crate::redis::decoders::feed(bytes);
    if let Ok(table) = LockTable::restore(bytes) {
        table.check();
        let again = table.snapshot();
        let back = LockTable::restore(&again).expect("a snapshot of ours restores");
        assert_eq!(back.snapshot(), again, "a restored table gives the same bytes");
        taken += 1;
    }
    taken
}
