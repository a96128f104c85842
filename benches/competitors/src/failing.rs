//! From a leader's end to the next grant: three members in separate processes over TCP, of
//! which the leader is killed, or made to stand still.

use std::{sync::Arc, time::Instant};

use gaggle::{
    KeyedMutex, LockOptions,
    channels::{NodeName, Tcp, TcpOptions},
    strategies::{Gaggle, MemberOptions},
};
use gaggle_channels::testing::free_port;
use rustix::process::Signal;

use crate::{bounds::Role, contenders::Failed, data::Data, machine, settings::Settings};

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(crate) fn all(settings: &Settings, data: &mut Data) -> Result<(), Failed> {
    for (how, signal) in [("killed", Signal::KILL), ("stopped", Signal::STOP)] {
        let mut times = times(settings.failovers, signal)?;
        times.sort_by(f64::total_cmp);
        data.figure(&format!("failover_{how}_median_ms"), times[times.len() / 2]);
        data.figure(&format!("failover_{how}_worst_ms"), times[times.len() - 1]);
    }
    data.figure("failovers", f64::from(settings.failovers));
    Ok(())
}

/// In milliseconds, each after the members are all ready again.
fn times(count: u32, signal: Signal) -> Result<Vec<f64>, Failed> {
    let (ports, mut members) = three()?;
    let (mut times, mut others) = (Vec::new(), 0);
    while times.len() < count as usize {
        let (term, leads) = leader(&mut members)?;
        let asked = (leads + 1) % members.len();
        let stopped = Instant::now();
        members[leads].signal(signal)?;
        members[asked].ask("lock")?;
        let took = stopped.elapsed().as_secs_f64() * 1e3;
        if members[asked].ask("known term")?.parse::<u64>()? > term {
            times.push(took);
        } else if others == count {
            return Err("the leader was another".into());
        } else {
            // The leader replied before the signal took effect, or another led already: no
            // failover.
            others += 1;
        }
        if signal == Signal::STOP {
            members[leads].signal(Signal::CONT)?;
        } else {
            members[leads] = member(NAMES[leads], &ports)?;
        }
    }
    Ok(times)
}

/// Three of them, with the ports that they listen at.
fn three() -> Result<([String; 3], Vec<Role>), Failed> {
    let ports = NAMES.map(|_| free_port().to_string());
    let members: Result<_, _> = NAMES.iter().map(|name| member(name, &ports)).collect();
    Ok((ports, members?))
}

/// The term, and who leads in it, once all are ready. Who stood still may believe for a while that
/// it leads: the greatest term does.
fn leader(members: &mut [Role]) -> Result<(u64, usize), Failed> {
    for member in &mut *members {
        member.ask("ready")?;
    }
    let mut leader = None;
    for (place, member) in members.iter_mut().enumerate() {
        let term: u64 = member.ask("term")?.parse()?;
        if term > 0 {
            leader = leader.max(Some((term, place)));
        }
    }
    leader.ok_or_else(|| "no member leads".into())
}

/// A process with one member; it becomes ready once a majority is there.
fn member(name: &str, ports: &[String]) -> Result<Role, Failed> {
    let mut arguments = vec!["candidate", name];
    arguments.extend(ports.iter().map(String::as_str));
    Role::silent(&arguments)
}

/// The child: reads commands, one a line, and replies to each with one line.
pub(crate) fn child(name: &str, ports: &[&str]) -> Result<(), Failed> {
    let names = NAMES.map(|name| NodeName::new(name).expect("a short name"));
    let own = NAMES.iter().position(|known| *known == name).ok_or("no such member")?;
    let address = |port: &str| format!("127.0.0.1:{port}");
    machine::runtime().block_on(async {
        let channel = Tcp::new(TcpOptions::new(names[own].clone(), address(ports[own]).parse()?))?;
        for (peer, port) in names.iter().zip(ports).filter(|(peer, _)| **peer != names[own]) {
            channel.add_peer(peer.clone(), address(port)).await;
        }
        let options = MemberOptions::named("failing", names);
        let member = Arc::new(Gaggle::open(Arc::new(channel), options).await?);
        loop {
            let line = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).map(|_| line)
            });
            let line = line.await??;
            let reply = match line.trim() {
                "ready" => member.ready().await.map(|()| "ready".to_owned())?,
                // Of the leader.
                "term" => {
                    Some(member.status()).filter(|s| s.leads).map_or(0, |s| s.term).to_string()
                }
                "known term" => member.status().term.to_string(),
                "lock" => {
                    let lock = member.lock("k", LockOptions::default()).await?;
                    let unlocking = member.clone();
                    tokio::spawn(async move { unlocking.unlock(&lock).await });
                    "granted".into()
                }
                _ => return Ok(()),
            };
            println!("{reply}");
        }
    })
}
