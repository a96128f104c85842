//! What no lock of a majority can beat: the round trip to the faster of two peers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    time::Instant,
};

use gaggle::bench::Latency;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use crate::{contenders::Failed, data::Data, settings::Settings};

/// About as long as a frame that carries one entry.
pub(crate) const FRAME_BYTES: usize = 64;

/// A process of this program in another role, that ends with its owner.
pub(crate) struct Role {
    pub(crate) process: Child,
}

impl Role {
    /// Starts it and reads the first line that it says.
    pub(crate) fn start(arguments: &[&str]) -> Result<(Self, String), Failed> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().expect("its standard output is piped");
        let role = Self { process };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.is_empty() {
            return Err(format!("{arguments:?} ended early").into());
        }
        Ok((role, line.trim().to_owned()))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) async fn all(settings: &Settings, data: &mut Data) -> Result<(), Failed> {
    let (_one, first) = Role::start(&["echo"])?;
    let (_other, second) = Role::start(&["echo"])?;
    let (told, mut heard) = mpsc::unbounded_channel();
    let mut writers = Vec::new();
    for address in [first, second] {
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let (mut reader, writer) = stream.into_split();
        writers.push(writer);
        let told = told.clone();
        tokio::spawn(async move {
            let mut frame = [0; FRAME_BYTES];
            while reader.read_exact(&mut frame).await.is_ok() {
                let number = u64::from_le_bytes(frame[..8].try_into().expect("eight bytes"));
                let _ = told.send(number);
            }
        });
    }
    let (mut trips, begun) = (Latency::default(), Instant::now());
    for number in 1_u64.. {
        let asked = Instant::now();
        let mut frame = [0; FRAME_BYTES];
        frame[..8].copy_from_slice(&number.to_le_bytes());
        for writer in &mut writers {
            writer.write_all(&frame).await?;
        }
        // The slower one's answers to former frames come late.
        while heard.recv().await.ok_or("the echo has ended")? < number {}
        trips.record(u64::try_from(asked.elapsed().as_nanos())?);
        if begun.elapsed() > settings.window {
            break;
        }
    }
    data.figure("quorum_floor_p50_us", trips.us(0.5));
    data.figure("quorum_floor_p99_us", trips.us(0.99));
    Ok(())
}

/// The child: says where it listens, and gives back what it gets until its parent has gone.
pub(crate) fn echo_child() -> Result<(), Failed> {
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
