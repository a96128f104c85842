//! The bytes of requests and replies.

use super::Reply;

/// Takes the first request out of a buffer, if all of it is there.
pub(super) fn take_request(buffer: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let count = number(buffer, &mut at, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let len = number(buffer, &mut at, b'$')?;
        words.push(buffer.get(at..at + len)?.to_vec());
        at += len + 2;
    }
    if buffer.len() < at {
        return None;
    }
    buffer.drain(..at);
    Some(words)
}

/// Reads a line of a mark and a number.
fn number(buffer: &[u8], at: &mut usize, mark: u8) -> Option<usize> {
    let line = buffer.get(*at..)?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(line[0], mark, "a client of ours sends arrays of strings");
    *at += end + 2;
    std::str::from_utf8(&line[1..end]).ok()?.parse().ok()
}

/// A reply as its bytes.
pub(super) fn encoded(reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(reply, &mut bytes);
    bytes
}

fn encode(reply: &Reply, bytes: &mut Vec<u8>) {
    match reply {
        Reply::Nil => bytes.extend(b"_\r\n"),
        Reply::Done => bytes.extend(b"+OK\r\n"),
        Reply::Int(number) => bytes.extend(format!(":{number}\r\n").bytes()),
        Reply::Text(text) => bulk(text, bytes),
        Reply::Error(text) => bytes.extend(error(text)),
        Reply::List(replies) => {
            bytes.extend(format!("*{}\r\n", replies.len()).bytes());
            replies.iter().for_each(|reply| encode(reply, bytes));
        }
    }
}

fn bulk(text: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(format!("${}\r\n", text.len()).bytes());
    bytes.extend(text);
    bytes.extend(b"\r\n");
}

pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

/// What a subscriber is sent for a publication.
pub(super) fn message(topic: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = b">3\r\n".to_vec();
    [b"message", topic, payload].into_iter().for_each(|text| bulk(text, &mut bytes));
    bytes
}

/// The reply to `SUBSCRIBE`.
pub(super) fn subscribed(topic: &[u8]) -> Vec<u8> {
    let mut bytes = b">3\r\n".to_vec();
    [b"subscribe", topic].into_iter().for_each(|text| bulk(text, &mut bytes));
    bytes.extend(b":1\r\n");
    bytes
}
