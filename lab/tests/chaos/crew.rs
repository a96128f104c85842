//! Worker processes on one strategy, the resources that they protect, and the final checks.

use std::{path::PathBuf, thread::sleep, time::Duration};

use gaggle_lab::history::ModelKind;

use crate::{
    network::PREFIX,
    process::{Log, Process},
    protocol::{Assignment, Event, KEY, Order, Resource, Work},
    signals::{self, Signal},
    store::{Protected, Store, Trap, Trapped},
    tally::Tally,
    worker::now,
};

/// The lease of every section.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// Within this time after the last fault every worker has finished a section: a lease, the 3 s
/// after which dead waiters are dropped, re-forming, and the slowest retransmission of TCP.
pub(crate) const PROGRESS_BOUND: Duration = Duration::from_secs(10);
/// Within this time after the last unlock every key is free: a lease and the silence of waiters.
pub(crate) const FREE_BOUND: Duration = Duration::from_secs(5);

/// With fewer, a fault could happen while no worker holds or waits.
const SECTIONS_BETWEEN_FAULTS: u64 = 40;

/// The place and name of a worker, and the URL of its strategy.
pub(crate) struct Post {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) url: String,
}

/// The promises that hold under the faults of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The granting side kept its memory: every promise holds.
    Kept,
    /// The server lost its memory: two holders are possible, as documented.
    Lost,
}

pub(crate) struct Crew {
    pub(crate) posts: Vec<Post>,
    pub(crate) processes: Vec<Process>,
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) tally: Tally,
    work: Work,
    path: PathBuf,
    instances: u32,
}

impl Crew {
    /// Starts all workers, and waits until each has finished a section.
    pub(crate) fn start(posts: Vec<Post>) -> Self {
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let work = Work {
            key: KEY.into(),
            lease_ms: u64::try_from(LEASE.as_millis()).unwrap(),
            max_wait_ms: 2_000,
            work_ms: 4,
            tasks: 2,
        };
        let mut crew = Self {
            posts,
            processes: Vec::new(),
            store: Store::serve(&path),
            log: Log::default(),
            tally: Tally::default(),
            work,
            path,
            instances: 0,
        };
        for index in 0..crew.posts.len() {
            let process = crew.process(index);
            crew.processes.push(process);
        }
        let all = crew.progress(0);
        all.expect("all workers make progress before the first fault");
        crew
    }

    /// Like [`start`](Self::start), with another lease than [`LEASE`].
    pub(crate) fn start_with(posts: Vec<Post>, lease: Duration) -> Self {
        let mut crew = Self::start(Vec::new());
        crew.work.lease_ms = u64::try_from(lease.as_millis()).unwrap();
        for post in posts {
            crew.join(post);
        }
        crew
    }

    /// Another worker.
    fn join(&mut self, post: Post) {
        self.posts.push(post);
        let process = self.process(self.posts.len() - 1);
        self.processes.push(process);
    }

    fn process(&mut self, index: usize) -> Process {
        self.instances += 1;
        let post = &self.posts[index];
        let assignment = Assignment {
            name: post.name.clone(),
            instance: self.instances,
            store: self.path.clone(),
            url: post.url.clone(),
        };
        let mut process = Process::start(&assignment, post.namespace.as_deref(), &self.log);
        process.order(&Order::Run(self.work.clone()));
        process
    }

    pub(crate) fn restart(&mut self, index: usize) {
        self.processes[index] = self.process(index);
        self.tally.add("restarts", 1);
    }

    /// `kill -9` of a worker; its successor starts after `pause`.
    pub(crate) fn kill(&mut self, index: usize, pause: Duration) {
        let status = self.processes[index].kill();
        self.was_killed(status);
        sleep(pause);
        self.restart(index);
    }

    pub(crate) fn was_killed(&mut self, status: std::process::ExitStatus) {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(9), "the kill did not happen: {status}");
        self.tally.add("kills", 1);
    }

    /// Signals the next holder between its reads and its writes.
    pub(crate) fn trap(&mut self, trap: Trap) -> (usize, Trapped) {
        self.store.trap(trap);
        let trapped = self.store.trapped(PROGRESS_BOUND).expect("a worker takes the lock");
        let index = self.processes.iter().position(|process| process.pid() == trapped.pid);
        (index.expect("a holder is one of ours"), trapped)
    }

    /// Kills the next holder between its reads and its writes.
    pub(crate) fn kill_holder(&mut self, pause: Duration) {
        let (index, trapped) = self.trap(Trap::Kill);
        let status = self.processes[index].killed(trapped.at);
        self.was_killed(status);
        self.tally.add("holders killed", 1);
        sleep(pause);
        self.restart(index);
    }

    /// Stops the next holder between its reads and its writes, until its lease has expired and
    /// another worker has written. Its late write loses an update of the unchecked resources, and
    /// is refused by the checked ones.
    pub(crate) fn pause_holder(&mut self) {
        let (index, trapped) = self.trap(Trap::Stop);
        assert!(signals::is_stopped(trapped.pid), "the stop did not happen");
        let (plain, checked) =
            (self.store.seen(Resource::Counter), self.store.seen(Resource::CheckedCounter));
        sleep(LEASE + LEASE / 4);
        let newer = |seen: &Protected| seen.applied > plain.applied;
        let written = self.store.wait(Resource::Counter, PROGRESS_BOUND, newer);
        signals::send(trapped.pid, Signal::CONT);
        let name = &self.processes[index].name;
        assert!(written, "no worker writes within {PROGRESS_BOUND:?} of the stop of {name}");
        self.tally.add("pauses past the lease", 1);
        let bound = PROGRESS_BOUND;
        let lost = self.store.wait(Resource::Counter, bound, |seen| seen.lost > plain.lost);
        assert!(lost, "{name} wrote what it had read before its pause, and nothing was lost");
        let refused = |seen: &Protected| seen.refused > checked.refused;
        let refused = self.store.wait(Resource::CheckedCounter, bound, refused);
        assert!(refused, "the write of {name} after its pause was not refused");
    }

    /// Waits until every process has finished a section that it began after `since`.
    pub(crate) fn progress(&self, since: u64) -> Result<(), String> {
        self.progress_within(PROGRESS_BOUND, since)
    }

    pub(crate) fn progress_within(&self, bound: Duration, since: u64) -> Result<(), String> {
        let until = now() + u64::try_from(bound.as_nanos()).unwrap();
        for process in &self.processes {
            while self.log.lock().sections(process.instance, since) == 0 {
                if now() > until {
                    let refusals = self.log.lock().refusals.clone();
                    return Err(format!(
                        "{} makes no progress within {bound:?}; refusals: {refusals:?}",
                        process.name
                    ));
                }
                sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Waits for some sections to be finished: no fault meets an idle crew.
    pub(crate) fn traffic(&mut self) {
        let began = now();
        let plain = self.store.seen(Resource::Counter).applied;
        let flows = |seen: &Protected| seen.applied >= plain + SECTIONS_BETWEEN_FAULTS;
        let flows = self.store.wait(Resource::Counter, PROGRESS_BOUND, flows);
        let refusals = self.log.lock().refusals.clone();
        assert!(
            flows,
            "not {SECTIONS_BETWEEN_FAULTS} sections in {PROGRESS_BOUND:?}; refusals: {refusals:?}"
        );
        self.tally.peak("slowest 40 sections ms", (now() - began) / 1_000_000);
    }

    /// Every worker makes progress, then all finish, and the key is free as all of them see it.
    pub(crate) fn heal(&mut self) {
        let ended = now();
        self.progress(ended).unwrap();
        self.tally.peak("slowest heal ms", (now() - ended) / 1_000_000);
        self.halt();
        (0..self.processes.len()).for_each(|index| self.free_within(FREE_BOUND, index).unwrap());
    }

    /// Waits until this worker sees the key free.
    pub(crate) fn free_within(&mut self, bound: Duration, index: usize) -> Result<(), String> {
        let until = now() + u64::try_from(bound.as_nanos()).unwrap();
        while !self.is_free(index) {
            if now() > until {
                return Err(format!("the key is not free within {bound:?}"));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// All workers finish the current sections.
    pub(crate) fn halt(&mut self) {
        self.processes.iter_mut().for_each(|process| process.order(&Order::Halt));
        (0..self.processes.len()).for_each(|index| self.halted(index));
    }

    pub(crate) fn halted(&self, index: usize) {
        let halted = |event| matches!(event, Event::Halted).then_some(());
        self.processes[index].wait(PROGRESS_BOUND, halted).unwrap();
    }

    fn is_free(&mut self, index: usize) -> bool {
        let process = &mut self.processes[index];
        process.order(&Order::Inspect { key: KEY.into() });
        let inspected =
            |event| if let Event::Inspected { free } = event { Some(free) } else { None };
        process.wait(Duration::from_secs(5), inspected).unwrap() == Some(true)
    }

    /// All workers close and exit with success.
    pub(crate) fn close(&mut self) {
        for process in &mut self.processes {
            process.close(Duration::from_secs(5)).unwrap();
        }
        self.processes.clear();
    }

    /// Checks the whole run. Returns its figures.
    pub(crate) fn check(&mut self, memory: Memory) -> Tally {
        let log = self.log.lock();
        let [plain, checked] = Resource::ALL.map(|resource| self.store.seen(resource));
        assert_eq!((checked.lost, checked.value), (0, checked.applied), "updates were lost");
        let lease = Duration::from_millis(self.work.lease_ms);
        let models: &[ModelKind] = match memory {
            Memory::Kept => &[ModelKind::Fenced, ModelKind::Leased],
            Memory::Lost => &[ModelKind::Fenced],
        };
        let report = log.check(models, lease);
        assert!(report.passed(), "{report}");
        let count = |count: usize| u64::try_from(count).unwrap();
        if memory == Memory::Lost {
            self.tally.add("two holders, as documented", count(log.overlaps()));
        }
        self.tally.add("acquisitions asked", count(log.acquisitions.len()));
        self.tally.add("granted", count(log.grants()));
        self.tally.add("unchecked updates lost", plain.lost);
        self.tally.add("stale writes refused", checked.refused);
        self.tally.clone()
    }
}
