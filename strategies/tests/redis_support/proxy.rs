//! A TCP proxy before the server, which loses what a test tells it to lose.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

#[derive(Default)]
struct Faults {
    /// The next script is forwarded, and its connection ends in place of the answer.
    lose_answer: AtomicBool,
    /// What the server sends on connections that subscribe is lost.
    lose_publications: AtomicBool,
    /// What clients send is lost, and what they send later on the same connection.
    swallow: AtomicBool,
    /// How long everything that the server sends is under way, in milliseconds.
    answer_delay: AtomicU64,
    /// For how long the next script is under way, in milliseconds; 0 for no longer than others. It
    /// arrives although its connection has ended.
    hold: AtomicU64,
}

pub(crate) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn before(server: &super::Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (faults, target) = (Arc::new(Faults::default()), server.port());
        let accepting = tokio::spawn({
            let faults = faults.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await {
                        let _ = server.set_nodelay(true);
                        let _ = client.set_nodelay(true);
                        tokio::spawn(carry(client, server, faults.clone()));
                    }
                }
            }
        });
        Self { port, faults, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn lose_next_answer(&self) {
        self.faults.lose_answer.store(true, Ordering::SeqCst);
    }

    pub(crate) fn lose_publications(&self, lose: bool) {
        self.faults.lose_publications.store(lose, Ordering::SeqCst);
    }

    pub(crate) fn swallow(&self, swallow: bool) {
        self.faults.swallow.store(swallow, Ordering::SeqCst);
    }

    pub(crate) fn delay_answers(&self, by: Duration) {
        self.faults.answer_delay.store(millis(by), Ordering::SeqCst);
    }

    pub(crate) fn hold_next_script(&self, by: Duration) {
        self.faults.hold.store(millis(by), Ordering::SeqCst);
    }

    /// Whether the answer that was to be lost has been.
    pub(crate) fn has_lost_it(&self) -> bool {
        !self.faults.lose_answer.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

/// What a network does that delivers late: the sender has given the connection up by then.
async fn deliver_late(mut server: TcpStream, bytes: Vec<u8>, hold: u64) {
    tokio::time::sleep(Duration::from_millis(hold)).await;
    if server.write_all(&bytes).await.is_ok() {
        let _ = server.read(&mut [0; 1024]).await;
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, faults: Arc<Faults>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut subscribed, mut cut, mut lost) = (false, false, false);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(1..) = read else { return };
                let bytes = &up[..read.unwrap_or(0)];
                let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
                subscribed |= has(b"SUBSCRIBE");
                if has(b"EVALSHA") && faults.lose_answer.swap(false, Ordering::SeqCst) {
                    cut = true;
                }
                lost |= faults.swallow.load(Ordering::SeqCst);
                if lost {
                    continue;
                }
                if has(b"EVALSHA") {
                    let hold = faults.hold.swap(0, Ordering::SeqCst);
                    if hold > 0 {
                        return deliver_late(server, bytes.to_vec(), hold).await;
                    }
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(1..) = read else { return };
                if cut {
                    return;
                }
                let bytes = &down[..read.unwrap_or(0)];
                let push = bytes.windows(7).any(|part| part == b"message");
                if subscribed && push && faults.lose_publications.load(Ordering::SeqCst) {
                    continue;
                }
                let delay = faults.answer_delay.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(delay)).await;
                if client.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}
