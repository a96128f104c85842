//! PEM files: read, checked, and refused with the option, the file and the remedy.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    CertificateError, Error, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem, pem::PemObject},
};

use super::{
    provider,
    reason::{self, KEYS},
};
use crate::{ChannelError, internal::private_file};

pub(super) const CA: &str = "tls_ca";
pub(super) const CERT: &str = "tls_cert";
pub(super) const KEY: &str = "tls_key";

/// More than any bundle of authorities.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The content of a file that an option names.
#[derive(PartialEq, Eq)]
pub(super) struct File {
    option: &'static str,
    path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl File {
    pub(super) fn invalid(&self, problem: &str) -> ChannelError {
        invalid(self.option, format!("{}: {problem}", self.path.display()))
    }

    fn has(&self, text: &str) -> bool {
        self.bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes())
    }

    /// Whether the file is DER: a sequence that begins with an integer or a sequence.
    fn is_der(&self) -> bool {
        matches!(
            self.bytes[..],
            [0x30, ..=0x7f, 2, ..]
                | [0x30, 0x81, _, 2 | 0x30, ..]
                | [0x30, 0x82, _, _, 2 | 0x30, ..]
        )
    }

    /// Whether it begins with its version, 3.
    fn is_pkcs12(&self) -> bool {
        matches!(self.bytes[..], [0x30, 0x82, _, _, 2, 1, 3, ..])
    }
}

pub(super) fn invalid(field: &'static str, problem: impl Into<String>) -> ChannelError {
    ChannelError::InvalidOptions { field, problem: problem.into() }
}

pub(super) fn read(option: &'static str, path: &Path) -> Result<File, ChannelError> {
    let failed = |error: io::Error| invalid(option, format!("{}: {error}", path.display()));
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        let problem = format!("expected a file of at most {FILE_BYTES_MAX} bytes");
        return Err(failed(io::Error::other(problem)));
    }
    let bytes = fs::read(path).map_err(failed)?;
    Ok(File { option, path: path.into(), bytes })
}

/// Reads a file that other users of the machine cannot read.
pub(super) fn read_private(option: &'static str, path: &Path) -> Result<File, ChannelError> {
    let file = read(option, path)?;
    match private_file::check(path) {
        Ok(()) => Ok(file),
        Err(problem) => Err(file.invalid(&problem)),
    }
}

/// The authorities in a file.
pub(super) fn roots(file: &File) -> Result<Arc<RootCertStore>, ChannelError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| file.invalid(&reason::of(&error)))?;
    }
    Ok(Arc::new(roots))
}

/// The last second of a certificate in a file of authorities, in seconds since 1970.
pub(super) fn last_second(file: &File, index: usize) -> Result<u64, ChannelError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(file)?, provider())
        .build()
        .expect("there are roots");
    let name = ServerName::try_from("authority").expect("a DNS name");
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let certificate = &certificates(file)?[index];
    match verifier.verify_server_cert(certificate, &[], &name, &[], end_of_time) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Ok(not_after.as_secs())
        }
        _ => Err(file.invalid("it has a certificate without an end")),
    }
}

/// The authorities of the system.
pub(super) fn system_roots() -> Result<Arc<RootCertStore>, ChannelError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let problem = "this system has no root certificates: name a file, or install the package \
                       ca-certificates";
        return Err(invalid(CA, problem));
    }
    Ok(Arc::new(roots))
}

/// The certificates of a file, in its order.
pub(super) fn certificates(file: &File) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let certificates: Result<Vec<_>, pem::Error> =
        CertificateDer::pem_slice_iter(&file.bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        found => Err(file.invalid(&instead_of_certificate(file, found.err()))),
    }
}

pub(super) fn key(file: &File) -> Result<PrivateKeyDer<'static>, ChannelError> {
    PrivateKeyDer::from_pem_slice(&file.bytes)
        .map_err(|error| file.invalid(&instead_of_key(file, &error)))
}

fn instead_of_certificate(file: &File, error: Option<pem::Error>) -> String {
    let shown = file.path.display();
    match error {
        _ if file.is_pkcs12() => format!(
            "it is PKCS #12: expected PEM, as `openssl pkcs12 -in {shown} -nokeys` writes it"
        ),
        _ if file.is_der() => {
            format!("it is DER: expected PEM, as `openssl x509 -inform DER -in {shown}` writes it")
        }
        _ if file.has("CERTIFICATE REQUEST-----") => {
            "it is a certificate request: expected the certificate that an authority makes of it"
                .into()
        }
        None | Some(pem::Error::NoItemsFound) if file.has("PRIVATE KEY-----") => {
            "it has a private key: expected a certificate in PEM form (BEGIN CERTIFICATE)".into()
        }
        None | Some(pem::Error::NoItemsFound) => {
            "it has no certificate in PEM form (BEGIN CERTIFICATE)".into()
        }
        Some(error) => format!("it is malformed PEM: {error}"),
    }
}

fn instead_of_key(file: &File, error: &pem::Error) -> String {
    let shown = file.path.display();
    match error {
        _ if file.has("BEGIN ENCRYPTED PRIVATE KEY-----") || file.has("Proc-Type: 4,ENCRYPTED") => {
            format!(
                "it is encrypted: expected a key without a passphrase, as `openssl pkey -in \
                 {shown}` writes it"
            )
        }
        _ if file.is_pkcs12() => format!(
            "it is PKCS #12: expected PEM, as `openssl pkcs12 -in {shown} -nocerts -noenc` writes \
             it"
        ),
        _ if file.is_der() => {
            format!("it is DER: expected PEM, as `openssl pkey -inform DER -in {shown}` writes it")
        }
        pem::Error::NoItemsFound if file.has("BEGIN CERTIFICATE-----") => {
            "it has a certificate: expected its private key in PEM form (BEGIN PRIVATE KEY)".into()
        }
        pem::Error::NoItemsFound => "it has no private key in PEM form (BEGIN PRIVATE KEY)".into(),
        error => format!("it is malformed PEM: {error}"),
    }
}

/// The error for a key that rustls refused together with its certificate.
pub(super) fn misfit(cert: &File, key: &File, error: &Error) -> ChannelError {
    match error {
        Error::InconsistentKeys(_) => key.invalid("the key is not that of tls_cert"),
        Error::InvalidCertificate(_) => cert.invalid(&reason::of(error)),
        error => key.invalid(&format!("expected a key of {KEYS}: {error}")),
    }
}
