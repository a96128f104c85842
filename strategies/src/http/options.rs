//! The options of a handle on a `gaggle serve`.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use gaggle_channels::internal::private_file;
#[cfg(feature = "tls")]
use gaggle_channels::tls::TlsFiles;

use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    client::{Cause, Profile},
    clock::{BootClock, Clock},
    deadline::Drift,
    defaults,
    error::{Error, UnavailableKind},
    limits::DURATION_MAX,
    options::check_span,
};

/// The longest time between two checks of a waiter without an open request.
const CHECK_MAX: Duration = Duration::from_secs(1);
/// How many requests of a handle may be pending, some kilobytes each.
const REQUESTS_MAX: usize = 1 << 20;
const TOKEN_BYTES_MAX: usize = 4_096;

/// How to use a `gaggle serve` as a lock service.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use gaggle_strategies::HttpOptions;
///
/// let options = HttpOptions::new(["10.0.0.1:7080", "10.0.0.2:7080", "10.0.0.3:7080"])
///     .token_file("/etc/gaggle/token")
///     .request_timeout(Duration::from_millis(500));
/// ```
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub(super) nodes: Vec<Node>,
    pub(super) token: Token,
    pub(super) request_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsFiles>,
    #[cfg(feature = "tls")]
    pub(super) tls_name: Option<String>,
}

/// A place where a server listens.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// `host:port`.
    Tcp(String),
    Unix(PathBuf),
}

/// The token of the requests.
#[derive(Clone, Default)]
pub(super) enum Token {
    #[default]
    None,
    Text(String),
    File(PathBuf),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Token {
    /// The token. A file is read for each connection, so that a new token needs no restart.
    pub(super) fn read(&self) -> Result<Option<String>, Cause> {
        let path = match self {
            Self::None => return Ok(None),
            Self::Text(text) => return Ok(Some(text.clone())),
            Self::File(path) => path,
        };
        let text = private_file::check(path);
        let text = text.and_then(|()| private_file::read(path, TOKEN_BYTES_MAX as u64));
        let token = text.and_then(|text| match text.trim() {
            token if is_token(token) => Ok(Some(token.into())),
            _ => Err("expected one token, and nothing else".into()),
        });
        token.map_err(|problem| {
            let text = format!("token_file {}: {problem}", path.display());
            Cause::new(UnavailableKind::Misconfigured, text)
        })
    }
}

/// Visible ASCII, as a header has it.
fn is_token(text: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_graphic())
}

impl HttpOptions {
    /// The defaults for a service at these addresses, `host:port`, of which each serves the same
    /// locks. The handle uses the next one when its connection breaks.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::at(nodes.into_iter().map(|node| Node::Tcp(node.into())).collect())
    }

    /// The defaults for the server on this Unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(vec![Node::Unix(path.into())])
    }

    fn at(nodes: Vec<Node>) -> Self {
        Self {
            nodes,
            token: Token::None,
            request_timeout: defaults::REQUEST_TIMEOUT,
            connect_timeout: defaults::CONNECT_TIMEOUT,
            clock: Arc::new(BootClock),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            tls_name: None,
        }
    }

    /// Sets the token, none by default. No error and no log shows it.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Token::Text(token.into());
        self
    }

    /// Sets a file that has the token, and that other users of the machine cannot read. It is read
    /// for each connection.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = Token::File(path.into());
        self
    }

    /// Uses TLS with these files: the authorities that sign the server's certificate, and a client
    /// certificate. The defaults are the authorities of the system and no certificate.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Sets the name in the server's certificate: by default the host. It has no effect before
    /// [`tls`](Self::tls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_name(mut self, name: impl Into<String>) -> Self {
        self.tls_name = Some(name.into());
        self
    }

    /// Sets the time within which `unlock`, `extend`, `inspect` and a `lock` with a `max_wait` of
    /// zero end: 1 ms to 1 h, 1 s by default. The handle leaves a node that is silent for this long
    /// while a request is open. If there are other nodes, it does so after half of the time, so that
    /// the next one gets the request in time.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets how long one attempt to connect may take, with TLS and checks: 1 ms to 1 h, 5 s by
    /// default. The first one after a connection was lost may take a fifth of it, and each further
    /// attempt twice as long as its predecessor.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets where local time is read, [`BootClock`] by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Checks everything that needs no I/O.
    pub(super) fn check(&self) -> Result<(), Error> {
        let (ms, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        check_span("request_timeout", self.request_timeout, ms, hour)?;
        check_span("connect_timeout", self.connect_timeout, ms, hour)?;
        let invalid = |field, value: &str, limit: &str| {
            Err(Error::InvalidOptions { field, value: value.into(), limit: limit.into() })
        };
        for node in &self.nodes {
            if let Node::Tcp(address) = node
                && host_and_port(address).is_none()
            {
                return invalid("nodes", &format!("{address:?}"), "host:port");
            }
        }
        match &self.token {
            _ if self.nodes.is_empty() => invalid("nodes", "none", "one at least"),
            Token::Text(token) if !is_token(token) => {
                invalid("token", "another text", "1 to 4096 visible ASCII characters")
            }
            _ => Ok(()),
        }
    }

    /// The properties that the client core needs.
    pub(super) fn profile(&self) -> Profile {
        Profile {
            capabilities: Capabilities {
                // What is behind the server is not known here.
                exclusion: Exclusion::WhileServerKeepsMemory,
                order: Order::Fifo,
                survives: Survives::AnyClient,
                distributed: true,
                ..Capabilities::none("http")
            },
            queues: true,
            retry: (CHECK_MAX, CHECK_MAX),
            // A connection loses nothing without breaking.
            resend: None,
            check_every: Some(CHECK_MAX),
            lease_max: DURATION_MAX,
            request_timeout: self.request_timeout,
            requests_max: REQUESTS_MAX,
            drift: Drift::default(),
            busy_poll: defaults::BUSY_POLL,
        }
    }
}

/// The host, without the brackets of an IPv6 address, and the port.
pub(super) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = !bare.is_empty() && (bare.len() < host.len() || !host.contains(':'));
    is_host.then_some((bare, port.parse().ok()?))
}
