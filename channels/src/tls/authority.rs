//! A private authority (CA) with an Ed25519 key, and the certificates that it signs.

use std::{path::Path, time::Duration};

use ring::{
    digest, hkdf,
    rand::{SecureRandom, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, TrustAnchor, UnixTime};

use super::{
    der::{self, pem},
    files::{self, File},
    reason::date,
};
use crate::ChannelError;

/// What precedes a seed in its PKCS #8 form.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// From when and until when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its first second.
    pub from: u64,
    /// Its last second.
    pub until: u64,
}

impl Validity {
    /// From an hour ago, for clocks that are late, for `days`.
    #[must_use]
    pub fn days(days: u32) -> Self {
        let now = UnixTime::now().as_secs();
        Self { from: now.saturating_sub(3_600), until: now + u64::from(days) * 86_400 }
    }

    fn end(self) -> String {
        date(UnixTime::since_unix_epoch(Duration::from_secs(self.until)))
    }

    /// Whatever the clocks show: until the end of the year 9999.
    pub(super) const ALWAYS: Self = Self { from: 0, until: 253_402_300_799 };
}

/// A certificate and its private key.
pub struct Issued {
    pub(super) certificate: Vec<u8>,
    seed: [u8; 32],
}

impl Issued {
    /// The certificate in PEM form.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// The private key in PEM form.
    #[must_use]
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &[&PKCS8[..], &self.seed].concat())
    }

    pub(super) fn into_pair(self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from([&PKCS8[..], &self.seed].concat());
        (self.certificate.into(), key.into())
    }
}

/// An authority that signs the certificates of members.
pub struct Authority {
    key: Ed25519KeyPair,
    /// Of its own: OpenSSL finds an issuer by its name, and takes the first of two that share one.
    name: String,
    /// Of its certificate.
    validity: Validity,
}

impl Authority {
    /// A new authority, as its certificate and key for files.
    #[must_use]
    pub fn generate(validity: Validity) -> Issued {
        let seed = random();
        let authority = Self { validity, ..Self::from_seed(&seed) };
        Issued { certificate: authority.certificate(), seed }
    }

    /// The authority of its two files in PEM form, made by [`generate`](Self::generate). The first
    /// may have certificates of other authorities too.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] of the field `tls_ca` or `tls_key` if they are no such
    /// files, or do not fit together.
    pub fn from_files(ca: &Path, key: &Path) -> Result<Self, ChannelError> {
        let ca_file = files::read(files::CA, ca)?;
        let roots = files::roots(&ca_file)?;
        let file = files::read_private(files::KEY, key)?;
        let PrivateKeyDer::Pkcs8(key) = files::key(&file)? else { return Err(no_key(&file)) };
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der())
            .map_err(|_| no_key(&file))?;
        let authority = Self::from_key(key);
        let is_its_own = |root: &TrustAnchor<'_>| {
            root.subject_public_key_info.ends_with(authority.key.public_key().as_ref())
                && root.subject.ends_with(authority.name.as_bytes())
        };
        let Some(its_own) = roots.roots.iter().position(is_its_own) else {
            return Err(file.invalid(&format!("it is not the key of {}", ca.display())));
        };
        let until = files::last_second(&ca_file, its_own)?;
        Ok(Self { validity: Validity { from: 0, until }, ..authority })
    }

    /// The validity of a new certificate for `days`. By default it is 365 days, or until the end of
    /// this authority.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] of the field `days` if the certificate would outlive this
    /// authority, or if the authority has expired.
    pub fn validity(&self, days: Option<u32>) -> Result<Validity, ChannelError> {
        let (wanted, end) = (Validity::days(days.unwrap_or(365)), self.validity.end());
        if self.validity.until < UnixTime::now().as_secs() {
            let problem = format!("the authority expired at {end}: make another");
            return Err(files::invalid("days", problem));
        }
        match days {
            Some(days) if wanted.until > self.validity.until => {
                let until = wanted.end();
                let problem = format!(
                    "{days} is until {until}, and the authority is valid until {end}: omit it for \
                     this end, or make another authority"
                );
                Err(files::invalid("days", problem))
            }
            _ => Ok(Validity { until: wanted.until.min(self.validity.until), ..wanted }),
        }
    }

    /// The authority that a shared secret stands for: its key by HKDF-SHA256 (RFC 5869), with the
    /// cluster as the salt.
    pub(super) fn from_secret(secret: &[u8], cluster: &str) -> Self {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, cluster.as_bytes()).extract(secret);
        let mut seed = [0; 32];
        prk.expand(&[b"gaggle authority 1"], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut seed))
            .expect("a key has the length of a digest");
        Self::from_seed(&seed)
    }

    fn from_seed(seed: &[u8; 32]) -> Self {
        Self::from_key(Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed has 32 bytes"))
    }

    /// The name has the first 16 hex digits of the SHA-256 of the public key.
    fn from_key(key: Ed25519KeyPair) -> Self {
        let digest = digest::digest(&digest::SHA256, key.public_key().as_ref());
        let digits = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}"));
        let name = format!("Gaggle CA {}", digits.collect::<String>());
        Self { key, name, validity: Validity::ALWAYS }
    }

    /// The certificate of this authority.
    pub(super) fn certificate(&self) -> Vec<u8> {
        let (key, extensions) = (self.key.public_key(), der::authority_extensions());
        self.sign(&self.name, key.as_ref(), self.validity, &extensions)
    }

    /// A certificate for a DNS name, with a new key.
    #[must_use]
    pub fn issue(&self, dns_name: &str, validity: Validity) -> Issued {
        let seed = random();
        let key = Self::from_seed(&seed).key;
        let subject = dns_name.split('.').next().unwrap_or_default();
        let extensions = der::member_extensions(dns_name);
        let certificate = self.sign(subject, key.public_key().as_ref(), validity, &extensions);
        Issued { certificate, seed }
    }

    fn sign(&self, subject: &str, key: &[u8], validity: Validity, extensions: &[u8]) -> Vec<u8> {
        let times = [validity.from, validity.until]
            .map(|seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        let body = der::certificate_body(&random(), &self.name, subject, times, key, extensions);
        let signature = self.key.sign(&body);
        der::signed(&body, signature.as_ref())
    }
}

fn no_key(file: &File) -> ChannelError {
    file.invalid("it is no Ed25519 key, as gaggle cert ca makes them")
}

/// Random bytes of the system.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// A secret of 32 random bytes as text, for a `secret_file`.
#[must_use]
pub fn generate_secret() -> String {
    der::base64(&random::<32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_differs_by_secret_and_cluster() {
        let key = |secret: &str, cluster: &str| {
            let authority = Authority::from_secret(secret.as_bytes(), cluster);
            authority.key.public_key().as_ref().to_vec()
        };
        assert_eq!(key("s", "c"), key("s", "c"));
        assert_ne!(key("s", "c"), key("t", "c"));
        assert_ne!(key("s", "c"), key("s", "d"));
    }
}
