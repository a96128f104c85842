//! The connection to a server: found, opened, checked, and opened again whenever it breaks.
//!
//! - `connection`: the connection as the backend uses it. `pipeline`: the requests on it.
//! - `candidates`: how the options find the server: directly, by `sentinel`, or in a `cluster`.
//!   `query`: the queries of both. `server`: the address and login.
//! - `dial`: the byte stream, over TCP or a Unix socket, with TLS or without.
//! - `handshake`: checks whether the server can hold locks.

mod candidates;
mod cluster;
mod connection;
mod dial;
mod handshake;
mod pipeline;
mod query;
mod sentinel;
mod server;

pub use self::dial::{Dial, Dialed, Dialing, Stream};
#[cfg(feature = "tls")]
pub(super) use self::server::Tls;
pub(super) use self::{
    candidates::dial as dial_of,
    connection::{Connection, NewConnection},
    dial::PLAIN,
    handshake::Handshake,
    sentinel::Sentinels,
    server::{Place, Server},
};
