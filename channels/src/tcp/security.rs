//! Whether connections are plain or under TLS, with the keys in force.

use tokio::net::TcpStream;
use tokio_util::either::Either;

use super::stream::Stream;
use crate::NodeName;
#[cfg(feature = "tls")]
use tls::Keys;
#[cfg(feature = "tls")]
pub(super) use tls::reload;

/// How the connections of a node are secured.
pub(super) enum Security {
    Plain,
    #[cfg(feature = "tls")]
    Tls(Keys),
}

impl Security {
    /// Shakes hands as the dialling side; the other side must be `peer`.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_async, reason = "TLS waits"))]
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        #[cfg_attr(not(feature = "tls"), expect(unused_variables))] peer: &NodeName,
    ) -> Result<Stream, String> {
        match self {
            Self::Plain => Ok(Either::Left(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(keys) => keys.connect(stream, peer).await,
        }
    }

    /// Shakes hands as the accepting side.
    pub(super) async fn accept(&self, stream: TcpStream) -> Result<Stream, String> {
        match self {
            Self::Plain => Ok(Either::Left(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(keys) => keys.accept(stream).await,
        }
    }

    /// Checks that the certificate of the other side is for one of these peers.
    pub(super) fn check_any(&self, stream: &Stream, peers: &[NodeName]) -> Result<(), String> {
        match (self, stream) {
            #[cfg(feature = "tls")]
            (Self::Tls(keys), Either::Right(stream)) => keys.check_any(stream, peers),
            _ => {
                let _ = peers;
                Ok(())
            }
        }
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::{
        sync::{Arc, Mutex, MutexGuard, PoisonError},
        time::Duration,
    };

    use tokio::{net::TcpStream, time::sleep};
    use tokio_rustls::{TlsAcceptor, TlsConnector};
    use tokio_util::either::Either;

    use super::Security;
    use crate::{
        ChannelError, NodeName,
        tcp::{
            Shared,
            connection::explained,
            stream::{Stream, TlsStream, counted},
        },
        tls::member::{Content, Member, Sides},
    };

    /// How often the files of keys are read.
    const RELOAD_EVERY: Duration = Duration::from_secs(10);
    /// How much a stranger may send.
    const STRANGER_BYTES_MAX: u64 = 64 << 10;

    /// The keys of this node.
    pub(in crate::tcp) struct Keys {
        member: Member,
        current: Mutex<Current>,
    }

    struct Current {
        content: Content,
        sides: Arc<Sides>,
    }

    impl Security {
        pub(in crate::tcp) fn tls(member: Member) -> Result<Self, ChannelError> {
            let content = member.read()?;
            let sides = Arc::new(member.sides(&content)?);
            Ok(Self::Tls(Keys { member, current: Mutex::new(Current { content, sides }) }))
        }
    }

    impl Keys {
        fn lock(&self) -> MutexGuard<'_, Current> {
            self.current.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(super) async fn connect(
            &self,
            stream: TcpStream,
            peer: &NodeName,
        ) -> Result<Stream, String> {
            let name = self.member.server_name(peer).ok_or("its name can be in no certificate")?;
            let connector = TlsConnector::from(self.lock().sides.client.clone());
            let stream = connector.connect(name, counted(stream, STRANGER_BYTES_MAX)).await;
            let stream = stream.map_err(|error| explained(&error))?;
            Ok(Either::Right(Box::new(stream.into())))
        }

        pub(super) async fn accept(&self, stream: TcpStream) -> Result<Stream, String> {
            let acceptor = TlsAcceptor::from(self.lock().sides.server.clone());
            let stream = acceptor.accept(counted(stream, STRANGER_BYTES_MAX)).await;
            let stream = stream.map_err(|error| explained(&error))?;
            Ok(Either::Right(Box::new(stream.into())))
        }

        pub(super) fn check_any(
            &self,
            stream: &TlsStream,
            peers: &[NodeName],
        ) -> Result<(), String> {
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let Some(certificate) = certificates.first() else {
                return Err("the other side has no certificate".into());
            };
            let mut refusal = Err("this node dials all its peers, and none dials it".into());
            for peer in peers {
                refusal = self.member.check_name(certificate, peer);
                if refusal.is_ok() {
                    break;
                }
            }
            refusal
        }

        /// Reads the files, and uses them if they have changed and fit. Returns whether they have.
        fn reload(&self) -> Result<bool, ChannelError> {
            let content = self.member.read()?;
            if content == self.lock().content {
                return Ok(false);
            }
            let sides = Arc::new(self.member.sides(&content)?);
            *self.lock() = Current { content, sides };
            Ok(true)
        }
    }

    /// Reads the files of keys again and again. Connections that are up keep theirs.
    pub(in crate::tcp) async fn reload(shared: Arc<Shared>) {
        let mut reported = String::new();
        loop {
            sleep(RELOAD_EVERY).await;
            let reading = shared.clone();
            let reloaded = tokio::task::spawn_blocking(move || match &reading.security {
                Security::Tls(keys) => keys.reload(),
                Security::Plain => Ok(false),
            });
            let name = &shared.name;
            match reloaded.await {
                Ok(Ok(true)) => tracing::info!(%name, "new TLS keys for new connections"),
                Ok(Ok(false)) | Err(_) => {}
                Ok(Err(error)) if error.to_string() == reported => continue,
                Ok(Err(error)) => {
                    tracing::error!(%name, %error, "new TLS keys do not fit; the old ones stay");
                    reported = error.to_string();
                    continue;
                }
            }
            reported.clear();
        }
    }
}
