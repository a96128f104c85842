//! Servers on free ports, each in a runtime of its own.

use std::{
    sync::{Mutex, mpsc},
    thread::{self, JoinHandle},
};

use gaggle::{Locker, operator::ListOptions};
use gaggle_server::{Access, Listen, Listener, Options, serve};
use tokio::{runtime::Builder, sync::oneshot};

/// What is behind the servers.
pub(crate) enum Backing {
    Local,
}

/// Servers that serve the same locks.
pub(crate) struct Service {
    backing: Backing,
    addresses: Vec<String>,
    running: Mutex<Vec<Server>>,
}

/// A server, and its strategy.
struct Server {
    locker: Locker,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(backing: Backing) -> Self {
        let address = format!("127.0.0.1:{}", gaggle_fixtures::free_port());
        let service = Self { backing, addresses: vec![address], running: Mutex::default() };
        service.up().await;
        service
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    /// How many keys are held, and how many wait for them.
    pub(crate) async fn residue(&self) -> u64 {
        let locker = self.running.lock().unwrap()[0].locker.clone();
        let operator = locker.operator().unwrap();
        let (mut count, mut options) = (0, ListOptions::default().limit(1_000));
        loop {
            let page = operator.list(options.clone()).await.unwrap();
            count += page.entries.iter().map(|it| 1 + it.holder.waiters).sum::<u64>();
            let Some(next) = page.next else { return count };
            options = options.after(next);
        }
    }

    pub(crate) async fn up(&self) {
        let servers = self.addresses.iter().map(|address| Server::start(&self.backing, address));
        *self.running.lock().unwrap() = servers.collect();
    }

    pub(crate) async fn down(&self) {
        let servers = std::mem::take(&mut *self.running.lock().unwrap());
        tokio::task::block_in_place(|| servers.into_iter().for_each(Server::end));
    }
}

impl Server {
    fn start(backing: &Backing, address: &str) -> Self {
        let url = match backing {
            Backing::Local => "local:",
        };
        let (started, is_started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let listen: Listen = address.parse().unwrap();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(async move {
                let locker = gaggle::open(url).await.unwrap();
                let (access, options) = (Access::anonymous(), Options::default());
                let service = gaggle_server::Service::new(locker.clone(), access, options).unwrap();
                let listener: Listener = listen.bind().await.unwrap();
                started.send(locker).unwrap();
                serve(service, vec![listener], async { _ = stopped.await }).await;
            });
        });
        let locker = is_started.recv().unwrap();
        Self { locker, stop, thread }
    }

    fn end(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}
