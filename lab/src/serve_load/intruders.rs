//! Clients without a token: slow ones, silent ones, and ones that send too much or guess.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{interval, sleep, timeout},
};

use super::http::Connection;

const SLOW: usize = 1_000;
const SILENT: usize = 1_000;
const LARGE: usize = 4;
const LARGE_BYTES: usize = 10 << 20;
const GUESSERS: u64 = 16;
const GUESSES: u64 = 100_000;
/// The pause between the guesses of one guesser: all together make 4,000 a second.
const GUESS_EVERY: Duration = Duration::from_millis(4);

/// Tasks that end as this is dropped.
pub(super) struct Intruders {
    _tasks: JoinSet<()>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Slow and silent connections that the server has ended.
    cut_off: AtomicU64,
    large_refused: AtomicU64,
    guesses_refused: AtomicU64,
    served: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Intruders {
    pub(super) fn begin(address: &str) -> Self {
        let (mut tasks, counts) = (JoinSet::new(), Arc::<Counts>::default());
        for number in 0..SLOW + SILENT {
            let (address, counts) = (address.to_owned(), counts.clone());
            tasks.spawn(async move {
                // The connections begin one after the other, and are cut off so.
                sleep(Duration::from_micros(1_000 * number as u64)).await;
                loop {
                    let _ = drip(&address, number < SLOW).await;
                    count(&counts.cut_off);
                }
            });
        }
        for _ in 0..LARGE {
            let (address, counts) = (address.to_owned(), counts.clone());
            tasks.spawn(async move {
                loop {
                    if large(&address).await.is_ok_and(|is_refused| is_refused) {
                        count(&counts.large_refused);
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            });
        }
        for _ in 0..GUESSERS {
            let (address, counts) = (address.to_owned(), counts.clone());
            tasks.spawn(async move { guess(&address, &counts).await });
        }
        Self { _tasks: tasks, counts }
    }

    /// All guesses were answered.
    pub(super) fn is_done(&self) -> bool {
        self.counts.guesses_refused.load(Ordering::Relaxed) >= GUESSES
    }

    /// No guess was served, and each kind of intruder was refused.
    pub(super) fn are_refused(&self) -> bool {
        let Counts { cut_off, large_refused, guesses_refused, served } = &*self.counts;
        let refused = [cut_off, large_refused, guesses_refused];
        served.load(Ordering::Relaxed) == 0
            && refused.iter().all(|it| it.load(Ordering::Relaxed) > 0)
    }

    pub(super) fn summary(&self) -> String {
        let Counts { cut_off, large_refused, guesses_refused, .. } = &*self.counts;
        let [cut_off, large, guesses] =
            [cut_off, large_refused, guesses_refused].map(|it| it.load(Ordering::Relaxed));
        format!(
            "{cut_off} slow and silent connections cut off, {large} bodies of 10 MiB and {guesses} \
             wrong tokens refused"
        )
    }
}

/// Sends a byte a second, or nothing, until the server ends the connection.
async fn drip(address: &str, sends: bool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    for byte in b"GET /health HTTP/1.1\r\nX-Slow: ".iter().chain(b"y".iter().cycle()) {
        if let Ok(read) = timeout(Duration::from_secs(1), stream.read(&mut [0; 64])).await {
            read?;
            break;
        }
        if sends {
            stream.write_all(&[*byte]).await?;
        }
    }
    Ok(())
}

/// Sends a long body. Returns whether it was refused.
async fn large(address: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST /v1/claims/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {LARGE_BYTES}\r\n\r\n",
        super::TOKEN
    );
    stream.write_all(head.as_bytes()).await?;
    let part = vec![b'y'; 64 << 10];
    for _ in 0..LARGE_BYTES / part.len() {
        if stream.write_all(&part).await.is_err() {
            break;
        }
    }
    let mut reply = Vec::new();
    // The server may end the connection before it has read the rest.
    let _ = stream.read_to_end(&mut reply).await;
    Ok(reply.is_empty() || reply.starts_with(b"HTTP/1.1 413 "))
}

async fn guess(address: &str, counts: &Counts) {
    let (mut due, mut left) = (interval(GUESS_EVERY), GUESSES / GUESSERS);
    while left > 0 {
        let Ok(mut connection) = Connection::open(address, "token-of-no-client").await else {
            sleep(GUESS_EVERY).await;
            continue;
        };
        let body = json!({ "resource": "k", "ttl": 1 });
        while left > 0 {
            due.tick().await;
            match connection.request("POST", "/v1/claims/", &body, 0).await {
                Ok((401, _)) => count(&counts.guesses_refused),
                Ok(_) => count(&counts.served),
                Err(_) => break,
            }
            left -= 1;
        }
    }
}
