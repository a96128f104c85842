//! The engine `raft` without a lock: three members on one thread.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gaggle_workloads::Latency;
use protobuf::Message as _;
use raft::{
    Config, RawNode,
    eraftpb::{Entry, Message, MessageType},
    storage::MemStorage,
};
use slog::{Logger, o};
use tokio::sync::{mpsc, oneshot};

use super::Outcome;
use crate::contenders::Failed;

const MEMBERS: u64 = 3;
const PROPOSERS: u64 = 64;
const TICK: Duration = Duration::from_millis(10);
/// The most taken in one turn, and the log kept.
const TURN: usize = 512;
const COMPACT_AFTER: u64 = 10_000;
const COMPACT_KEEP: u64 = 1_000;
/// About as long as a lock command.
const COMMAND_BYTES: usize = 48;

enum Input {
    Frame(Vec<u8>),
    Propose(u64, oneshot::Sender<()>),
}

type Inbox = mpsc::UnboundedSender<Input>;

/// Every message is encoded and decoded, as on a network; the log is in memory and compacted.
pub(super) async fn measure(window: Duration) -> Result<Outcome, Failed> {
    let (inboxes, receivers): (Vec<Inbox>, Vec<_>) =
        (0..MEMBERS).map(|_| mpsc::unbounded_channel()).unzip();
    for (id, receiver) in (1..).zip(receivers) {
        tokio::spawn(Member::new(id, inboxes.clone())?.run(receiver));
    }
    let leader = inboxes[0].clone();
    // The first one waits for the election.
    propose(&leader, 0).await?;
    let mut number = 0;
    let (mut times, begun) = (Latency::default(), Instant::now());
    while begun.elapsed() < window {
        number += 1;
        let asked = Instant::now();
        propose(&leader, number).await?;
        times.record(u64::try_from(asked.elapsed().as_nanos())?);
    }
    let begun = Instant::now();
    let proposers = (1..=PROPOSERS).map(|proposer| {
        let leader = leader.clone();
        tokio::spawn(async move {
            let mut made = 0;
            while begun.elapsed() < window && propose(&leader, proposer << 40 | made).await.is_ok()
            {
                made += 1;
            }
            made
        })
    });
    let mut made = 0;
    for proposer in proposers.collect::<Vec<_>>() {
        made += proposer.await?;
    }
    Ok(Outcome {
        p50_us: times.us(0.5),
        per_s: made as f64 / begun.elapsed().as_secs_f64(),
        handoff_p50_us: None,
    })
}

async fn propose(leader: &Inbox, number: u64) -> Result<(), Failed> {
    let (applied, wait) = oneshot::channel();
    leader.send(Input::Propose(number, applied))?;
    Ok(wait.await?)
}

struct Member {
    node: RawNode<MemStorage>,
    inboxes: Vec<Inbox>,
    pending: BTreeMap<u64, oneshot::Sender<()>>,
    /// Proposals from before there was a leader.
    early: Vec<Entry>,
    compacted: u64,
}

impl Member {
    fn new(id: u64, inboxes: Vec<Inbox>) -> Result<Self, Failed> {
        let config = Config {
            id,
            election_tick: 20,
            heartbeat_tick: 5,
            pre_vote: true,
            check_quorum: true,
            batch_append: true,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            ..Config::default()
        };
        let voters: Vec<u64> = (1..=MEMBERS).collect();
        let storage = MemStorage::new_with_conf_state((voters, Vec::new()));
        let mut node = RawNode::new(&config, storage, &Logger::root(slog::Discard, o!()))?;
        if id == 1 {
            node.campaign()?;
        }
        let (pending, early) = (BTreeMap::new(), Vec::new());
        Ok(Self { node, inboxes, pending, early, compacted: 0 })
    }

    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Input>) -> Result<(), raft::Error> {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            let mut proposals = std::mem::take(&mut self.early);
            tokio::select! {
                input = inbox.recv() => match input {
                    Some(input) => self.take(input, &mut proposals)?,
                    None => return Ok(()),
                },
                _ = ticks.tick() => {
                    self.node.tick();
                }
            }
            for _ in 0..TURN {
                let Ok(input) = inbox.try_recv() else { break };
                self.take(input, &mut proposals)?;
            }
            self.propose(proposals)?;
            self.drain()?;
        }
    }

    fn take(&mut self, input: Input, proposals: &mut Vec<Entry>) -> Result<(), raft::Error> {
        match input {
            Input::Frame(bytes) => {
                let message = Message::parse_from_bytes(&bytes).expect("a frame of ours");
                self.node.step(message)
            }
            Input::Propose(number, applied) => {
                let mut data = vec![0; COMMAND_BYTES];
                data[..8].copy_from_slice(&number.to_le_bytes());
                proposals.push(Entry { data: data.into(), ..Entry::default() });
                self.pending.insert(number, applied);
                Ok(())
            }
        }
    }

    /// All of a turn in one message: one append for each follower.
    fn propose(&mut self, proposals: Vec<Entry>) -> Result<(), raft::Error> {
        if proposals.is_empty() {
            return Ok(());
        }
        if self.node.raft.leader_id != self.node.raft.id {
            self.early = proposals;
            return Ok(());
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        message.entries = proposals.into();
        self.node.raft.step(message)
    }

    fn drain(&mut self) -> Result<(), raft::Error> {
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            self.send(ready.take_messages());
            self.apply(ready.take_committed_entries());
            self.node.raft.raft_log.store.wl().append(ready.entries())?;
            if let Some(state) = ready.hs() {
                self.node.raft.raft_log.store.wl().set_hardstate(state.clone());
            }
            self.send(ready.take_persisted_messages());
            let mut light = self.node.advance(ready);
            self.send(light.take_messages());
            self.apply(light.take_committed_entries());
            self.node.advance_apply();
        }
        let applied = self.node.raft.raft_log.applied;
        if applied > self.compacted + COMPACT_AFTER {
            self.compacted = applied - COMPACT_KEEP;
            self.node.raft.raft_log.store.wl().compact(self.compacted)?;
        }
        Ok(())
    }

    fn send(&self, messages: Vec<Message>) {
        for message in messages {
            let bytes = message.write_to_bytes().expect("a message encodes");
            let to = usize::try_from(message.to - 1).expect("one of three");
            let _ = self.inboxes[to].send(Input::Frame(bytes));
        }
    }

    fn apply(&mut self, entries: Vec<Entry>) {
        for entry in entries.iter().filter(|entry| !entry.data.is_empty()) {
            let number = u64::from_le_bytes(entry.data[..8].try_into().expect("eight bytes"));
            if let Some(applied) = self.pending.remove(&number) {
                let _ = applied.send(());
            }
        }
    }
}
