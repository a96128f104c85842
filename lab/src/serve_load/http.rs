//! A connection to a server over HTTP/1.1.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

/// A connection with a token, which is kept for many requests.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    token: &'static str,
}

impl Connection {
    pub(super) async fn open(address: &str, token: &'static str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), token })
    }

    /// The status and the body of the response.
    pub(super) async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        wait: u32,
    ) -> Result<(u16, Value)> {
        let (body, token) = (body.to_string(), self.token);
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
             Prefer: wait={wait}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line).await? > 0, "the connection has ended");
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).context("a status")?.parse()?;
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    pub(super) async fn claim(&mut self, key: &str, ttl: u32, wait: u32) -> Result<(u16, Value)> {
        let body = json!({ "resource": key, "ttl": ttl });
        self.request("POST", "/v1/claims/", &body, wait).await
    }

    /// Locks a free key, and unlocks it.
    pub(super) async fn pair(&mut self, key: &str) -> Result<()> {
        let (status, claim) = self.claim(key, 10, 5).await?;
        ensure!(status == 201, "{status} {claim}");
        let path = path(&claim)?;
        let (status, body) =
            self.request("PATCH", &path, &json!({ "status": "released" }), 0).await?;
        ensure!(status == 204, "{status} {body}");
        Ok(())
    }

    /// Waits for a held key until it is granted.
    pub(super) async fn wait(&mut self, key: &str) -> Result<()> {
        let (mut status, claim) = self.claim(key, 60, 60).await?;
        ensure!(matches!(status, 201 | 202), "{status} {claim}");
        let path = path(&claim)?;
        while !matches!(status, 200 | 201) {
            let (answer, body) =
                self.request("PATCH", &path, &json!({ "status": "active" }), 60).await?;
            ensure!(matches!(answer, 200 | 409), "{answer} {body}");
            status = answer;
        }
        Ok(())
    }
}

fn path(claim: &Value) -> Result<String> {
    Ok(format!("/v1/claims/{}/", claim["id"].as_str().context("an id")?))
}
