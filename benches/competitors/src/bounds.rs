//! What no lock of a majority can beat: the round trip to the faster of two peers; and that to a
//! certain one.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use gaggle_workloads::Latency;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{contenders::BoxError, data::Data, settings::Settings};

/// About as long as a frame that carries one entry.
pub(crate) const FRAME_BYTES: usize = 64;
/// How often the floors are measured in a round.
const SAMPLES: u32 = 9;

/// A process of this program in another role, that ends with its owner.
pub(crate) struct Role {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
    arguments: String,
}

impl Role {
    /// Starts it and reads the first line that it says.
    pub(crate) fn start(arguments: &[&str]) -> Result<(Self, String), BoxError> {
        let mut role = Self::silent(arguments)?;
        let line = role.line()?;
        Ok((role, line))
    }

    /// Starts a role that prints only replies.
    pub(crate) fn silent(arguments: &[&str]) -> Result<Self, BoxError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().expect("its standard output is piped");
        let arguments = format!("{arguments:?}");
        Ok(Self { process, output: BufReader::new(output), arguments })
    }

    /// Reads its next line.
    pub(crate) fn line(&mut self) -> Result<String, BoxError> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim() {
            "" => Err(format!("{} ended early", self.arguments).into()),
            line => Ok(line.to_owned()),
        }
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, what: &str) -> Result<(), BoxError> {
        let input = self.process.stdin.as_mut().expect("its standard input is piped");
        Ok(writeln!(input, "{what}")?)
    }

    /// Sends a command and returns the reply.
    pub(crate) fn ask(&mut self, what: &str) -> Result<String, BoxError> {
        self.send(what)?;
        self.line()
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), BoxError> {
        kill_process(Pid::from_child(&self.process), signal)?;
        if signal == Signal::KILL {
            self.process.wait()?;
        }
        Ok(())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The medians of several samples: which of two cores each process comes to decides how long it
/// takes to wake it, for as long as it lives.
pub(crate) async fn all(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    let window = settings.window / SAMPLES;
    let (mut quorums, mut trips) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (_one, first) = Role::start(&["echo"])?;
        let (_other, second) = Role::start(&["echo"])?;
        // A thread, as the other processes: threads that wake each other would be measured
        // too.
        let floors = tokio::task::spawn_blocking(move || floors([&first, &second], window));
        let (quorum, trip) = floors.await??;
        quorums.push(quorum);
        trips.push(trip);
    }
    for (name, mut samples) in [("quorum_floor", quorums), ("round_trip", trips)] {
        samples.sort_by(f64::total_cmp);
        data.figure(&format!("{name}_p50_us"), samples[samples.len() / 2]);
    }
    Ok(())
}

/// The round trip to the faster of two echoes, and that to the first: p50, in microseconds.
fn floors(peers: [&str; 2], window: Duration) -> Result<(f64, f64), BoxError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let [first, second] = peers;
        let mut peers = [TcpStream::connect(first).await?, TcpStream::connect(second).await?];
        for peer in &peers {
            peer.set_nodelay(true)?;
        }
        let quorum = quorum(&mut peers, window).await?.us(0.5);
        Ok((quorum, round_trip(&mut peers[0], window).await?.us(0.5)))
    })
}

/// To both, until the first replies.
async fn quorum(peers: &mut [TcpStream; 2], window: Duration) -> Result<Latency, BoxError> {
    let (mut trips, begun) = (Latency::default(), Instant::now());
    let mut heard = [0; 2];
    for number in 1_usize.. {
        let asked = Instant::now();
        for peer in &mut *peers {
            peer.write_all(&[0; FRAME_BYTES]).await?;
        }
        let [one, other] = &mut *peers;
        let (mut from_one, mut from_other) = ([0; 1024], [0; 1024]);
        while heard.iter().all(|bytes| bytes / FRAME_BYTES < number) {
            tokio::select! {
                read = one.read(&mut from_one) => heard[0] += some(read?)?,
                read = other.read(&mut from_other) => heard[1] += some(read?)?,
            }
        }
        trips.record(u64::try_from(asked.elapsed().as_nanos())?);
        if begun.elapsed() > window {
            // What the slower one has not confirmed yet.
            one.read_exact(&mut vec![0; number * FRAME_BYTES - heard[0]]).await?;
            other.read_exact(&mut vec![0; number * FRAME_BYTES - heard[1]]).await?;
            break;
        }
    }
    Ok(trips)
}

fn some(bytes: usize) -> Result<usize, BoxError> {
    if bytes > 0 { Ok(bytes) } else { Err("the echo has ended".into()) }
}

/// To one and back.
async fn round_trip(peer: &mut TcpStream, window: Duration) -> Result<Latency, BoxError> {
    let (mut trips, begun) = (Latency::default(), Instant::now());
    let mut frame = [0; FRAME_BYTES];
    while begun.elapsed() < window {
        let asked = Instant::now();
        peer.write_all(&frame).await?;
        peer.read_exact(&mut frame).await?;
        trips.record(u64::try_from(asked.elapsed().as_nanos())?);
    }
    Ok(trips)
}

/// The child: says where it listens, and gives back what it gets until its parent has ended.
pub(crate) fn echo_child() -> Result<(), BoxError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut frame = [0; FRAME_BYTES];
    while stream.read_exact(&mut frame).is_ok() {
        stream.write_all(&frame)?;
    }
    Ok(())
}
