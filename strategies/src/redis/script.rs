//! The scripts: one for each verb, each after the part that all share.

use std::sync::LazyLock;

use redis::Cmd;

/// One script: its text, and the hash by which the server knows it once it was loaded.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("settle.lua"), "\n", include_str!($file)))
        });
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
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    /// Begins `EVALSHA`, which a server that does not know the script answers with `NOSCRIPT`.
    pub(super) fn by_hash(&self) -> Cmd {
        let mut cmd = Cmd::with_capacity(20, 512);
        cmd.arg("EVALSHA").arg(&self.hash);
        cmd
    }

    /// Begins `EVAL`, which teaches the server the script.
    pub(super) fn by_text(&self) -> Cmd {
        let mut cmd = Cmd::new();
        cmd.arg("EVAL").arg(self.text);
        cmd
    }
}
