//! A TCP proxy before the server, which loses what a test tells it to lose.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
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
    /// What clients send is lost.
    swallow: AtomicBool,
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

async fn carry(mut client: TcpStream, mut server: TcpStream, faults: Arc<Faults>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut subscribed, mut cut) = (false, false);
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
                if faults.swallow.load(Ordering::SeqCst) {
                    continue;
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
                if client.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}
