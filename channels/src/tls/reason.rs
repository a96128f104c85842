//! Why a TLS handshake failed, in an operator's terms.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, pki_types::UnixTime};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The end of the reason where an authority is unknown.
pub(super) const NOT_OF_CA: &str = "not signed by one of tls_ca, or of another secret";

/// The keys that TLS can use here.
pub(super) const KEYS: &str = "Ed25519, ECDSA P-256 or P-384, or RSA of 2,048 bits or more";

/// The problem of a certificate that `openssl req -x509` made without further options.
const OF_AUTHORITY: &str = "certificate of an authority (CA:TRUE) used as one's own: expected one \
                            that an authority has signed, or a self-signed one made by `openssl \
                            req -x509` with -addext basicConstraints=critical,CA:FALSE and \
                            -addext subjectAltName=DNS:NAME";
/// The problem of a certificate that `openssl x509 -req` made without a file of extensions.
const OF_VERSION_1: &str = "certificate of X.509 version 1: expected version 3 with a \
                            subjectAltName, as `openssl x509 -req` makes one with -extfile";

/// Why a TLS connection failed, for a log or an error. Errors of the stream show as they are.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => of(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the other side closed the connection in the handshake".into()
        }
        None => error.to_string(),
    }
}

pub(super) fn of(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::NoCertificatesPresented => "the other side has no certificate".into(),
        Error::InvalidMessage(_) => "the other side does not speak TLS".into(),
        Error::PeerIncompatible(error) => format!("no common version or algorithm: {error:?}"),
        Error::AlertReceived(alert) => of_alert(*alert),
        error => error.to_string(),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    let cause = match alert {
        AlertDescription::CertificateExpired => "certificate expired or not valid yet",
        AlertDescription::UnsupportedCertificate => {
            "certificate not for this use: its extended key usage lacks clientAuth or serverAuth"
        }
        AlertDescription::UnrecognisedName => "it has no certificate for the name that was asked",
        AlertDescription::CertificateRequired => {
            "it requires a certificate: give tls_cert and tls_key"
        }
        AlertDescription::BadCertificate => "certificate invalid, or for another name",
        AlertDescription::ProtocolVersion => "no common TLS version",
        AlertDescription::HandshakeFailure => {
            "no common algorithm, or it requires a certificate: give tls_cert and tls_key"
        }
        // The second is for a signature of another authority of the same name.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            return "the other side does not trust our certificate: its authorities, or the \
                    secret, differ"
                .into();
        }
        _ => return format!("the other side refused: {alert:?}"),
    };
    format!("the other side refused: {cause}")
}

pub(super) fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("certificate of an unknown authority: {NOT_OF_CA}")
        }
        // The texts do not contain the present time: the log has one line of each text in ten
        // seconds.
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("certificate expired at {}: this machine's clock?", date(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("certificate valid from {} on: this machine's clock?", date(*not_before))
        }
        CertificateError::NotValidForNameContext { expected, presented }
            if presented.is_empty() =>
        {
            format!(
                "certificate is not for {}, but for no name: expected a subjectAltName, a common \
                 name does not count",
                expected.to_str()
            )
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            // `DnsName("a.b")` and `IpAddress(127.0.0.1)`.
            let plain = |name: &String| {
                let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
                inner.trim_matches(['"', ')']).to_owned()
            };
            let presented: Vec<String> = presented.iter().map(plain).collect();
            let presented = presented.join(", ");
            format!("certificate is not for {}, but for {presented}", expected.to_str())
        }
        CertificateError::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => OF_AUTHORITY.into(),
            "EndEntityUsedAsCa" => "certificate whose issuer is not an authority: expected \
                                    basicConstraints CA:TRUE in the issuer's certificate"
                .into(),
            "UnsupportedCertVersion" => OF_VERSION_1.into(),
            "UnsupportedCriticalExtension" => "certificate with an unknown critical extension: \
                                               expected one without"
                .into(),
            other => format!("certificate refused: {other:.200}: expected a new one"),
        },
        CertificateError::BadEncoding => {
            "certificate is malformed: expected X.509 version 3".into()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            format!(
                "certificate with an unsupported key or signature: expected {KEYS}, and SHA-256"
            )
        }
        // A stranger chooses the purposes and algorithms of its certificate.
        CertificateError::InvalidPurposeContext { required, .. } => {
            format!("certificate does not allow {required}: its extended key usage lacks it")
        }
        error => format!("certificate refused: {:.200}", error.to_string()),
    }
}

/// `2031-05-06T07:08:09Z`.
pub(super) fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    let date = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let shown = date.and_then(|date| date.format(&Rfc3339).ok());
    shown.unwrap_or_else(|| "a time after the year 9999".into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::ExtendedKeyPurpose;

    use super::*;

    /// Extensions are checked before the issuer: a stranger chooses them.
    #[test]
    fn reason_is_short_for_any_certificate() {
        let purposes = CertificateError::InvalidPurposeContext {
            required: ExtendedKeyPurpose::ClientAuth,
            presented: vec![ExtendedKeyPurpose::Other(vec![7; 30]); 1_000],
        };
        let algorithm = CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: vec![7; 10_000],
            supported_algorithms: Vec::new(),
        };
        for error in [purposes, algorithm] {
            let reason = of_certificate(&error);
            assert!(reason.len() < 300, "{} bytes: {reason:.300}", reason.len());
        }
    }

    /// The log of refused connections has one line of each reason in ten seconds.
    #[test]
    fn reason_is_the_same_at_any_time() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let expired = |time| {
            of_certificate(&CertificateError::ExpiredContext { time: at(time), not_after: at(0) })
        };
        let early = |time| {
            of_certificate(&CertificateError::NotValidYetContext {
                time: at(time),
                not_before: at(99),
            })
        };
        assert_eq!(expired(7), expired(8));
        assert_eq!(early(7), early(8));
    }
}
