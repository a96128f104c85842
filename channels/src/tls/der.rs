//! X.509 certificates of Ed25519 keys as bytes (RFC 5280, RFC 8410): written, never read.
//!
//! `rcgen` would do the same with seven crates more, and the feature `tls` is bound to add few.

use rustls::pki_types::UnixTime;

use super::reason::calendar;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const TRUE: [u8; 3] = [0x01, 1, 0xff];

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 17];
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

/// Tag, length and content.
fn tlv(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let mut bytes = vec![tag];
    match content.len() {
        length @ 0..0x80 => bytes.push(length as u8),
        length @ 0x80..0x100 => bytes.extend([0x81, length as u8]),
        length => {
            bytes.push(0x82);
            bytes.extend(u16::try_from(length).expect("certificates are small").to_be_bytes());
        }
    }
    bytes.extend(content);
    bytes
}

fn sequence(content: &[&[u8]]) -> Vec<u8> {
    tlv(SEQUENCE, content)
}

fn algorithm() -> Vec<u8> {
    sequence(&[&tlv(OID, &[ED25519])])
}

fn name(common_name: &str) -> Vec<u8> {
    let common_name = tlv(UTF8_STRING, &[common_name.as_bytes()]);
    let attribute = sequence(&[&tlv(OID, &[COMMON_NAME]), &common_name]);
    sequence(&[&tlv(SET, &[&attribute])])
}

/// UTC time with two digits of the year to 2049, generalized time after.
fn time(time: UnixTime) -> Vec<u8> {
    let [year, month, day, hour, minute, second] = calendar(time);
    let rest = format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    match year {
        ..2050 => tlv(UTC_TIME, &[format!("{:02}{rest}", year % 100).as_bytes()]),
        _ => tlv(GENERALIZED_TIME, &[format!("{year:04}{rest}").as_bytes()]),
    }
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &TRUE } else { &[] };
    sequence(&[&tlv(OID, &[id]), critical, &tlv(OCTET_STRING, &[value])])
}

/// Those of an authority: it may sign certificates.
pub(super) fn authority_extensions() -> Vec<u8> {
    let usage = [BIT_STRING, 2, 2, 0b100];
    [extension(BASIC_CONSTRAINTS, true, &sequence(&[&TRUE])), extension(KEY_USAGE, true, &usage)]
        .concat()
}

/// Those of a member: it is server and client, under one DNS name.
pub(super) fn member_extensions(dns_name: &str) -> Vec<u8> {
    let usage = [BIT_STRING, 2, 7, 0b1000_0000];
    let purposes = sequence(&[&tlv(OID, &[SERVER_AUTH]), &tlv(OID, &[CLIENT_AUTH])]);
    // Context tag 2 is a DNS name.
    let names = sequence(&[&tlv(0x82, &[dns_name.as_bytes()])]);
    [
        extension(BASIC_CONSTRAINTS, true, &sequence(&[])),
        extension(KEY_USAGE, true, &usage),
        extension(EXTENDED_KEY_USAGE, false, &purposes),
        extension(ALTERNATIVE_NAME, false, &names),
    ]
    .concat()
}

/// The part of a certificate that is signed.
pub(super) fn certificate_body(
    serial: &[u8; 16],
    issuer: &str,
    subject: &str,
    [from, until]: [UnixTime; 2],
    key: &[u8],
    extensions: &[u8],
) -> Vec<u8> {
    // Positive, and without a leading zero.
    let serial = [&[serial[0] & 0x3f | 0x40], &serial[1..]].concat();
    let version = tlv(0xa0, &[&[INTEGER, 1, 2]]);
    let key = sequence(&[&algorithm(), &tlv(BIT_STRING, &[&[0], key])]);
    sequence(&[
        &version,
        &tlv(INTEGER, &[&serial]),
        &algorithm(),
        &name(issuer),
        &sequence(&[&time(from), &time(until)]),
        &name(subject),
        &key,
        &tlv(0xa3, &[&sequence(&[extensions])]),
    ])
}

/// A certificate of its body and its signature.
pub(super) fn signed(body: &[u8], signature: &[u8]) -> Vec<u8> {
    sequence(&[body, &algorithm(), &tlv(BIT_STRING, &[&[0], signature])])
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = base64(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line));
    let lines = lines.collect::<Vec<_>>().join("\n");
    format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
}

/// RFC 4648. The crate `base64` would be one more for these lines.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..part.len()].copy_from_slice(part);
        let [a, b, c] = group.map(u32::from);
        let bits = a << 16 | b << 8 | c;
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= part.len() { DIGITS[index] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
