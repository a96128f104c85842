//! From a leader's end to the next grant: three members in separate processes over TCP, of
//! which the leader is killed, or made to stand still.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Instant,
};

use gaggle::{
    KeyedMutex, LockOptions,
    channels::{NodeName, Tcp, TcpOptions},
    strategies::{Gaggle, MemberOptions},
};
use gaggle_channels::testing::free_port;
use rustix::process::{Pid, Signal, kill_process};

use crate::{contenders::Failed, data::Data, machine, settings::Settings};

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
            members[leads] = Member::start(NAMES[leads], &ports)?;
        }
    }
    Ok(times)
}

/// Three of them, with the ports that they listen at.
fn three() -> Result<([String; 3], Vec<Member>), Failed> {
    let ports = NAMES.map(|_| free_port().to_string());
    let members: Result<_, _> = NAMES.iter().map(|name| Member::start(name, &ports)).collect();
    Ok((ports, members?))
}

/// The term, and who leads in it, once all are ready. Who stood still may believe for a while that
/// it leads: the greatest term does.
fn leader(members: &mut [Member]) -> Result<(u64, usize), Failed> {
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

/// A process with one member, that ends with its owner.
struct Member {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Member {
    /// Starts it; it becomes ready once a majority is there.
    fn start(name: &str, ports: &[String]) -> Result<Self, Failed> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["candidate", name])
            .args(ports)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take().expect("its standard input is piped");
        let output = process.stdout.take().expect("its standard output is piped");
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    fn ask(&mut self, what: &str) -> Result<String, Failed> {
        writeln!(self.input, "{what}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() { Err("a member ended early".into()) } else { Ok(line.trim().into()) }
    }

    fn signal(&mut self, signal: Signal) -> Result<(), Failed> {
        kill_process(Pid::from_child(&self.process), signal)?;
        if signal == Signal::KILL {
            self.process.wait()?;
        }
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
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
