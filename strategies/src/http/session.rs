//! The requests on one HTTP/2 connection, and their responses.
//!
//! Nothing here needs a task: whoever polls the session moves its bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use h2::{
    Ping, PingPong, RecvStream,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri};

use super::{
    dial::Stream,
    wire::{Message, Request},
};
use crate::client::Fate;

/// The longest body of a response.
const BODY_BYTES_MAX: usize = 8 << 20;
/// The longest head of a response.
const HEAD_BYTES_MAX: u32 = 16 << 10;
/// How many bytes of responses may be under way.
const WINDOW: u32 = 1 << 20;

/// A whole response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

type Ended = (u64, Result<Response, h2::Error>);

/// Requests on one connection.
pub(super) struct Session {
    connection: Connection<Box<dyn Stream>, Bytes>,
    sender: SendRequest<Bytes>,
    pings: PingPong,
    base: Base,
    unsent: VecDeque<(Request, http::Request<()>, Bytes)>,
    /// The requests without a response, by their numbers.
    in_flight: BTreeMap<u64, Request>,
    responses: FuturesUnordered<BoxFuture<'static, Ended>>,
    sent: u64,
    replies: Vec<(Request, Response)>,
    has_pong: bool,
    /// Why the connection is unusable, if it is.
    end: Option<String>,
}

/// What all requests of a connection share.
pub(super) struct Base {
    scheme: uri::Scheme,
    authority: uri::Authority,
    authorization: Option<HeaderValue>,
}

impl Base {
    /// `token` is visible ASCII.
    pub(super) fn new(is_tls: bool, address: &str, token: Option<&str>) -> Self {
        let scheme = if is_tls { uri::Scheme::HTTPS } else { uri::Scheme::HTTP };
        // The address of a Unix socket is a path.
        let localhost = || uri::Authority::from_static("localhost");
        let authority = address.parse().unwrap_or_else(|_| localhost());
        let authorization = token.map(|token| {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value.expect("a token is visible ASCII");
            // No table of the compression keeps it.
            value.set_sensitive(true);
            value
        });
        Self { scheme, authority, authorization }
    }

    /// The head of a request, and its body.
    fn complete(&self, message: Message) -> (http::Request<()>, Bytes) {
        let (mut head, body) = message.into_parts();
        let mut target = head.uri.into_parts();
        target.scheme = Some(self.scheme.clone());
        target.authority = Some(self.authority.clone());
        head.uri = Uri::from_parts(target).expect("a message has a path");
        if let Some(authorization) = &self.authorization {
            head.headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        (http::Request::from_parts(head, ()), body)
    }
}

impl Session {
    /// Begins to speak HTTP/2, and sends a first request, whose response is returned.
    pub(super) async fn open(
        stream: Box<dyn Stream>,
        base: Base,
        first: Message,
    ) -> Result<(Self, Response), h2::Error> {
        let mut builder = Builder::new();
        builder.enable_push(false).max_header_list_size(HEAD_BYTES_MAX);
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (mut sender, mut connection) = builder.handshake::<_, Bytes>(stream).await?;
        let pings = connection.ping_pong().expect("it is taken once");
        let (response, _) = sender.send_request(base.complete(first).0, true)?;
        let mut response = pin!(whole(response));
        let first = poll_fn(|context| {
            let ended = Pin::new(&mut connection).poll(context);
            match response.as_mut().poll(context) {
                Poll::Pending if ended.is_ready() => {
                    Poll::Ready(Err(h2::Error::from(h2::Reason::PROTOCOL_ERROR)))
                }
                polled => polled,
            }
        });
        let first = first.await?;
        let session = Self {
            connection,
            sender,
            pings,
            base,
            unsent: VecDeque::new(),
            in_flight: BTreeMap::new(),
            responses: FuturesUnordered::new(),
            sent: 0,
            replies: Vec::new(),
            has_pong: false,
            end: None,
        };
        Ok((session, first))
    }

    /// Takes a request, which leaves when this is polled next.
    pub(super) fn send(&mut self, request: Request, message: Message) {
        let (head, body) = self.base.complete(message);
        self.unsent.push_back((request, head, body));
    }

    /// Asks for a sign of life.
    pub(super) fn ping(&mut self) {
        // Refused only while another ping is open.
        let _ = self.pings.send_ping(Ping::opaque());
    }

    /// Sends, receives, and takes responses. Returns whether there is something to take.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if self.end.is_none()
            && let Err(error) = self.advance(context)
        {
            self.end = Some(reason(&error));
        }
        self.end.is_some() || self.has_pong || !self.replies.is_empty()
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Result<(), h2::Error> {
        loop {
            self.hand_in(context)?;
            let polled = Pin::new(&mut self.connection).poll(context)?;
            self.has_pong |= self.pings.poll_pong(context)?.is_ready();
            let before = self.replies.len();
            while let Poll::Ready(Some((number, ended))) = self.responses.poll_next_unpin(context) {
                let request = self.in_flight.remove(&number).expect("it has no response yet");
                match ended {
                    Ok(response) => self.replies.push((request, response)),
                    Err(error) => {
                        self.in_flight.insert(number, request);
                        return Err(error);
                    }
                }
            }
            if polled.is_ready() {
                self.end = Some("closed by the server".into());
                return Ok(());
            }
            // A response makes place for a request that waits.
            if self.replies.len() == before || self.unsent.is_empty() {
                return Ok(());
            }
        }
    }

    fn hand_in(&mut self, context: &mut Context<'_>) -> Result<(), h2::Error> {
        while !self.unsent.is_empty() && self.sender.poll_ready(context)?.is_ready() {
            let (request, head, body) = self.unsent.pop_front().expect("there is a first");
            let number = self.sent;
            self.sent += 1;
            self.in_flight.insert(number, request);
            let (response, mut stream) = self.sender.send_request(head, body.is_empty())?;
            if !body.is_empty() {
                stream.send_data(body, true)?;
            }
            self.responses.push(Box::pin(async move { (number, whole(response).await) }));
        }
        Ok(())
    }

    /// Takes the responses, and whether there was one, or another sign of life.
    pub(super) fn received(&mut self) -> (Vec<(Request, Response)>, bool) {
        let replies = std::mem::take(&mut self.replies);
        let is_alive = std::mem::take(&mut self.has_pong) || !replies.is_empty();
        (replies, is_alive)
    }

    /// Takes the requests without a response.
    pub(super) fn take_pending(&mut self) -> Vec<(Request, Fate)> {
        let sent = std::mem::take(&mut self.in_flight).into_values();
        let unsent = std::mem::take(&mut self.unsent).into_iter();
        let unsent = unsent.map(|(request, ..)| (request, Fate::Unsent));
        sent.map(|request| (request, Fate::NoReply)).chain(unsent).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.unsent.is_empty() && self.in_flight.is_empty()
    }

    /// Why the connection is unusable, if it is.
    pub(super) fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }
}

async fn whole(response: ResponseFuture) -> Result<Response, h2::Error> {
    let (head, stream) = response.await?.into_parts();
    let body = body(stream).await?;
    Ok(Response { status: head.status, headers: head.headers, body })
}

async fn body(mut stream: RecvStream) -> Result<Bytes, h2::Error> {
    let mut body = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part?;
        if body.len() + part.len() > BODY_BYTES_MAX {
            return Err(h2::Reason::ENHANCE_YOUR_CALM.into());
        }
        stream.flow_control().release_capacity(part.len())?;
        if body.is_empty() && stream.is_end_stream() {
            return Ok(part);
        }
        body.extend_from_slice(&part);
    }
    Ok(body.into())
}

/// Why a connection ended, without any text of the server.
pub(super) fn reason(error: &h2::Error) -> String {
    match error.get_io() {
        Some(error) => error.to_string(),
        None => error.reason().map_or_else(|| "closed".into(), |it| it.description().to_owned()),
    }
}
