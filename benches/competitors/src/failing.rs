//! From a leader's end to the next grant: three members in separate processes over TCP, of
//! which the leader is killed, or made to stand still.

use std::time::Instant;

use gaggle::LockOptions;
use rustix::process::Signal;

use crate::{
    bounds::Role,
    cluster::{Over, member_urls},
    contenders::BoxError,
    data::Data,
    machine,
    settings::Settings,
};

pub(crate) fn all(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
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
fn times(count: u32, signal: Signal) -> Result<Vec<f64>, BoxError> {
    let urls = member_urls("gaggle", 3, Over::Tcp);
    let mut members = urls.iter().map(|url| member(url)).collect::<Result<Vec<_>, _>>()?;
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
            members[leads] = member(&urls[leads])?;
        }
    }
    Ok(times)
}

/// The term, and who leads in it, once all are ready. Who stood still may believe for a while that
/// it leads: the greatest term does.
fn leader(members: &mut [Role]) -> Result<(u64, usize), BoxError> {
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
fn member(url: &str) -> Result<Role, BoxError> {
    Role::silent(&["candidate", url])
}

/// The child: reads commands, one a line, and replies to each with one line.
pub(crate) fn child(url: &str) -> Result<(), BoxError> {
    machine::runtime().block_on(async {
        let member = gaggle::open(url).await?.strategy().clone();
        let status = || member.group_status().expect("a member has a group");
        loop {
            let line = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).map(|_| line)
            });
            let line = line.await??;
            let reply = match line.trim() {
                "ready" => member.ready().await.map(|()| "ready".to_owned())?,
                // The term of the leader.
                "term" => Some(status()).filter(|s| s.leads).map_or(0, |s| s.term).to_string(),
                "known term" => status().term.to_string(),
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
