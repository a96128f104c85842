use std::{
    path::Path,
    time::{Duration, Instant},
};

use gaggle_channels::testing::free_port;
use gaggle_cli::workloads::Latency;
use raft_lite::{
    config::{RaftConfig, RaftParams},
    raft::Raft,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::timeout,
};

use super::Outcome;
use crate::contenders::Failed;

const PROPOSERS: u64 = 64;
/// Proposals by which the leader is found: it alone answers within less than a heartbeat.
const PROBES: u64 = 10;

struct Member {
    propose: UnboundedSender<Vec<u8>>,
    applied: UnboundedReceiver<Vec<u8>>,
}

impl Member {
    fn send(&self, number: u64) -> Result<(), Failed> {
        // About as long as a lock command.
        let mut data = vec![0; 48];
        data[..8].copy_from_slice(&number.to_le_bytes());
        Ok(self.propose.send(data)?)
    }

    async fn hear(&mut self) -> Result<u64, Failed> {
        let data = timeout(Duration::from_secs(20), self.applied.recv()).await?;
        let data = data.ok_or("the engine has ended")?;
        Ok(u64::from_le_bytes(data.get(..8).ok_or("a command cut short")?.try_into()?))
    }

    async fn once(&mut self, number: u64) -> Result<Duration, Failed> {
        let asked = Instant::now();
        self.send(number)?;
        while self.hear().await? != number {}
        Ok(asked.elapsed())
    }
}

/// Over its own TCP and with its own files, because it has no other way. It has no sign of who
/// leads, of errors or of an end: what is measured is what comes back.
pub(super) async fn measure(window: Duration, directory: &Path) -> Result<Outcome, Failed> {
    let peers: Vec<String> = (0..3).map(|_| format!("127.0.0.1:{}", free_port())).collect();
    let mut members = Vec::new();
    for (number, own) in peers.iter().enumerate() {
        let params = RaftParams { election_timeout: 200, replicate_timeout: 50 };
        let path = directory.join(number.to_string());
        std::fs::create_dir_all(&path)?;
        let config = RaftConfig::new(peers.clone(), own.clone(), params, Some(path));
        let (propose, applied) = Raft::new(config).run();
        members.push(Member { propose, applied });
    }
    // Time to elect; proposals before that may vanish.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (mut number, mut best) = (0, (Duration::MAX, 0));
    for (place, member) in members.iter_mut().enumerate() {
        for _ in 0..PROBES {
            number += 1;
            best = best.min((member.once(number).await?, place));
        }
    }
    let leader = &mut members[best.1];
    let (mut times, begun) = (Latency::default(), Instant::now());
    while begun.elapsed() < window {
        number += 1;
        times.record(u64::try_from(leader.once(number).await?.as_nanos())?);
    }
    let begun = Instant::now();
    for _ in 0..PROPOSERS {
        number += 1;
        leader.send(number)?;
    }
    let mut made = 0;
    while begun.elapsed() < window {
        leader.hear().await?;
        made += 1;
        number += 1;
        leader.send(number)?;
    }
    let outcome = Outcome {
        p50_us: times.us(0.5),
        p99_us: times.us(0.99),
        per_s: made as f64 / begun.elapsed().as_secs_f64(),
        commits: number as f64,
        ..Outcome::default()
    };
    // Dropping them would make its tasks panic.
    std::mem::forget(members);
    Ok(outcome)
}
