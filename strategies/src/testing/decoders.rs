//! Everything that reads bytes from the network or from a log, for the fuzzer: private decoders
//! behind one door.

pub use crate::member::world::hostile::{Hostilities, run as live_cluster};
use crate::{
    lock_table::{LockTable, TableConfig},
    member::world::World,
};

/// Bytes that the decoders take, of every kind: where a fuzzer may begin.
#[must_use]
pub fn examples() -> Vec<Vec<u8>> {
    let mut examples = crate::member::decoders::examples(World::record());
    examples.push(LockTable::new(TableConfig::default()).snapshot());
    examples.push(crate::member::decoders::example_table().snapshot());
    examples.extend(crate::redis::decoders::examples());
    examples
}

/// Feeds `bytes` to every decoder of this crate: member frames, log entries, the mirrored messages
/// of the engine, snapshots of tables and groups, Redis replies and publications. Returns how many
/// took them.
///
/// # Panics
///
/// When a decoded value does not equal the decoding of its encoding.
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
