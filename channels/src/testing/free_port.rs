//! A free port on loopback for a test's own server.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

/// Below the ports that systems give to outgoing connections and to port 0.
const FIRST: u32 = 10_000;
const PORTS: u32 = 20_000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A loopback port that is free, and stays so until a test listens on it.
///
/// The system may give the port of a closed listener on port 0 to another test or to an outgoing
/// connection. These ports are from a range that systems leave alone. A process gets none twice,
/// and processes begin at different places.
///
/// # Panics
///
/// If no port of the range is free.
#[must_use]
pub fn free_port() -> u16 {
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..PORTS {
        let next = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + next % PORTS).expect("the range ends at 30,000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no loopback port from {FIRST} to {} is free", FIRST + PORTS)
}
