//! A server of the store on loopback, for worker processes without a Redis.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::store::Memory;
use crate::failure::Failure;

/// More than any command of a worker. It bounds the memory that a stranger on loopback can
/// allocate.
const WORDS_MAX: usize = 8;
const WORD_BYTES_MAX: usize = 1024;

/// GET, SET and DEL in the protocol of Redis. Dropping it ends its connections.
pub(super) struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(memory: Memory) -> Result<Self, Failure> {
        let bind = async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            Ok((listener.local_addr()?, listener))
        };
        let failed = |error: io::Error| Failure::new("the counter's server").because(&error);
        let (address, listener) = bind.await.map_err(failed)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Owned by this task, so that they end with it.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, memory.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, _tasks: tasks })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

/// Replies until the peer closes the connection or sends an invalid command.
async fn serve(stream: TcpStream, memory: Memory) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    while let Ok(Some(words)) = read_command(&mut stream).await {
        let reply = reply(&words, &memory);
        if stream.get_mut().write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn reply(words: &[String], memory: &Memory) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["GET", key] => match memory.get(key) {
            Some(value) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".into(),
        },
        ["SET", key, value] => {
            memory.set(key, value);
            "+OK\r\n".into()
        }
        ["DEL", key] => {
            memory.delete(key);
            ":1\r\n".into()
        }
        _ => "-ERR only GET, SET and DEL\r\n".into(),
    }
}

/// An array of bulk strings: `*2 $3 GET $1 k`, each part ended by a line break.
async fn read_command(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<String>>> {
    let Some(count) = read_length(stream, '*', WORDS_MAX).await? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(bytes) = read_length(stream, '$', WORD_BYTES_MAX).await? else { return Ok(None) };
        let mut word = vec![0; bytes + 2];
        stream.read_exact(&mut word).await?;
        word.truncate(bytes);
        words.push(String::from_utf8(word).map_err(|_| io::ErrorKind::InvalidData)?);
    }
    if let Some(name) = words.first_mut() {
        name.make_ascii_uppercase();
    }
    Ok(Some(words))
}

/// The number of a line such as `$12`; `None` at the end of the stream.
async fn read_length(
    stream: &mut BufReader<TcpStream>,
    mark: char,
    max: usize,
) -> io::Result<Option<usize>> {
    let mut line = String::new();
    // A length has few digits. An endless line is cut off here.
    if (&mut *stream).take(16).read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let length = line.strip_prefix(mark).and_then(|rest| rest.trim_end().parse().ok());
    match length.filter(|length| *length <= max) {
        Some(length) => Ok(Some(length)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::store::{Address, Store},
        *,
    };

    #[tokio::test]
    async fn redis_client_reads_what_it_wrote() {
        let memory = Memory::default();
        let server = Server::start(memory.clone()).await.unwrap();
        let mut store = Store::open(&Address::Redis(server.url()), &memory).await.unwrap();
        assert_eq!(store.get("n").await.unwrap(), 0);
        store.set("n", 41).await.unwrap();
        assert_eq!(store.get("n").await.unwrap(), 41);
        assert_eq!(memory.get("n").as_deref(), Some("41"));
        store.delete("n").await.unwrap();
        assert_eq!(memory.get("n"), None);
    }

    #[tokio::test]
    async fn invalid_command_ends_only_its_connection() {
        let memory = Memory::default();
        let server = Server::start(memory.clone()).await.unwrap();
        for invalid in ["hello\r\n", "*99999\r\n", "*1\r\n$9999999999\r\n", "*1\r\n$-1\r\n"] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(invalid.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty(), "{invalid:?}");
        }
        Store::open(&Address::Redis(server.url()), &memory)
            .await
            .unwrap()
            .set("n", 1)
            .await
            .unwrap();
    }
}
