//! Everything that reads bytes from the network or from a log, for the fuzzer: private decoders
//! behind one door.

use crate::lock_table::{LockTable, TableConfig};
pub use crate::member::world::hostile::{Hostilities, run as live_cluster};

/// Bytes that the decoders take, of every kind: where a fuzzer may begin.
#[must_use]
pub fn examples() -> Vec<Vec<u8>> {
    let mut examples = crate::member::decoders::examples();
    examples.push(LockTable::new(TableConfig::default()).snapshot());
    examples.push(crate::member::decoders::example_table().snapshot());
    let nonce = "000000000000000000000000000000aa";
    let text = [
        format!("1 3 {nonce} 9 100 200 5000"),
        ":1
"
        .to_owned(),
        format!(
            "*3
:9
*1
${}
{nonce} 7 8 9 5000
+held
",
            nonce.len() + 11
        ),
        "*3
:9
*0
*3
+again
:7
:5000
"
        .to_owned(),
        "*3
:9
*0
*2
:50
*5
:1
+granted
:7
:8
:9
"
        .to_owned(),
        format!(
            "*5
:1
*0
+{nonce} - 5 1 1 42 host +label
:700
:2
"
        ),
    ];
    examples.extend(text.map(String::into_bytes));
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
