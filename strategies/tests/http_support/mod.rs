//! Servers of claims in memory, as nodes of the HTTP strategy, and one that answers by a script.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part, and fails by a panic")]

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
};

use gaggle_strategies::{
    HttpOptions,
    client::Client,
    clock::Clock,
    http::{Backend, Dial, DialFuture},
    lock::Owner,
};
use tokio::{
    io::{DuplexStream, duplex},
    sync::watch,
};

/// The response to the first request of a connection.
pub(crate) const API: &str = r#"{"api":"gaggle-claims"}"#;

/// A server of claims.
pub(crate) trait Server: Clone + Send + Sync + 'static {
    /// The status and the body of the response to a request other than `GET`.
    fn answer(&self, method: &str, body: &str) -> impl Future<Output = (u16, String)> + Send;

    /// Whether the server stands still, as after SIGSTOP: it accepts connections, and replies to
    /// nothing.
    fn is_stopped(&self) -> Option<watch::Receiver<bool>> {
        None
    }
}

/// Connects to these nodes.
pub(crate) struct Nodes<S>(pub(crate) Vec<S>);

impl<S: Server> Dial for Nodes<S> {
    fn nodes(&self) -> usize {
        self.0.len()
    }

    fn dial(&mut self, node: usize) -> DialFuture {
        let (client, stream) = duplex(1 << 16);
        let server = self.0[node].clone();
        tokio::spawn(async move {
            let stopped = async {
                let Some(mut is_stopped) = server.is_stopped() else { return pending().await };
                is_stopped.wait_for(|is_stopped| *is_stopped).await.unwrap();
            };
            // The connection stays open, and nothing reads it.
            let mut connection = Box::pin(serve(&server, stream));
            tokio::select! {
                biased;
                () = stopped => pending().await,
                () = &mut connection => {}
            }
        });
        Box::pin(async move { Ok(Box::new(client) as _) })
    }

    fn address(&self, node: usize) -> String {
        format!("node-{node}:1")
    }
}

async fn serve(server: &impl Server, stream: DuplexStream) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let server = server.clone();
        tokio::spawn(async move {
            let (head, mut stream) = request.into_parts();
            let mut body = String::new();
            while let Some(part) = stream.data().await {
                body.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
            }
            let (status, body) = match head.method.as_str() {
                "GET" => (200, API.into()),
                method => server.answer(method, &body).await,
            };
            let response = http::Response::builder().status(status).header("fencing-token", "5");
            let mut stream = respond.send_response(response.body(()).unwrap(), false).unwrap();
            stream.send_data(body.into(), true).unwrap();
        });
    }
}

/// A handle on these nodes.
pub(crate) fn open<S: Server>(nodes: Vec<S>, clock: Arc<dyn Clock>) -> Client<Backend> {
    let options = HttpOptions::new(["replaced:1"]).clock(clock.clone());
    let backend = Backend::new(options, Some(Box::new(Nodes(nodes))), 7, clock.now()).unwrap();
    let (client, driver) = Client::new(backend, clock, Owner::this_process(None), Some(7));
    tokio::spawn(client.run(driver));
    client
}

/// A server that answers by a script.
#[derive(Clone)]
pub(crate) struct Scripted {
    script: Arc<Mutex<BTreeMap<&'static str, Vec<&'static str>>>>,
    requests: Arc<Mutex<Vec<&'static str>>>,
    is_stopped: watch::Sender<bool>,
}

impl Scripted {
    /// The answers to each kind of request, of which the last one is repeated.
    pub(crate) fn new(answers: &[(&'static str, &'static str)]) -> Self {
        let script = answers.iter().map(|(kind, codes)| (*kind, codes.split(' ').collect()));
        Self {
            script: Arc::new(Mutex::new(script.collect())),
            requests: Arc::default(),
            is_stopped: watch::Sender::default(),
        }
    }

    /// Stops the server, as SIGSTOP does.
    pub(crate) fn stop(&self) {
        self.is_stopped.send_replace(true);
    }

    fn next(&self, kind: &'static str) -> &'static str {
        self.requests.lock().unwrap().push(kind);
        let mut script = self.script.lock().unwrap();
        // The summary shows a request that the row does not expect.
        let Some(codes) = script.get_mut(kind) else {
            return "hang";
        };
        if codes.len() > 1 { codes.remove(0) } else { codes[0] }
    }

    /// The kinds of requests, with a mark for repetitions.
    pub(crate) fn summary(&self) -> String {
        let mut kinds: Vec<String> = Vec::new();
        for kind in &*self.requests.lock().unwrap() {
            match kinds.last_mut() {
                Some(last) if last.trim_end_matches('+') == *kind => *last = format!("{kind}+"),
                _ => kinds.push((*kind).into()),
            }
        }
        kinds.join(" ")
    }
}

impl Server for Scripted {
    async fn answer(&self, method: &str, body: &str) -> (u16, String) {
        let kinds = ["ttl", "released", "withdrawn", "revoked"];
        let kind = match method {
            "POST" => "POST",
            _ => kinds.into_iter().find(|kind| body.contains(kind)).unwrap(),
        };
        let code = self.next(kind);
        let (status, body) = match code {
            "200" | "201" => (
                code.parse().unwrap(),
                r#"{"id":"0.aw","resource":"k","status":"active","ttl":60,"waited":0,"fencing_token":"5"}"#,
            ),
            "202" => (202, r#"{"id":"0.aw","resource":"k","status":"waiting"}"#),
            "204" => (204, ""),
            "bad" => (400, r#"{"code":"invalid-parameters","ttl":"expected less"}"#),
            "400" => (400, r#"{"code":"invalid-status","status":"expired"}"#),
            "revoked" => (
                400,
                r#"{"code":"invalid-status","status":"revoked","revoked_by":"ops: ticket 7"}"#,
            ),
            "503" => (503, r#"{"code":"unavailable","message":"down"}"#),
            _ => return pending().await,
        };
        (status, body.into())
    }

    fn is_stopped(&self) -> Option<watch::Receiver<bool>> {
        Some(self.is_stopped.subscribe())
    }
}
