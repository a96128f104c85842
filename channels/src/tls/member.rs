//! Mutual TLS 1.3 between the members of a cluster, each under the name in its certificate.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, Error, RootCertStore, ServerConfig,
    client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier, verify_server_name},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
    server::{ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::TLS13,
};

use super::{
    authority::{Authority, Validity},
    files::{self, File},
    provider, reason,
};
use crate::{ChannelError, NodeName};

const SECRET: &str = "secret_file";
const SECRET_BYTES_MIN: usize = 32;
/// The longest DNS label.
const LABEL_BYTES_MAX: usize = 63;

/// The credentials that prove the name of a member to its peers.
///
/// ```
/// use gaggle_channels::tls::TlsKeys;
///
/// let of_files = TlsKeys::files("ca.pem", "a.pem", "a-key.pem");
/// let of_a_secret = TlsKeys::secret("secret");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsKeys(Source);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Files { ca: PathBuf, cert: PathBuf, key: PathBuf },
    Secret(PathBuf),
}

impl TlsKeys {
    /// PEM files: the authorities that sign the certificates of all members; the certificate of
    /// this member, for the DNS name `NAME.member.CLUSTER.gaggle`, followed by those of its
    /// intermediate authorities; and its private key. Other users of the machine must not be able
    /// to read the key.
    #[must_use]
    pub fn files(
        ca: impl Into<PathBuf>,
        cert: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        Self(Source::Files { ca: ca.into(), cert: cert.into(), key: key.into() })
    }

    /// A file with a secret of at least 32 bytes, the same at each member. Each derives one private
    /// authority from it and makes its own certificate at start. Other users of the machine must
    /// not be able to read the file.
    #[must_use]
    pub fn secret(path: impl Into<PathBuf>) -> Self {
        Self(Source::Secret(path.into()))
    }
}

/// The keys of one member and the name that they are for.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    keys: TlsKeys,
    cluster: String,
    name: NodeName,
}

/// Both sides of TLS, made of the files as they were read.
pub(crate) struct Sides {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

/// The content of the files of a member.
#[derive(PartialEq, Eq)]
pub(crate) struct Content(Vec<File>);

impl Member {
    /// Refuses a name or a cluster that can be no label of the DNS name in the certificate.
    pub(crate) fn new(
        keys: TlsKeys,
        cluster: String,
        name: NodeName,
    ) -> Result<Self, ChannelError> {
        member_dns_name(name.as_str(), &cluster)?;
        Ok(Self { keys, cluster, name })
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<Content, ChannelError> {
        let files = match &self.keys.0 {
            Source::Files { ca, cert, key } => vec![
                files::read(files::CA, ca)?,
                files::read(files::CERT, cert)?,
                files::read_private(files::KEY, key)?,
            ],
            Source::Secret(path) => vec![files::read_private(SECRET, path)?],
        };
        Ok(Content(files))
    }

    /// Makes both sides of the content. Key, certificate and the name of this member must match.
    pub(crate) fn sides(&self, content: &Content) -> Result<Sides, ChannelError> {
        let own = self.server_name(&self.name).expect("its labels are checked");
        match &content.0[..] {
            [ca, cert, key] => {
                let (roots, chain) = (files::roots(ca)?, files::certificates(cert)?);
                let sides = sides(&roots, chain.clone(), files::key(key)?)
                    .map_err(|error| files::misfit(cert, key, &error))?;
                verify(&roots, &chain, &own).map_err(|error| cert.invalid(&reason::of(&error)))?;
                Ok(sides)
            }
            [secret] => {
                let bytes = secret.bytes.trim_ascii();
                if bytes.len() < SECRET_BYTES_MIN {
                    let problem = format!(
                        "the secret is {} bytes long, the limit is at least {SECRET_BYTES_MIN}: \
                         gaggle secret generates one",
                        bytes.len()
                    );
                    return Err(secret.invalid(&problem));
                }
                let authority = Authority::from_secret(bytes, &self.cluster);
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate()).expect("the certificate is well-formed");
                let (certificate, key) =
                    authority.issue(&own.to_str(), Validity::ALWAYS).into_pair();
                sides(&Arc::new(roots), vec![certificate], key)
                    .map_err(|error| secret.invalid(&error.to_string()))
            }
            _ => unreachable!("one file or three are read"),
        }
    }

    /// The name that the certificate of a peer is for; `None` if it can be in no certificate.
    pub(crate) fn server_name(&self, peer: &NodeName) -> Option<ServerName<'static>> {
        ServerName::try_from(member_dns_name(peer.as_str(), &self.cluster).ok()?).ok()
    }

    /// Checks that a verified certificate is for this peer.
    pub(crate) fn check_name(
        &self,
        certificate: &CertificateDer<'_>,
        peer: &NodeName,
    ) -> Result<(), String> {
        let Some(name) = self.server_name(peer) else {
            return Err(format!("{peer} can be in no certificate"));
        };
        ParsedCertificate::try_from(certificate)
            .and_then(|certificate| verify_server_name(&certificate, &name))
            .map_err(|error| reason::of(&error))
    }
}

/// The DNS name in the certificate of a member.
///
/// # Errors
///
/// [`ChannelError::InvalidOptions`] of the field `cluster` or `name` that is not a DNS label.
pub fn member_dns_name(name: &str, cluster: &str) -> Result<String, ChannelError> {
    check_label("cluster", cluster)?;
    check_label("name", name)?;
    Ok(format!("{name}.member.{cluster}.gaggle"))
}

/// Names differ by case, and DNS names do not.
pub(crate) fn check_label(field: &'static str, label: &str) -> Result<(), ChannelError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let valid = label.len() <= LABEL_BYTES_MAX
        && label.bytes().all(|byte| inner(byte) || byte == b'-')
        && label.bytes().next().is_some_and(inner)
        && label.bytes().last().is_some_and(inner);
    if valid {
        return Ok(());
    }
    let problem = format!(
        "under TLS it is a part of a DNS name: 1 to {LABEL_BYTES_MAX} of a to z, 0 to 9 and inner -"
    );
    Err(files::invalid(field, problem))
}

fn sides(
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Sides, Error> {
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(client_verifier(roots))
        .with_single_cert(chain.clone(), key.clone_key())?;
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)?;
    // Every connection proves its name: a session that goes on would outlive a certificate.
    // Without a ticket no client can resume one.
    server.send_tls13_tickets = 0;
    client.resumption = Resumption::disabled();
    Ok(Sides { server: Arc::new(server), client: Arc::new(client) })
}

fn client_verifier(roots: &Arc<RootCertStore>) -> Arc<dyn ClientCertVerifier> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider());
    verifier.build().expect("there are roots")
}

/// Verifies a certificate as peers will, both as clients and as servers of this member.
fn verify(
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'_>],
    name: &ServerName<'_>,
) -> Result<(), Error> {
    let (certificate, issuers, now) = (&chain[0], &chain[1..], UnixTime::now());
    WebPkiServerVerifier::builder_with_provider(roots.clone(), provider())
        .build()
        .expect("there are roots")
        .verify_server_cert(certificate, issuers, name, &[], now)?;
    client_verifier(roots).verify_client_cert(certificate, issuers, now)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use gaggle_fixtures::Certificates;
    use rustls::{ClientConnection, HandshakeKind, ServerConnection};

    use super::*;

    /// Shakes hands twice. Returns the kind of the second handshake, and how many tickets the
    /// client has received in the first.
    fn second_handshake(
        client: &Arc<ClientConfig>,
        server: &Arc<ServerConfig>,
    ) -> (HandshakeKind, u32) {
        let name = ServerName::try_from("a.member.c.gaggle").unwrap();
        let shaken = || {
            let mut client = ClientConnection::new(client.clone(), name.clone()).unwrap();
            let mut server = ServerConnection::new(server.clone()).unwrap();
            loop {
                let (mut there, mut back) = (Vec::new(), Vec::new());
                client.write_tls(&mut there).unwrap();
                server.read_tls(&mut &*there).unwrap();
                server.process_new_packets().unwrap();
                server.write_tls(&mut back).unwrap();
                client.read_tls(&mut &*back).unwrap();
                client.process_new_packets().unwrap();
                if there.is_empty() && back.is_empty() {
                    return (client.handshake_kind().unwrap(), client.tls13_tickets_received());
                }
            }
        };
        let (_, tickets) = shaken();
        (shaken().0, tickets)
    }

    /// Each connection proves its name, also to a peer that would resume a session.
    #[test]
    fn session_is_never_resumed() {
        let certificates = Certificates::new();
        certificates.issue_members("c", &["a"]);
        let name = NodeName::new("a").unwrap();
        let [ca, cert, key] = ["ca.pem", "a.pem", "a-key.pem"].map(|it| certificates.path(it));
        let keys = TlsKeys::files(ca, cert, key);
        let member = Member::new(keys, "c".into(), name).unwrap();
        let Sides { server, client } = member.sides(&member.read().unwrap()).unwrap();
        // Each with no session from another server.
        let resuming = || {
            let mut resuming = ClientConfig::clone(&client);
            resuming.resumption = Resumption::in_memory_sessions(8);
            Arc::new(resuming)
        };
        let mut issuing = ServerConfig::clone(&server);
        issuing.send_tls13_tickets = 2;
        let issuing = Arc::new(issuing);
        assert_eq!(
            second_handshake(&resuming(), &issuing),
            (HandshakeKind::Resumed, 2),
            "it could"
        );
        assert_eq!(second_handshake(&resuming(), &server), (HandshakeKind::Full, 0));
        assert_eq!(second_handshake(&client, &issuing), (HandshakeKind::Full, 2));
    }
}
