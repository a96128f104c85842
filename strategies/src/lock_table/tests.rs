//! Goal: the lock table does what the contract says, step by step.
//!
//! Method: facts about single rules (`leases`, `queue`, `nonces`, `limits`, `queries`, `snapshot`),
//! each with the number of its rule. [`LockTable::check`] runs after every step. The fuzz target
//! `lock_table` compares random command sequences with `testing::reference_table`.

mod leases;
mod limits;
mod nonces;
mod queries;
mod queue;
mod snapshot;

use std::sync::Arc;

use super::*;
use crate::{Nonce, Owner};

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

    /// The effects as short text: each with its nonce and its figures.
    fn texts(&mut self, at: u64, command: &Command) -> Vec<String> {
        self.apply(at, command).iter().map(text).collect()
    }

    fn lock(&mut self, at: u64, nonce: u128, duration_ms: u64, wait: Wait) -> Vec<String> {
        self.texts(at, &lock(nonce, duration_ms, wait))
    }

    fn unlock(&mut self, at: u64, nonce: u128) -> Vec<String> {
        self.texts(at, &unlock("k", nonce, false))
    }

    fn noop(&mut self, at: u64) -> Vec<String> {
        self.texts(at, &Command::Noop)
    }

    /// The grant of the holder of `k`.
    fn grant(&self) -> Grant {
        self.table.holder(&"k".into()).unwrap()
    }

    fn holder(&self) -> Option<u128> {
        self.table.holder(&"k".into()).map(|grant| grant.nonce.as_u128())
    }

    fn waiters(&self) -> u64 {
        self.table.sizes().waiters
    }

    fn remembered(&self) -> u64 {
        self.table.sizes().nonces_remembered
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

fn lock(nonce: u128, duration_ms: u64, wait: Wait) -> Command {
    Command::Lock(request(nonce, duration_ms, wait))
}

fn lock_of(key: &str, nonce: u128, duration_ms: u64) -> Command {
    Command::Lock(LockRequest { key: key.into(), ..request(nonce, duration_ms, Wait::Forever) })
}

fn unlock(key: &str, nonce: u128, forget: bool) -> Command {
    Command::Unlock { key: key.into(), nonce: Nonce::from_u128(nonce), forget }
}

fn extend(key: &str, nonce: u128, duration_ms: u64) -> Command {
    let (key, nonce) = (key.into(), Nonce::from_u128(nonce));
    Command::Extend { key, nonce, process: ProcessId(9), request: 5, duration_ms }
}

fn drop_waiters(process: u64) -> Command {
    Command::DropWaiters { process: ProcessId(process) }
}

fn text(effect: &Effect) -> String {
    match effect {
        Effect::Granted(grant) => format!(
            "granted {} token {} at {} until {}",
            grant.nonce.as_u128(),
            grant.token,
            grant.granted_at.0,
            grant.expires_at.0
        ),
        Effect::Queued { nonce, .. } => format!("queued {}", nonce.as_u128()),
        Effect::Refused { nonce, reason, .. } => format!("refused {} {reason:?}", nonce.as_u128()),
        Effect::Unlocked { nonce, was, .. } => format!("unlocked {} {was:?}", nonce.as_u128()),
        Effect::Extended { nonce, held, .. } => {
            format!("extended {} {:?}", nonce.as_u128(), held.map(|(_, end)| end.0))
        }
        Effect::Expired { nonce, token, .. } => {
            format!("expired {} token {token}", nonce.as_u128())
        }
        Effect::Dropped { nonce, .. } => format!("dropped {}", nonce.as_u128()),
    }
}

const NOTHING: [&str; 0] = [];
