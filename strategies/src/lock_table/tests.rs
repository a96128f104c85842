//! Goal: what the reference table cannot see of the lock table: bounds, scans, snapshots.
//!
//! Method: facts about single rules; [`LockTable::check`] runs after every step. The fuzz target
//! `lock_table` compares all else with the reference table of the laboratory.

mod limits;
mod queries;
mod snapshot;

use std::sync::Arc;

use super::*;
use crate::lock::{Nonce, Owner};

const GROUP: u128 = 77;

/// A table with shorthand for commands; the key is `k` where none is named.
struct Bench {
    table: LockTable,
}

impl Bench {
    fn new() -> Self {
        Self::with(TableConfig { group: GROUP, ..TableConfig::default() })
    }

    fn with(config: TableConfig) -> Self {
        Self { table: LockTable::new(config) }
    }

    fn apply(&mut self, at: u64, command: &Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.table.apply(ClusterTime(at), command, &mut effects);
        self.table.check();
        effects
    }

    fn lock(&mut self, at: u64, nonce: u128, duration_ms: u64, wait: Wait) -> Vec<Effect> {
        self.apply(at, &Command::Lock(request(nonce, duration_ms, wait)))
    }

    fn unlock(&mut self, at: u64, nonce: u128) {
        self.apply(at, &unlock("k", nonce, false));
    }

    fn noop(&mut self, at: u64) {
        self.apply(at, &Command::Noop);
    }
}

fn request(nonce: u128, duration_ms: u64, wait: Wait) -> LockRequest {
    LockRequest {
        key: "k".into(),
        nonce: Nonce::from_u128(nonce),
        process: ProcessId(1),
        duration_ms,
        wait,
        seen: Seen::Now,
        owner: Arc::new(Owner::default()),
    }
}

fn lock_of(key: &str, nonce: u128, duration_ms: u64) -> Command {
    Command::Lock(LockRequest { key: key.into(), ..request(nonce, duration_ms, Wait::Forever) })
}

fn unlock(key: &str, nonce: u128, forget: bool) -> Command {
    Command::Unlock { key: key.into(), nonce: Nonce::from_u128(nonce), forget }
}
