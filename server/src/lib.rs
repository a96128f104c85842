//! Claims over HTTP: the locks of any strategy of Gaggle, for programs in any language.
//!
//! A claim is an acquisition: its id has the nonce and the key. So every server of a group serves
//! every active claim, and a server may end without the claims that it made. `docs/http-api.md` of
//! the project has the API.
//!
//! - [`Service`]: the routes over a [`Locker`](gaggle::Locker), for any server of axum.
//! - [`serve`](serve()), [`Listen`]: a server with limits, over TCP, TLS and Unix sockets;
//!   [`serve_stream`]: over any other stream.
//! - [`Access`]: who may use it. [`Options`]: limits.

mod access;
mod claims;
mod id;
mod listen;
mod log;
mod options;
mod owner;
mod problem;
mod readiness;
mod request;
mod serve;
mod service;
mod status;
mod timed_stream;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub use crate::{
    access::Access,
    listen::{Listen, Listener},
    options::Options,
    serve::{serve, serve_stream},
    service::{NoQueue, Service},
};

/// The buckets of all histograms, in seconds.
const BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 60.0];

/// Collects the metrics of this process, for [`Service::metrics`].
///
/// # Errors
///
/// [`BuildError`] if the process has another recorder.
pub fn collect_metrics() -> Result<PrometheusHandle, BuildError> {
    let seconds = Matcher::Suffix("_seconds".into());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &BUCKETS)?.install_recorder()
}
