//! A TCP proxy before a Redis that loses and delays traffic on request, and counts its losses.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a part of tests")]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// The requested and the injected faults; times in milliseconds.
#[derive(Debug, Default)]
struct Faults {
    /// Writes whose replies are still to be cut off.
    cuts_due: AtomicU64,
    cuts: AtomicU64,
    lose_publications: AtomicBool,
    publications_lost: AtomicU64,
    reply_delay: AtomicU64,
    swallow: AtomicBool,
    closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// Forwards to a server on loopback until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    faults: Arc<Faults>,
}

/// One connection, as both of its directions see it.
struct Connection {
    faults: Arc<Faults>,
    client: TcpStream,
    server: TcpStream,
    /// A write has been forwarded whose reply must not arrive.
    cut: AtomicBool,
}

impl Proxy {
    /// A proxy on a free port before the server at `target`.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    #[must_use]
    pub fn before(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults::default());
        let serving = faults.clone();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if serving.closed.load(SeqCst) {
                    return;
                }
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) {
                    carry(client, server, serving.clone());
                }
            }
        });
        Self { port, faults }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The next writes reach the server, and the connections end in place of the replies.
    pub fn cut_replies(&self, count: u64) {
        self.faults.cuts_due.store(count, SeqCst);
    }

    /// How many replies were cut off since the proxy began.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.faults.cuts.load(SeqCst)
    }

    /// Sets whether publications of the server are lost.
    pub fn lose_publications(&self, lose: bool) {
        self.faults.lose_publications.store(lose, SeqCst);
    }

    /// How many publications were lost since the proxy began.
    #[must_use]
    pub fn publications_lost(&self) -> u64 {
        self.faults.publications_lost.load(SeqCst)
    }

    /// All that the server sends arrives later by this.
    pub fn delay_replies(&self, by: Duration) {
        self.faults.reply_delay.store(millis(by), SeqCst);
    }

    /// Sets whether all bytes, in both directions, are read and lost; the connections stay.
    pub fn swallow(&self, swallow: bool) {
        self.faults.swallow.store(swallow, SeqCst);
    }

    /// Ends every connection; says how many there were.
    ///
    /// # Panics
    ///
    /// If a thread of the proxy has panicked.
    #[must_use]
    pub fn sever(&self) -> usize {
        let connections = std::mem::take(&mut *self.faults.connections.lock().unwrap());
        let open = |stream: &&TcpStream| stream.shutdown(Shutdown::Both).is_ok();
        connections.iter().filter(open).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.closed.store(true, SeqCst);
        let _ = self.sever();
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn carry(client: TcpStream, server: TcpStream, faults: Arc<Faults>) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    faults.connections.lock().unwrap().push(client.try_clone().unwrap());
    let connection = Arc::new(Connection { faults, client, server, cut: AtomicBool::new(false) });
    let replies = connection.clone();
    thread::spawn(move || connection.forward_requests());
    thread::spawn(move || replies.forward_replies());
}

impl Connection {
    fn forward_requests(&self) {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = (&self.client).read(&mut buffer) {
            if self.faults.swallow.load(SeqCst) {
                continue;
            }
            let bytes = &buffer[..read];
            let script = find(bytes, b"EVALSHA").is_some() || is_long_record(bytes);
            let due = &self.faults.cuts_due;
            if (script || find(bytes, b"PUBLISH").is_some())
                && due.fetch_update(SeqCst, SeqCst, |due| due.checked_sub(1)).is_ok()
            {
                self.cut.store(true, SeqCst);
            }
            if (&self.server).write_all(bytes).is_err() {
                break;
            }
        }
        self.end();
    }

    fn forward_replies(self: Arc<Self>) {
        // Delays overlap: that of a distance, not of a slow server.
        let (late, delayed) = mpsc::channel::<(Instant, Vec<u8>)>();
        let delivery = self.clone();
        thread::spawn(move || {
            for (at, bytes) in delayed {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                if (&delivery.client).write_all(&bytes).is_err() {
                    break;
                }
            }
            delivery.end();
        });
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = (&self.server).read(&mut buffer) {
            if self.faults.swallow.load(SeqCst) {
                continue;
            }
            // The server has replied: the write took effect.
            if self.cut.load(SeqCst) {
                self.faults.cuts.fetch_add(1, SeqCst);
                return self.end();
            }
            let mut bytes = buffer[..read].to_vec();
            if self.faults.lose_publications.load(SeqCst) {
                let lost = remove_publications(&mut bytes);
                self.faults.publications_lost.fetch_add(lost, SeqCst);
            }
            let delay = Duration::from_millis(self.faults.reply_delay.load(SeqCst));
            if late.send((Instant::now() + delay, bytes)).is_err() {
                return;
            }
        }
    }

    fn end(&self) {
        let _ = (self.client.shutdown(Shutdown::Both), self.server.shutdown(Shutdown::Both));
    }
}

/// Removes every publication: a push of the word, a topic and a payload. If a publication is cut in
/// two, its first part is removed. Returns the count.
fn remove_publications(bytes: &mut Vec<u8>) -> u64 {
    let head = b"3\r\n$7\r\nmessage\r\n";
    let mut removed = 0;
    while let Some(begin) = find(bytes, head) {
        let mut end = begin + head.len();
        for _ in 0..2 {
            let Some(line) = find(&bytes[end.min(bytes.len())..], b"\r\n") else { break };
            let length = std::str::from_utf8(&bytes[end + 1..end + line]).unwrap();
            end += line + 2 + length.parse::<usize>().unwrap() + 2;
        }
        // The type of the push stands before it: `>` or `*`.
        bytes.drain(begin - 1..end.min(bytes.len()));
        removed += 1;
    }
    removed
}

/// Whether TLS has encrypted more here than any request but a script has.
fn is_long_record(bytes: &[u8]) -> bool {
    bytes.starts_with(&[23, 3, 3]) && bytes.len() > 250
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|part| part == word)
}
