//! A Raft group of three members in one terminal, over TCP: `cargo run --example cluster`
//!
//! In production each member is part of one of your processes. No server is needed.

use std::{error::Error, net::TcpListener};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Every member gets the same list of names and addresses.
    let addresses = free_addresses()?;
    let peers: Vec<_> = ["a", "b", "c"].iter().zip(&addresses).collect();
    let list = peers.iter().map(|(name, address)| format!("{name}@{address}"));
    let list = list.collect::<Vec<_>>().join(",");

    let mut members = Vec::new();
    for (name, address) in peers {
        let url = format!("gaggle+tcp://{address}?cluster=example&name={name}&peers={list}");
        members.push((*name, gaggle::open(&url).await?));
    }
    // The group forms when every name runs.
    for (name, locker) in &members {
        locker.ready().await?;
        println!("{name} is ready");
    }

    for (name, locker) in &members {
        let guard = locker.lock("orders/42").await?;
        println!("{name} locked, fencing token {}", guard.fencing_token());
        guard.unlock().await?;
    }

    // The leader leaves. The other two are a majority of three and continue.
    let leads = |locker: &gaggle::Locker| locker.group_status().is_some_and(|status| status.leads);
    let leader =
        members.iter().position(|(_, locker)| leads(locker)).expect("a group has a leader");
    let (_, locker) = members.remove(leader);
    locker.close().await;
    println!("the leader left");

    for (name, locker) in &members {
        let guard = locker.lock("orders/42").await?;
        println!("{name} locked, fencing token {}", guard.fencing_token());
        guard.unlock().await?;
    }
    for (_, locker) in &members {
        locker.close().await;
    }
    Ok(())
}

/// Three addresses on loopback that were free a moment ago.
fn free_addresses() -> std::io::Result<Vec<std::net::SocketAddr>> {
    let listeners: Vec<_> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}
