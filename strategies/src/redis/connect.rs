//! The connection to a server: found, opened, checked, and opened again whenever it breaks.
//!
//! - `connection`: the connection as the backend uses it. `pipeline`: the requests on it.
//! - `server`: the address and login, and how the server is found: directly, by `sentinel`, or in
//!   a `cluster`. `query`: the queries of both.
//! - `dial`: the byte stream, over TCP or a Unix socket, with TLS or without.
//! - `handshake`: checks whether the server can hold locks.

mod cluster;
mod connection;
mod dial;
mod handshake;
mod pipeline;
mod query;
mod sentinel;
mod server;

pub use self::dial::{Dial, DialFuture, ServerStream, Stream};
pub(super) use self::{
    connection::{Connection, NewConnection},
    dial::PLAIN,
    handshake::Handshake,
    server::Server,
};
