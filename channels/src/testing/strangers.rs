//! Connections of strangers that never become authenticated, for tests of limits.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

const ADDRESSES: u8 = 32;
/// As many of one address as the gate of a node admits.
const PER_ADDRESS: u32 = 8;
/// The head of a ClientHello whose rest never comes.
const DRIPPED: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

/// 128 connections to a port that send nothing, and 128 that send a byte now and then, from 32
/// addresses of loopback. Each is made again when it is closed. They end when this is dropped.
pub struct Strangers {
    _tasks: JoinSet<()>,
}

impl Strangers {
    /// Begins to connect to this loopback address.
    #[must_use]
    pub fn flood(at: SocketAddr) -> Self {
        let mut tasks = JoinSet::new();
        for third in 1..=ADDRESSES {
            for number in 0..PER_ADDRESS {
                tasks.spawn(again_and_again(at, third, number % 2 == 0));
            }
        }
        Self { _tasks: tasks }
    }
}

async fn again_and_again(at: SocketAddr, third: u8, is_silent: bool) {
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, third, 1], 0).into()).unwrap();
        let Ok(stream) = socket.connect(at).await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        until_closed(stream, is_silent).await;
    }
}

async fn until_closed(mut stream: TcpStream, is_silent: bool) {
    if is_silent {
        let _ = stream.read(&mut [0]).await;
        return;
    }
    for byte in DRIPPED.into_iter().cycle() {
        let read = timeout(Duration::from_millis(100), stream.read(&mut [0])).await;
        if read.is_ok() || stream.write_all(&[byte]).await.is_err() {
            return;
        }
    }
}
