//! A private authority (CA) with an Ed25519 key, and the certificates that it signs.

use std::{path::Path, time::Duration};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519,
};
#[cfg(feature = "tcp")]
use ring::hkdf;
use ring::{
    digest,
    rand::{SecureRandom, SystemRandom},
};
#[cfg(feature = "tcp")]
use rustls::pki_types::CertificateDer;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, TrustAnchor, UnixTime};
use time::OffsetDateTime;

use super::{
    files::{self, File},
    reason::date,
};
use crate::ChannelError;

/// What precedes a seed in its PKCS #8 form (RFC 8410). Version 1: OpenSSL does not read version 2,
/// in which `ring` generates keys.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The end of the year 9999, after which a certificate cannot be valid.
const LAST_SECOND: u64 = 253_402_300_799;

/// The period in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second of the period, in Unix time.
    pub from: u64,
    /// The last second of the period, in Unix time.
    pub until: u64,
}

impl Validity {
    /// The period from an hour ago, for clocks that are late, to `days` from now.
    #[must_use]
    pub fn days(days: u32) -> Self {
        let now = UnixTime::now().as_secs();
        Self { from: now.saturating_sub(3_600), until: now + u64::from(days) * 86_400 }
    }

    fn end(self) -> String {
        date(UnixTime::since_unix_epoch(Duration::from_secs(self.until)))
    }

    /// All of Unix time to the end of the year 9999, so that no clock is outside.
    #[cfg(feature = "tcp")]
    pub(super) const ALWAYS: Self = Self { from: 0, until: LAST_SECOND };
}

/// A certificate and its private key.
pub struct IssuedCertificate {
    certificate: Certificate,
    key: KeyPair,
}

impl IssuedCertificate {
    /// The certificate in PEM form.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    /// The private key in PEM form.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    #[cfg(feature = "tcp")]
    pub(super) fn into_pair(self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (self.certificate.into(), self.key.into())
    }
}

/// An authority that signs the certificates of members.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Unique, because OpenSSL selects an issuer by its name.
    name: String,
    /// When its certificate is valid.
    validity: Validity,
}

impl Authority {
    /// A new authority, as its certificate and key for files.
    #[must_use]
    pub fn generate(validity: Validity) -> IssuedCertificate {
        let key = new_key(&random());
        IssuedCertificate { certificate: authority_certificate(&key, validity), key }
    }

    /// The authority of its two files in PEM form, made by [`generate`](Self::generate). The first
    /// may have certificates of other authorities too.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] of the field `tls_ca` or `tls_key` if they are not such
    /// files, or do not fit together.
    pub fn from_files(ca: &Path, key: &Path) -> Result<Self, ChannelError> {
        let ca_file = files::read(files::CA, ca)?;
        let roots = files::roots(&ca_file)?;
        let file = files::read_private(files::KEY, key)?;
        let PrivateKeyDer::Pkcs8(key) = files::key(&file)? else { return Err(no_key(&file)) };
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)
            .map_err(|_| no_key(&file))?;
        let authority = Self::from_key(key, Validity { from: 0, until: 0 });
        let is_its_own = |root: &TrustAnchor<'_>| {
            root.subject_public_key_info.ends_with(authority.issuer.key().public_key_raw())
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
    #[cfg(feature = "tcp")]
    pub(super) fn from_secret(secret: &[u8], cluster: &str) -> Self {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, cluster.as_bytes()).extract(secret);
        let mut seed = [0; 32];
        prk.expand(&[b"gaggle authority 1"], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut seed))
            .expect("a key has the length of a digest");
        Self::from_key(new_key(&seed), Validity::ALWAYS)
    }

    fn from_key(key: KeyPair, validity: Validity) -> Self {
        let name = authority_name(&key);
        Self { issuer: Issuer::new(authority_params(&name, validity), key), name, validity }
    }

    /// The certificate of this authority.
    #[cfg(feature = "tcp")]
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        authority_certificate(self.issuer.key(), self.validity).into()
    }

    /// A certificate for a DNS name, with a new key. It is for a server and for a client.
    ///
    /// # Panics
    ///
    /// If the name is not ASCII.
    #[must_use]
    pub fn issue(&self, dns_name: &str, validity: Validity) -> IssuedCertificate {
        let key = new_key(&random());
        let subject = dns_name.split('.').next().unwrap_or_default();
        let mut params = params(subject, validity);
        let san = dns_name.try_into().expect("a DNS name is ASCII");
        params.subject_alt_names = vec![rcgen::SanType::DnsName(san)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer);
        IssuedCertificate { certificate: certificate.expect("the key signs"), key }
    }
}

fn authority_certificate(key: &KeyPair, validity: Validity) -> Certificate {
    let params = authority_params(&authority_name(key), validity);
    params.self_signed(key).expect("the key signs")
}

/// The name has the first 16 hex digits of the SHA-256 of the public key.
fn authority_name(key: &KeyPair) -> String {
    let digest = digest::digest(&digest::SHA256, key.public_key_raw());
    let digits = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}"));
    format!("Gaggle CA {}", digits.collect::<String>())
}

fn authority_params(name: &str, validity: Validity) -> CertificateParams {
    let mut params = params(name, validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn params(common_name: &str, validity: Validity) -> CertificateParams {
    let time = |seconds: u64| {
        let seconds = i64::try_from(seconds.min(LAST_SECOND)).expect("it is the last one at most");
        OffsetDateTime::from_unix_timestamp(seconds).expect("the year is 9999 at most")
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = time(validity.from);
    params.not_after = time(validity.until);
    params
}

/// The Ed25519 key of a seed.
fn new_key(seed: &[u8; 32]) -> KeyPair {
    let pkcs8 = PrivatePkcs8KeyDer::from([&PKCS8[..], seed].concat());
    KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &PKCS_ED25519).expect("a seed has 32 bytes")
}

fn no_key(file: &File) -> ChannelError {
    file.invalid("expected an Ed25519 key, as gaggle cert ca makes them")
}

/// Random bytes of the system.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// A secret of 32 random bytes in hexadecimal digits, for a `secret_file`.
#[must_use]
pub fn generate_secret() -> String {
    random::<32>().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    use super::*;

    #[test]
    fn authority_differs_by_secret_and_cluster() {
        let key = |secret: &str, cluster: &str| {
            let authority = Authority::from_secret(secret.as_bytes(), cluster);
            authority.issuer.key().public_key_raw().to_vec()
        };
        assert_eq!(key("s", "c"), key("s", "c"));
        assert_ne!(key("s", "c"), key("t", "c"));
        assert_ne!(key("s", "c"), key("s", "d"));
    }
}
