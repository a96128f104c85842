//! The scripts: one for each verb, with the part that they share in its place.

use std::sync::LazyLock;

use crate::planted::{Bug, planted};

/// One script: its text, and the hash by which the server knows it once it was loaded.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

/// What they share, and the line that says where.
const SETTLE: &str = include_str!("settle.lua");
const INCLUDE: &str = "-- include settle.lua\n";
/// Where UNLOCK compares the nonce, which a planted bug leaves out.
const COMPARED: &str = "if value and holder(value) == nonce then\n  was = 'held'";

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!($file)));
    };
}

script!(LOCK, "lock.lua");
script!(UNLOCK, "unlock.lua");
script!(EXTEND, "extend.lua");
script!(POLL, "poll.lua");
script!(INSPECT, "inspect.lua");

/// All of them, to be loaded when a connection is first made.
pub(super) fn all() -> [&'static Script; 5] {
    [&LOCK, &UNLOCK, &EXTEND, &POLL, &INSPECT]
}

impl Script {
    fn new(verb: &str) -> Self {
        assert!(verb.matches(INCLUDE).count() <= 1, "a script includes what they share once");
        let mut text = verb.replace(INCLUDE, SETTLE);
        if planted(Bug::RedisUnlockByAnyone) {
            text = text.replace(COMPARED, "if value then\n  was = 'held'");
        }
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The name by which a server that was taught the script knows it.
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_bug_finds_its_place() {
        assert_eq!(UNLOCK.text().matches(COMPARED).count(), 1);
    }
}
