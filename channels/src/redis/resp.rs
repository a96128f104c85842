//! Splits what a server sends into whole frames; the client library reads each.

use redis::Value;

/// The longest frame in bytes: many times the longest reply to a full command of ours.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// How deep replies are nested, at the most; ours are three deep.
const DEPTH_MAX: u32 = 8;

/// The bytes are no RESP: the connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed RESP from redis: {0}")]
pub(super) struct Malformed(&'static str);

/// The first frame of `bytes`, and how many of them it takes; `None` while it is incomplete. A frame
/// has at most 16 MiB and is nested 8 deep.
///
/// # Errors
///
/// [`Malformed`]; nothing after these bytes can be trusted.
pub(super) fn frame(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    match end(bytes, 0, 0) {
        Ok(end) => match redis::parse_redis_value(&bytes[..end]) {
            Ok(value) => Ok(Some((value, end))),
            Err(_) => Err(Malformed("invalid value")),
        },
        Err(Stopped::Incomplete) if bytes.len() < FRAME_BYTES_MAX => Ok(None),
        Err(Stopped::Incomplete) => Err(Malformed("frame too long")),
        Err(Stopped::Wrong(what)) => Err(Malformed(what)),
    }
}

enum Stopped {
    Incomplete,
    Wrong(&'static str),
}

/// Where the value that begins at `begin` ends.
fn end(bytes: &[u8], begin: usize, depth: u32) -> Result<usize, Stopped> {
    let rest = bytes.get(begin..).unwrap_or_default();
    let (kind, line) = rest.split_first().ok_or(Stopped::Incomplete)?;
    let each = match kind {
        b':' | b'+' | b'-' | b'_' | b'#' | b',' | b'(' | b'$' | b'=' | b'!' => 0,
        b'*' | b'>' | b'~' => 1,
        b'%' => 2,
        _ => return Err(Stopped::Wrong("unknown kind of value")),
    };
    let line = &line[..line.iter().position(|byte| *byte == b'\r').ok_or(Stopped::Incomplete)?];
    let mut at = begin + 1 + line.len() + 2;
    let is_text = matches!(kind, b'$' | b'=' | b'!');
    if each == 0 && !is_text || is_text && line == b"-1" {
        return whole(bytes, at);
    }
    let length = std::str::from_utf8(line).ok().and_then(|line| line.parse::<u32>().ok());
    let length = length.ok_or(Stopped::Wrong("invalid length"))? as usize;
    if is_text && length <= FRAME_BYTES_MAX {
        return whole(bytes, at + length + 2);
    }
    if is_text || depth >= DEPTH_MAX {
        return Err(Stopped::Wrong("too long or nested too deep"));
    }
    whole(bytes, at)?;
    for _ in 0..length.saturating_mul(each) {
        at = end(bytes, at, depth + 1)?;
    }
    Ok(at)
}

/// `end`, before which a line ends.
fn whole(bytes: &[u8], end: usize) -> Result<usize, Stopped> {
    match bytes.get(end - 2..end) {
        None => Err(Stopped::Incomplete),
        Some(b"\r\n") => Ok(end),
        Some(_) => Err(Stopped::Wrong("line without an end")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::PushKind;

    use super::*;

    fn read(bytes: &[u8]) -> Value {
        match frame(bytes) {
            Ok(Some((value, used))) if used == bytes.len() => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn replies_are_whole_where_the_library_reads_them() {
        let answers: [&[u8]; 12] = [
            b":1\r\n",
            b":-7\r\n",
            b"+OK\r\n",
            b"+PONG\r\n",
            b"-NOSCRIPT No matching script.\r\n",
            b"$-1\r\n",
            b"_\r\n",
            b"$0\r\n\r\n",
            b"$5\r\na\r\nb!\r\n",
            b"*3\r\n:1795276763356896\r\n*0\r\n$4\r\nheld\r\n",
            b"=15\r\ntxt:Some string\r\n",
            b"*2\r\n#t\r\n,1.5\r\n",
        ];
        for answer in answers {
            assert_eq!(read(answer), redis::parse_redis_value(answer).unwrap());
        }
    }

    #[test]
    fn publication_is_a_push() {
        let bytes = b">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$2\r\nhi\r\n:1\r\n";
        let (push, used) = frame(bytes).unwrap().unwrap();
        let data = vec![Value::BulkString("t".into()), Value::BulkString("hi".into())];
        assert_eq!(push, Value::Push { kind: PushKind::Message, data });
        assert_eq!(&bytes[used..], b":1\r\n");
    }

    #[test]
    fn malformed_frame_is_refused_and_not_awaited() {
        let deep = b"*1\r\n".repeat(20);
        let wrong: [&[u8]; 8] = [
            b"?\r\n",
            b":x\r\n",
            b"$9999999999\r\n",
            b"$1\r\nab\r\n",
            b"*-2\r\n",
            b">1\r\n:7\r\n",
            b":1\rx",
            &deep,
        ];
        for bytes in wrong {
            assert!(frame(bytes).is_err(), "{bytes:?}");
        }
        // A length alone reserves no memory.
        assert!(matches!(frame(b"*99999999\r\n:1\r\n"), Ok(None)));
    }

    proptest! {
        #[test]
        fn incomplete_frame_is_awaited(cut in 0_usize..50) {
            let bytes = b"*3\r\n:17952\r\n*1\r\n$3\r\na b\r\n$4\r\nheld\r\n";
            let cut = cut.min(bytes.len() - 1);
            prop_assert!(matches!(frame(&bytes[..cut]), Ok(None)));
        }

        #[test]
        fn bytes_never_panic(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b'>'), Just(b'1'), any::<u8>()],
            0..80,
        )) {
            let _ = frame(&bytes);
        }
    }
}
