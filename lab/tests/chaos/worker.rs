//! The worker: a process that locks again and again, changes the protected resources by read, wait
//! and write, and reports each step with its time on stdout.

use std::{
    io::{BufRead, Write},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use gaggle::{BootClock, Clock, Error, Guard, LockOptions, Locker, OpenError};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};

use crate::protocol::{Assignment, Event, Order, Outcome, Reply, Request, Resource, Work};

/// After a lock that failed at once, so that an outage is no busy loop.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the worker until its parent orders it to close, or ends.
pub(crate) fn main(assignment: &str) {
    // A stopped process does not see its stdin close.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let assignment: Assignment = serde_json::from_str(assignment).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(assignment));
}

pub(crate) fn now() -> u64 {
    u64::try_from(BootClock.now().since_origin().as_nanos()).unwrap()
}

fn say(event: &Event) {
    let mut line = serde_json::to_vec(event).unwrap();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

async fn serve(assignment: Assignment) {
    let mut orders = orders();
    let locker = open(&assignment.url).await;
    say(&Event::Up);
    let ops = Arc::new(AtomicU32::new(0));
    let halt = watch::Sender::new(false);
    let mut loops = JoinSet::new();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Run(work) => {
                halt.send_replace(false);
                for _ in 0..work.tasks {
                    let worker = Worker {
                        locker: locker.clone(),
                        store: Store::connect(&assignment).await,
                        ops: ops.clone(),
                        work: work.clone(),
                    };
                    loops.spawn(worker.work(halt.subscribe()));
                }
            }
            Order::Halt => {
                halt.send_replace(true);
                while loops.join_next().await.is_some() {}
                say(&Event::Halted);
            }
            Order::Status => {
                let status = locker.group_status();
                say(&Event::Status {
                    ready: status.as_ref().is_none_or(|status| status.ready),
                    leads: status.as_ref().is_some_and(|status| status.leads),
                    leader: status.and_then(|status| Some(status.leader?.to_string())),
                });
            }
            Order::Inspect { key } => {
                let found = locker.inspect(&key).await;
                say(&Event::Inspected { free: found.ok().map(|found| found.is_none()) });
            }
            Order::Close => {
                locker.close().await;
                say(&Event::Closed);
                return;
            }
        }
    }
}

/// Reads orders on a thread: a blocking read must not hold the runtime up. The parent's end is
/// this process' end.
fn orders() -> mpsc::UnboundedReceiver<Order> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    receiver
}

/// The backend may be down or hung just now; a service would try again as well.
async fn open(url: &str) -> Locker {
    loop {
        match gaggle::open(url).await {
            Ok(locker) => return locker,
            Err(OpenError::Strategy(error)) if !matches!(error, Error::InvalidOptions { .. }) => {
                sleep(PAUSE).await;
            }
            Err(error) => panic!("the options are right: {error}"),
        }
    }
}

/// A loop of a process.
struct Worker {
    locker: Locker,
    store: Store,
    ops: Arc<AtomicU32>,
    work: Work,
}

impl Worker {
    async fn work(mut self, halt: watch::Receiver<bool>) {
        while !*halt.borrow() {
            let op = self.ops.fetch_add(1, Ordering::Relaxed);
            let options = LockOptions::default()
                .duration(Duration::from_millis(self.work.lease_ms))
                .max_wait(Duration::from_millis(self.work.max_wait_ms));
            say(&Event::Asked { op, at: now() });
            match self.locker.lock_with(self.work.key.as_str(), options).await {
                Ok(guard) => self.hold(op, guard).await,
                Err(error) => {
                    say(&Event::Refused { op, error: error.to_string() });
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn hold(&mut self, op: u32, guard: Guard) {
        let at = now();
        let deadline = guard.lock().deadline().unwrap().since_origin().as_nanos();
        let deadline = u64::try_from(deadline).unwrap();
        say(&Event::Granted { op, at, token: guard.fencing_token(), deadline });
        self.section(op, &guard).await;
        say(&Event::Unlocking { op, at: now() });
        let outcome = match guard.unlock().await {
            Ok(()) => Outcome::Ok,
            Err(Error::NotHolder) => Outcome::NotHolder,
            Err(Error::Expired) => Outcome::Expired,
            Err(other) => Outcome::Other(other.to_string()),
        };
        say(&Event::Unlocked { op, at: now(), outcome });
    }

    /// Changes everything that the lock protects, in good faith: a loss is noted and nothing is
    /// done about it, as by a program that looked at its guard before and not again.
    async fn section(&mut self, op: u32, guard: &Guard) {
        let work = Duration::from_millis(self.work.work_ms);
        let mut change = pin!(self.store.change(guard.fencing_token(), work));
        tokio::select! {
            biased;
            () = guard.lost() => {
                say(&Event::Lost { op, at: now() });
                change.await;
            }
            () = &mut change => {}
        }
        say(&Event::Wrote { op, at: now() });
    }
}

/// The way to the protected resources.
struct Store {
    stream: BufReader<UnixStream>,
}

impl Store {
    async fn connect(assignment: &Assignment) -> Self {
        let stream = UnixStream::connect(&assignment.store).await.unwrap();
        let mut store = Self { stream: BufReader::new(stream) };
        store.send(&Request::Hello { pid: std::process::id() }).await;
        store
    }

    async fn change(&mut self, token: u64, work: Duration) {
        let mut values = Vec::new();
        for resource in Resource::ALL {
            match self.ask(&Request::Get { resource, token }).await {
                Reply::Value(value) => values.push((resource, value)),
                other => panic!("a read has no reply {other:?}"),
            }
        }
        sleep(work).await;
        for (resource, value) in values {
            self.ask(&Request::Put { resource, token, value: value + 1 }).await;
        }
    }

    async fn ask(&mut self, request: &Request) -> Reply {
        self.send(request).await;
        let mut line = String::new();
        match self.stream.read_line(&mut line).await {
            Ok(1..) => serde_json::from_str(&line).unwrap(),
            // The parent has ended.
            _ => std::process::exit(0),
        }
    }

    async fn send(&mut self, request: &Request) {
        let mut line = serde_json::to_vec(request).unwrap();
        line.push(b'\n');
        if self.stream.write_all(&line).await.is_err() {
            std::process::exit(0);
        }
    }
}
