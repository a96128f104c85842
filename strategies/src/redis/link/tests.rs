//! Goal: whoever asks is awake when the answer comes, where answers come soon, and nowhere else.
//! Method: a server of a few lines that answers after a pause, and a clock that stands still.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::{redis::wakes::wakes, spin::SPIN};

const SOON: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

/// Answers `SLOW` when `pause` has passed, and everything else at once.
async fn server(pause: Duration) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while stream.read_buf(&mut bytes).await.unwrap() > 0 {
            while let Some((_, used)) = gaggle_channels::resp::frame(&bytes).unwrap() {
                let said: Vec<u8> = bytes.drain(..used).collect();
                if said.windows(4).any(|word| word == b"SLOW") {
                    tokio::time::sleep(pause).await;
                }
                stream.write_all(b":1\r\n").await.unwrap();
            }
        }
    });
    Server::new(&url, Duration::from_secs(20)).unwrap()
}

/// How often a request is woken until it is answered.
async fn woken(link: &Arc<Link>, awake: bool) -> usize {
    let cmd = redis::cmd("SLOW");
    let until = Instant::default().after(Duration::from_secs(20));
    let delivery = Delivery { awake, ..Delivery::default() };
    let (answer, woken) = wakes(link.request_with(&cmd, delivery, until)).await;
    answer.unwrap();
    woken
}

async fn link(spin: Duration, pause: Duration) -> Arc<Link> {
    let options = RedisOptions::new("").clock(Arc::new(Still)).spin(spin);
    let link = Arc::new(Link::new(server(pause).await, &options));
    let until = Instant::default().after(Duration::from_secs(20));
    link.request(&redis::cmd("PING"), until).await.expect("it connects");
    link
}

#[tokio::test]
async fn a_request_looks_until_its_answer_comes_where_it_stays_awake() {
    let link = link(SPIN, SOON).await;
    assert!(woken(&link, true).await > 100);
    assert_eq!(woken(&link, false).await, 1, "its sender would not");
}

#[tokio::test]
async fn a_request_beside_another_sleeps() {
    let link = link(SPIN, SOON).await;
    let (first, second) = tokio::join!(woken(&link, true), woken(&link, true));
    assert!(first > 100 && second == 1, "{first}, {second}");
}

/// The runtime's own timer ends it, also where the clock stands still.
#[tokio::test]
async fn a_request_that_stays_awake_ends_by_its_limit() {
    let link = link(SPIN, Duration::from_secs(20)).await;
    let (cmd, until) = (redis::cmd("SLOW"), Instant::default().after(Duration::from_millis(2)));
    let delivery = Delivery { awake: true, ..Delivery::default() };
    let ended = link.request_with(&cmd, delivery, until).await;
    assert!(matches!(ended, Err(Trouble::NoTime)), "{ended:?}");
}

#[tokio::test]
async fn never_where_it_is_switched_off() {
    let link = link(Duration::ZERO, SOON).await;
    assert_eq!(woken(&link, true).await, 1);
}
