//! A TCP proxy before the server that loses and delays traffic on request.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

#[derive(Default)]
struct Faults {
    /// The next script is forwarded, and its connection ends in place of the answer.
    lose_answer: AtomicBool,
    /// Publications are lost.
    lose_publications: AtomicBool,
    /// What clients send is lost, and what they send later on the same connection.
    swallow: AtomicBool,
    /// The delay of everything that the server sends, in milliseconds.
    answer_delay: AtomicU64,
    /// The delay of the next script, in milliseconds. It arrives although its connection has ended.
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

async fn carry(client: TcpStream, server: TcpStream, faults: Arc<Faults>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (late, mut delayed) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    // Answers overlap on their way: the delay is that of a distance, not of a slow server.
    let deliver = async move {
        while let Some((at, bytes)) = delayed.recv().await {
            sleep_until(at).await;
            if to_client.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let mut deliver = pin!(deliver);
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let (mut cut, mut lost) = (false, false);
    loop {
        tokio::select! {
            () = &mut deliver => return,
            read = from_client.read(&mut up) => {
                let Ok(1..) = read else { return };
                let bytes = &up[..read.unwrap_or(0)];
                let has = |word: &[u8]| find(bytes, word).is_some();
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
                        let server = from_server.reunite(to_server).unwrap();
                        return deliver_late(server, bytes.to_vec(), hold).await;
                    }
                }
                if to_server.write_all(bytes).await.is_err() {
                    return;
                }
            }
            read = from_server.read(&mut down) => {
                let Ok(1..) = read else { return };
                if cut {
                    return;
                }
                let mut bytes = down[..read.unwrap_or(0)].to_vec();
                if faults.lose_publications.load(Ordering::SeqCst) {
                    remove_publications(&mut bytes);
                }
                let delay = faults.answer_delay.load(Ordering::SeqCst);
                let _ = late.send((Instant::now() + Duration::from_millis(delay), bytes));
            }
        }
    }
}

/// Removes every publication: a push of the word, a topic and a payload. None is cut in two,
/// because the server writes them whole and they are short.
fn remove_publications(bytes: &mut Vec<u8>) {
    let head = b">3\r\n$7\r\nmessage\r\n";
    while let Some(begin) = find(bytes, head) {
        let mut end = begin + head.len();
        for _ in 0..2 {
            let line = end + find(&bytes[end..], b"\r\n").unwrap();
            let length: usize =
                std::str::from_utf8(&bytes[end + 1..line]).unwrap().parse().unwrap();
            end = line + 2 + length + 2;
        }
        bytes.drain(begin..end);
    }
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|part| part == word)
}
