//! A TCP proxy before a Redis that loses traffic on request, and counts its losses.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// The requested and the injected faults.
#[derive(Default)]
struct Faults {
    /// Writes whose answers are still to be cut off.
    cuts_due: AtomicU64,
    cuts: AtomicU64,
    lose_publications: AtomicBool,
    publications: AtomicU64,
    closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// Forwards to a server on loopback until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
}

/// One connection, as both of its directions see it.
struct Connection {
    faults: Arc<Faults>,
    /// A write has been forwarded whose answer must not arrive.
    cut: AtomicBool,
    subscribed: AtomicBool,
}

impl Proxy {
    pub(crate) fn before(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let serving = faults.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if serving.closed.load(SeqCst) {
                    return;
                }
                if let Ok(client) = client
                    && let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target))
                {
                    carry(client, server, serving.clone());
                }
            }
        });
        Self { port, faults }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The next writes reach the server, and their connections end in place of the answers.
    pub(crate) fn cut_answers(&self, count: u64) {
        self.faults.cuts_due.store(count, SeqCst);
    }

    /// How many were cut since the proxy began.
    pub(crate) fn cuts(&self) -> u64 {
        self.faults.cuts.load(SeqCst)
    }

    /// What the server publishes is lost from now on, or no more.
    pub(crate) fn lose_publications(&self, lose: bool) {
        self.faults.lose_publications.store(lose, SeqCst);
    }

    /// How many chunks of publications were lost since the proxy began.
    pub(crate) fn publications_lost(&self) -> u64 {
        self.faults.publications.load(SeqCst)
    }

    /// Ends every connection; says how many there were.
    pub(crate) fn sever(&self) -> usize {
        let connections = std::mem::take(&mut *self.faults.connections.lock().unwrap());
        let open = |stream: &&TcpStream| stream.shutdown(Shutdown::Both).is_ok();
        connections.iter().filter(open).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.closed.store(true, SeqCst);
        self.sever();
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn carry(client: TcpStream, server: TcpStream, faults: Arc<Faults>) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    faults.connections.lock().unwrap().push(client.try_clone().unwrap());
    let connection = Arc::new(Connection {
        faults,
        cut: AtomicBool::new(false),
        subscribed: AtomicBool::new(false),
    });
    for up in [true, false] {
        let connection = connection.clone();
        let (from, to) = if up { (&client, &server) } else { (&server, &client) };
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            connection.pump(up, &from, &to);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

impl Connection {
    fn pump(&self, up: bool, mut from: &TcpStream, mut to: &TcpStream) {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..read];
            let forward = if up { self.request(bytes) } else { self.answer(bytes) };
            match forward {
                Some(true) if to.write_all(bytes).is_err() => return,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn request(&self, bytes: &[u8]) -> Option<bool> {
        if has(bytes, b"SUBSCRIBE") {
            self.subscribed.store(true, SeqCst);
        }
        let due = &self.faults.cuts_due;
        if (has(bytes, b"EVALSHA") || has(bytes, b"PUBLISH"))
            && due.fetch_update(SeqCst, SeqCst, |due| due.checked_sub(1)).is_ok()
        {
            self.cut.store(true, SeqCst);
        }
        Some(true)
    }

    /// Whether to forward; `None` ends the connection.
    fn answer(&self, bytes: &[u8]) -> Option<bool> {
        // The server has answered: the write took effect.
        if self.cut.load(SeqCst) {
            self.faults.cuts.fetch_add(1, SeqCst);
            return None;
        }
        let published = self.subscribed.load(SeqCst) && has(bytes, b"message");
        if published && self.faults.lose_publications.load(SeqCst) {
            self.faults.publications.fetch_add(1, SeqCst);
            return Some(false);
        }
        Some(true)
    }
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|part| part == word)
}
