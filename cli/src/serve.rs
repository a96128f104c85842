//! `gaggle serve`: claims over HTTP, over any strategy whose waiters queue.

use std::{
    future::pending,
    io,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaggle::Url;
use gaggle_server::{Access, Listen, Listener, Options, Service, collect_metrics, serve};
use gaggle_strategies::{defaults::SERVED_TTL, limits::DURATION_MAX};
use humantime::format_duration;
use rustix::process::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::interval,
};

use crate::{
    duration,
    failure::Failure,
    output::{notice, say},
    run::in_file,
    server_url::HTTP,
    verbosity::Verbosity,
};

/// The shortest `--max-ttl`.
const MAX_TTL_MIN: Duration = Duration::from_millis(100);
/// The open files that suffice for all connections of the server.
const FILES_MAX: u64 = 16_384;
/// How often the metrics of the last requests are aggregated.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The options of `gaggle serve`. Without `Debug`, which would show a password.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to serve, as redis://… or gaggle+tcp://… [default: local:, a table in this process].
    #[arg(long, value_name = "URL", conflicts_with = "url_file")]
    url: Option<String>,
    /// A file that contains the URL: a password in an argument is visible to other users.
    #[arg(long, value_name = "PATH")]
    url_file: Option<PathBuf>,
    /// Listen on this address and port, or on a Unix socket as unix:PATH; may be repeated.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7080")]
    listen: Vec<Listen>,
    /// Refuse a longer ttl. A group must have the same limit at each node, and grants nothing for
    /// as long once it has formed [default: 24h, and 10s over a group].
    #[arg(long, value_name = "DURATION")]
    #[arg(value_parser = duration::between(MAX_TTL_MIN, DURATION_MAX))]
    max_ttl: Option<Duration>,
    /// Serve only requests with a token of this file. Each line is NAME ROLE TOKEN, with the role
    /// client or operator.
    #[arg(long, value_name = "PATH", conflicts_with = "anonymous")]
    tokens: Option<PathBuf>,
    /// Serve clients without a token, also beyond this machine.
    #[arg(long)]
    anonymous: bool,
    /// The PEM file of the server's certificate, for TLS.
    #[arg(long, value_name = "PATH", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The PEM file of its private key.
    #[arg(long, value_name = "PATH", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine in plain text.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

/// `gaggle serve`.
pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    args.verbosity.start(io::stderr)?;
    check_exposure(&args)?;
    raise_file_limit();
    let url = url(&args)?;
    check_served(&url)?;
    let (url, max_ttl) = longest(url, args.max_ttl)?;
    let access = match &args.tokens {
        Some(path) => {
            Access::tokens(path).map_err(|problem| Failure::new(format!("--tokens {problem}")))?
        }
        None => Access::anonymous(),
    };
    // Before a member joins its group, as of a process that serves already.
    let (listeners, certificates) = bind(&args).await?;
    let locker = url.open().await.map_err(|error| Failure::of(&error))?;
    let service = Service::new(locker, access, Options::default().max_ttl(max_ttl));
    let service = service.map_err(|error| Failure::of(&error))?;
    let metrics = collect_metrics().map_err(|error| Failure::of(&error))?;
    let service = service.metrics(metrics.clone());
    for listener in &listeners {
        say(format!("{} is served at {}", url.strategy(), listener.url()))?;
    }
    let mut terminate = handler(SignalKind::terminate())?;
    let mut interrupt = handler(SignalKind::interrupt())?;
    let hang_up = handler(SignalKind::hangup())?;
    tokio::spawn(async move {
        let mut due = interval(UPKEEP_EVERY);
        loop {
            due.tick().await;
            metrics.run_upkeep();
        }
    });
    tokio::spawn(reload(hang_up, service.clone(), certificates));
    tokio::spawn(watchdog());
    tokio::spawn(report_ready(service.clone()));
    let failure = Arc::new(OnceLock::new());
    let (failed, served) = (failure.clone(), service.clone());
    let stop = async move {
        let code = tokio::select! {
            _ = terminate.recv() => 15,
            _ = interrupt.recv() => 2,
            error = served.failure() => {
                let _ = failed.set(error);
                15
            }
        };
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        // A second signal ends the process at once.
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(128 + code);
        });
    };
    serve(service, listeners, stop).await;
    failure.get().map_or(Ok(ExitCode::SUCCESS), |error| Err(Failure::of(error)))
}

/// Notifies systemd once claims are granted.
async fn report_ready(service: Service) {
    service.ready().await;
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// Allows as many connections as the server admits. A service begins with 1,024 files at most.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES_MAX, |maximum| maximum.min(FILES_MAX));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, wanted, "the limit of open files stays");
        }
    }
}

fn handler(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::new("cannot handle signals").because(&error))
}

/// Refuses to serve other machines in plain text or without tokens, unless an option allows it.
fn check_exposure(args: &Args) -> Result<(), Failure> {
    let Some(listen) = args.listen.iter().find(|listen| !listen.is_local()) else { return Ok(()) };
    if args.tls_cert.is_none() && !args.insecure {
        return Err(Failure::new(format!(
            "--listen {listen} is beyond this machine, where tokens and claims would travel in \
             plain text: give --tls-cert and --tls-key, or --insecure"
        )));
    }
    if args.tokens.is_none() && !args.anonymous {
        return Err(Failure::new(format!(
            "--listen {listen} is beyond this machine, where every client could end any claim: give \
             --tokens, or --anonymous"
        )));
    }
    Ok(())
}

/// The URL to serve. No message shows its password.
fn url(args: &Args) -> Result<Url, Failure> {
    let parse = |text: &str| Url::parse(text).map_err(|error| Failure::of(&error));
    if let Some(path) = &args.url_file {
        return in_file(path, parse, |url| url);
    }
    let url = parse(args.url.as_deref().unwrap_or("local:").trim())?;
    if url.has_password() {
        notice(
            "--url contains a password, which every user of this machine can see: give --url-file",
        );
    }
    Ok(url)
}

/// A server of claims draws the nonces itself, so another one in front of it cannot give them.
fn check_served(url: &Url) -> Result<(), Failure> {
    match url.strategy() {
        HTTP => Err(Failure::new(
            "--url is of a `gaggle serve`, which clients use directly: give the URL of a Redis or of \
             a member, or omit --url for the programs of this machine",
        )),
        _ => Ok(()),
    }
}

/// The URL, and the longest ttl. Leases of clients are held outside the members of a group, which
/// keeps nothing on disk: once it has formed, it waits for the end of those of a former group.
fn longest(url: Url, max_ttl: Option<Duration>) -> Result<(Url, Duration), Failure> {
    if !matches!(url.strategy(), "gaggle" | "raft") {
        return Ok((url, max_ttl.unwrap_or(DURATION_MAX)));
    }
    let admitted = url.outside_max().or(max_ttl).unwrap_or(SERVED_TTL);
    let max_ttl = max_ttl.unwrap_or(admitted);
    if max_ttl > admitted {
        let [max_ttl, admitted] = [max_ttl, admitted].map(format_duration);
        return Err(Failure::new(format!(
            "--max-ttl {max_ttl} is longer than the outside_max of the URL, {admitted}: a new group \
             must wait for the end of every claim of the former one"
        )));
    }
    Ok((url.with_outside_max(admitted), max_ttl))
}

#[cfg(feature = "tls")]
type Certificates = Option<Arc<gaggle::channels::tls::TlsServer>>;
#[cfg(not(feature = "tls"))]
type Certificates = Option<std::convert::Infallible>;

async fn bind(args: &Args) -> Result<(Vec<Listener>, Certificates), Failure> {
    let certificates = certificates(args)?;
    let mut listeners = Vec::new();
    for listen in &args.listen {
        let bound = match &certificates {
            #[cfg(feature = "tls")]
            Some(tls) => listen.bind_tls(tls.clone()).await,
            #[cfg(not(feature = "tls"))]
            Some(never) => match *never {},
            None => listen.bind().await,
        };
        listeners.push(bound.map_err(|error| Failure::of(&error))?);
    }
    Ok((listeners, certificates))
}

#[cfg(feature = "tls")]
fn certificates(args: &Args) -> Result<Certificates, Failure> {
    let files = args.tls_cert.as_ref().zip(args.tls_key.as_ref());
    let server = files.map(|(cert, key)| gaggle::channels::tls::TlsServer::new(cert, key));
    let server = server.transpose().map_err(|error| Failure::of(&error))?;
    Ok(server.map(Arc::new))
}

#[cfg(not(feature = "tls"))]
fn certificates(args: &Args) -> Result<Certificates, Failure> {
    match args.tls_cert {
        Some(_) => Err(Failure::new(crate::failure::BUILT_WITHOUT_TLS)),
        None => Ok(None),
    }
}

/// Reads tokens and certificates again at each SIGHUP. Wrong ones change nothing.
async fn reload(mut hang_up: Signal, service: Service, certificates: Certificates) {
    while hang_up.recv().await.is_some() {
        match service.reload() {
            Ok(()) => tracing::info!("tokens read again"),
            Err(error) => tracing::error!(error, "tokens not read, the former ones stay"),
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &certificates {
            match tls.reload() {
                Ok(()) => tracing::info!("certificate read again"),
                Err(error) => tracing::error!(%error, "certificate not read, the former one stays"),
            }
        }
        let _ = &certificates;
    }
}

/// Notifies the watchdog of systemd while the runtime runs tasks.
async fn watchdog() {
    match sd_notify::watchdog_enabled() {
        Some(period) => {
            let mut due = interval((period / 3).max(Duration::from_millis(10)));
            loop {
                due.tick().await;
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            }
        }
        None => pending().await,
    }
}
