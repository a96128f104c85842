//! Goal: every request gets its own answer, however full the connection and whoever has gone.
//! Method: servers of a few lines, on sockets of their own.

use std::{pin::pin, time::Duration};

use futures_util::future::join_all;
use redis::IntoConnectionInfo;
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{state::REQUESTS_MAX, *};
use crate::redis::wakes::wakes;

const LIMIT: Duration = Duration::from_secs(20);

/// A server that reads nothing for `pause` after the greeting, and then answers the n-th command
/// with n; after `answers` of them it hangs up.
async fn server(pause: Duration, answers: usize) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut bytes, mut answered) = (Vec::new(), 0);
        while answered <= answers {
            if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                return;
            }
            let mut said = Vec::new();
            while let Some((_, used)) = resp::frame(&bytes).unwrap() {
                bytes.drain(..used);
                said.extend(format!(":{answered}\r\n").into_bytes());
                answered += 1;
            }
            stream.write_all(&said).await.unwrap();
            if answered == 1 {
                sleep(pause).await;
            }
        }
    });
    (url, serving)
}

async fn connect(url: &str) -> (Wire, Arc<Notify>) {
    let ended = Arc::new(Notify::new());
    let told = ended.clone();
    let on_push: OnPush = Arc::new(move |unasked| {
        assert_eq!(unasked, Unasked::Ended);
        told.notify_one();
    });
    let info = url.into_connection_info().unwrap();
    (Wire::connect(&info, on_push).await.unwrap(), ended)
}

fn echo(text: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("ECHO");
    cmd.arg(text);
    cmd
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_what_socket_and_buffers_take_are_all_answered_in_order() {
    // More than the bounds on bytes and requests, to a server that does not read at first.
    let count = REQUESTS_MAX + 4_000;
    let (url, serving) = server(Duration::from_millis(300), count).await;
    let (wire, ended) = connect(&url).await;
    let text = vec![b'x'; 700];
    let asked = (0..count).map(|_| async { wire.request(&echo(&text)).await.unwrap() });
    let answers = timeout(LIMIT, join_all(asked)).await.unwrap();
    let mut numbers: Vec<_> = answers.into_iter().collect();
    // Those that had to wait for room went in any order, but none twice and none lost.
    numbers.sort_by_key(|value| if let Value::Int(number) = value { *number } else { -1 });
    let expected: Vec<_> = (1..=count as i64).map(Value::Int).collect();
    assert!(numbers == expected);
    serving.await.unwrap();
    timeout(LIMIT, ended.notified()).await.unwrap();
    let late = wire.request(&echo(b"late")).await;
    assert!(matches!(late, Err(Trouble::Dropped(_))), "{late:?}");
}

#[tokio::test]
async fn a_request_whose_caller_has_gone_takes_its_answer_along() {
    let (url, serving) = server(Duration::from_millis(50), 3).await;
    let (wire, _) = connect(&url).await;
    let gone = timeout(Duration::from_millis(5), wire.request(&echo(b"gone"))).await;
    assert!(gone.is_err());
    for number in 2..=3 {
        let answer = timeout(LIMIT, wire.request(&echo(b"next"))).await.unwrap().unwrap();
        assert_eq!(answer, Value::Int(number), "each has its own answer");
    }
    serving.await.unwrap();
}

#[tokio::test]
async fn an_answer_that_was_looked_at_waits_until_its_caller_is_polled() {
    let (url, serving) = server(Duration::ZERO, 3).await;
    let (wire, _) = connect(&url).await;
    let ask = async |wakes_nobody| {
        let seen = Arc::new(Notify::new());
        let told = seen.clone();
        let look: Look = Box::new(move |value| {
            assert!(matches!(value, Value::Int(_)));
            told.notify_one();
            wakes_nobody
        });
        let (cmd, delivery) = (echo(b"x"), Delivery { look: Some(look), ..Delivery::default() });
        let mut asking = pin!(wire.request_with(&cmd, delivery));
        tokio::select! {
            biased;
            answer = &mut asking => answer.unwrap(),
            // Polled again by what the look has allowed.
            () = async { seen.notified().await; sleep(Duration::from_millis(50)).await } => {
                asking.await.unwrap()
            }
        }
    };
    let (answered, woken) = timeout(LIMIT, wakes(ask(false))).await.unwrap();
    assert_eq!((answered.value, answered.aside), (Value::Int(1), false));
    assert!(woken > 0);
    let answered = timeout(LIMIT, ask(true)).await.unwrap();
    assert_eq!((answered.value, answered.aside), (Value::Int(2), true));
    // Nothing else wakes it: it is not woken.
    let look: Look = Box::new(|_| true);
    let cmd = echo(b"x");
    let asking = wire.request_with(&cmd, Delivery { look: Some(look), ..Delivery::default() });
    // The timer polls it as well.
    let (answered, woken) = timeout(Duration::from_millis(100), wakes(asking)).await.unwrap();
    assert_eq!((answered.unwrap().aside, woken), (true, 0));
    serving.await.unwrap();
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"+OK\r\n").await.unwrap();
        sleep(Duration::from_millis(50)).await;
        stream.write_all(b"?\r\n").await.unwrap();
        stream
    });
    let (wire, ended) = connect(&url).await;
    let answer = timeout(LIMIT, wire.request(&echo(b"x"))).await.unwrap();
    assert!(matches!(answer, Err(Trouble::Dropped(_))), "{answer:?}");
    timeout(LIMIT, ended.notified()).await.unwrap();
    drop(serving.await.unwrap());
}
