//! Services of several servers on free ports, each in a separate runtime.

use std::{
    sync::{Mutex, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use gaggle::{Locker, operator::ListOptions};
use gaggle_fixtures::{RedisServer, free_port};
use gaggle_server::{Access, Listen, Options, serve};
use tokio::{runtime::Builder, sync::oneshot, time::sleep};

/// Servers that serve the same locks.
pub(crate) struct Service {
    /// The URL of the strategy of each server.
    urls: Vec<String>,
    addresses: Vec<String>,
    running: Mutex<Vec<Option<Server>>>,
    _redis: Option<RedisServer>,
}

/// A server, and its strategy.
struct Server {
    locker: Locker,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Service {
    /// A server over its own memory.
    pub(crate) async fn local() -> Self {
        Self::start(vec!["local:".into()], None).await
    }

    /// Two servers over a Redis.
    pub(crate) async fn redis() -> Self {
        let redis = RedisServer::start();
        Self::start(vec![redis.url(); 2], Some(redis)).await
    }

    /// Three servers, each at a member of a group over TCP.
    pub(crate) async fn group() -> Self {
        let members = ["a", "b", "c"].map(|name| (name, free_port()));
        let peers = members.map(|(name, port)| format!("{name}@127.0.0.1:{port}")).join(",");
        let url = |(name, port)| {
            format!("gaggle+tcp://127.0.0.1:{port}?cluster=c&name={name}&peers={peers}")
        };
        Self::start(members.into_iter().map(url).collect(), None).await
    }

    async fn start(urls: Vec<String>, redis: Option<RedisServer>) -> Self {
        let addresses = urls.iter().map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let running = urls.iter().map(|_| None).collect();
        let service = Self { urls, addresses, running: Mutex::new(running), _redis: redis };
        service.up().await;
        service
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    fn locker(&self, node: usize) -> Locker {
        self.running.lock().unwrap()[node].as_ref().unwrap().locker.clone()
    }

    /// How many keys are held, and how many wait for them.
    pub(crate) async fn residue(&self) -> u64 {
        let locker = self.locker(0);
        let operator = locker.operator().unwrap();
        let (mut count, mut options) = (0, ListOptions::default().limit(1_000));
        loop {
            let page = operator.list(options.clone()).await.unwrap();
            count += page.entries.iter().map(|it| 1 + it.holder.waiters).sum::<u64>();
            let Some(next) = page.next else { return count };
            options = options.after(next);
        }
    }

    /// Starts the servers that do not run, and waits until all grant.
    pub(crate) async fn up(&self) {
        for (node, (url, address)) in self.urls.iter().zip(&self.addresses).enumerate() {
            let running = &mut self.running.lock().unwrap()[node];
            running.get_or_insert_with(|| Server::start(url, address));
        }
        for node in 0..self.urls.len() {
            self.locker(node).ready().await.unwrap();
        }
    }

    pub(crate) async fn down(&self) {
        for node in 0..self.urls.len() {
            self.end(node).await;
        }
    }

    /// Ends a server, as SIGTERM does.
    pub(crate) async fn end(&self, node: usize) {
        let Some(server) = self.running.lock().unwrap()[node].take() else { return };
        drop(server.stop);
        while !server.thread.is_finished() {
            sleep(Duration::from_millis(10)).await;
        }
        server.thread.join().unwrap();
    }

    /// Has another member lead.
    pub(crate) async fn change_leader(&self) {
        let lockers: Vec<Locker> = (0..self.urls.len()).map(|node| self.locker(node)).collect();
        let leader = |locker: &Locker| locker.group_status().and_then(|status| status.leader);
        let before = leader(&lockers[0]).unwrap();
        let leads = |locker: &&Locker| locker.group_status().is_some_and(|status| status.leads);
        let node = lockers.iter().position(|it| leads(&it)).unwrap();
        self.end(node).await;
        self.up().await;
        while lockers.iter().all(|it| leader(it).is_none_or(|now| now == before)) {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Server {
    fn start(url: &str, address: &str) -> Self {
        let (started, is_started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (url, listen) = (url.to_owned(), address.parse::<Listen>().unwrap());
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(async move {
                let locker = gaggle::open(&url).await.unwrap();
                let (access, options) = (Access::anonymous(), Options::default());
                let service = gaggle_server::Service::new(locker.clone(), access, options).unwrap();
                let listener = listen.bind().await.unwrap();
                started.send(locker).unwrap();
                serve(service, vec![listener], async { _ = stopped.await }).await;
            });
        });
        let locker = is_started.recv().unwrap();
        Self { locker, stop, thread }
    }
}
