//! The protocol of Redis, for connections whose owner writes to the socket himself: how they begin,
//! and the frames that the server says. What is rare is left to the client library's own parser.

mod open;

use redis::{PushInfo, PushKind, Value};

pub(super) use self::open::{Reader, hello, open, refused_hello};
pub(super) use crate::writer::Writer;

/// The longest frame in bytes: many times the longest answer to a full command of ours.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// How deep answers are nested, at the most; ours are three deep.
const DEPTH_MAX: u32 = 8;

/// Something whole that the server said.
#[derive(Debug, PartialEq)]
pub(super) enum Frame<'a> {
    /// Answers the oldest command that is not answered yet. May be an error of the server.
    Answer(Value),
    /// What was published to a topic that this connection is subscribed to.
    Message {
        /// The topic.
        topic: &'a [u8],
        /// The bytes as they were published.
        payload: &'a [u8],
    },
    /// Came unasked, and is no [`Message`](Self::Message).
    Push(PushInfo),
}

/// The server said what the protocol does not know: the connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("redis said something else: {0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// The first frame of `bytes`, and how many of them it took; `None` while it is not whole. A frame
/// has at most 16 MiB and is nested 8 deep.
///
/// # Errors
///
/// [`Malformed`]; nothing after these bytes can be trusted.
pub(super) fn frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let mut parser = Parser { bytes, at: 0 };
    match parser.frame() {
        Ok(frame) => Ok(Some((frame, parser.at))),
        Err(Stopped::Short) if bytes.len() < FRAME_BYTES_MAX => Ok(None),
        Err(Stopped::Short) => Err(Malformed("a frame without an end")),
        Err(Stopped::Wrong(what)) => Err(Malformed(what)),
    }
}

enum Stopped {
    /// The rest has not arrived.
    Short,
    Wrong(&'static str),
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn frame(&mut self) -> Result<Frame<'a>, Stopped> {
        if self.bytes.first() != Some(&b'>') {
            return Ok(Frame::Answer(self.value(0)?));
        }
        self.at = 1;
        let length = self.length(1)?;
        let kind = match length {
            0 => return Err(Stopped::Wrong("a push of no kind")),
            _ => self.text("a push of no kind")?,
        };
        let kind = match kind {
            b"message" if length == 3 => {
                let (topic, payload) = (self.text("no topic")?, self.text("no payload")?);
                return Ok(Frame::Message { topic, payload });
            }
            b"subscribe" => PushKind::Subscribe,
            b"unsubscribe" => PushKind::Unsubscribe,
            other => PushKind::Other(String::from_utf8_lossy(other).into_owned()),
        };
        Ok(Frame::Push(PushInfo { kind, data: self.values(length - 1, 0)? }))
    }

    /// A bulk string where nothing else may stand.
    fn text(&mut self, missing: &'static str) -> Result<&'a [u8], Stopped> {
        match self.bytes.get(self.at).ok_or(Stopped::Short)? {
            b'$' => self.at += 1,
            _ => return Err(Stopped::Wrong(missing)),
        }
        self.bulk()?.ok_or(Stopped::Wrong(missing))
    }

    fn value(&mut self, depth: u32) -> Result<Value, Stopped> {
        let begin = self.at;
        let kind = *self.bytes.get(begin).ok_or(Stopped::Short)?;
        self.at += 1;
        match kind {
            b':' => Ok(Value::Int(self.number()?)),
            b'$' => Ok(self.bulk()?.map_or(Value::Nil, |text| Value::BulkString(text.to_vec()))),
            b'*' => {
                let length = self.length(1)?;
                Ok(Value::Array(self.values(length, depth)?))
            }
            // What HELLO says of the server: nobody reads it.
            b'%' => {
                let length = self.length(2)?;
                self.values(length, depth).map(|_| Value::Okay)
            }
            b'+' | b'-' | b'_' | b'#' | b',' | b'(' => {
                self.line()?;
                self.rare(begin)
            }
            b'=' | b'!' => {
                self.bulk()?;
                self.rare(begin)
            }
            _ => Err(Stopped::Wrong("a value of an unknown kind")),
        }
    }

    /// A whole value of a kind that is no part of the answers that must be fast.
    fn rare(&self, begin: usize) -> Result<Value, Stopped> {
        let value = redis::parse_redis_value(&self.bytes[begin..self.at]);
        value.map_err(|_| Stopped::Wrong("a value that is none"))
    }

    /// The number that stands there, `each` times.
    fn length(&mut self, each: usize) -> Result<usize, Stopped> {
        let length = usize::try_from(self.number()?).ok();
        let length = length.and_then(|length| length.checked_mul(each));
        length.ok_or(Stopped::Wrong("an impossible length"))
    }

    fn values(&mut self, length: usize, depth: u32) -> Result<Vec<Value>, Stopped> {
        if depth >= DEPTH_MAX {
            return Err(Stopped::Wrong("nested too deep"));
        }
        // What the server says is not believed before it is there: each value takes three bytes.
        let mut values = Vec::with_capacity(length.min((self.bytes.len() - self.at) / 3));
        for _ in 0..length {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn bulk(&mut self) -> Result<Option<&'a [u8]>, Stopped> {
        let length = self.number()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX);
        let end = self.at + length.ok_or(Stopped::Wrong("a text of an impossible length"))?;
        match self.bytes.get(end..end + 2) {
            None => Err(Stopped::Short),
            Some(b"\r\n") => {
                let text = &self.bytes[self.at..end];
                self.at = end + 2;
                Ok(Some(text))
            }
            Some(_) => Err(Stopped::Wrong("a text longer than it says")),
        }
    }

    fn number(&mut self) -> Result<i64, Stopped> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
        number.ok_or(Stopped::Wrong("a number that is none"))
    }

    /// The rest of the line, without its end.
    fn line(&mut self) -> Result<&'a [u8], Stopped> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\r').ok_or(Stopped::Short)?;
        match rest.get(end + 1) {
            None => Err(Stopped::Short),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => Err(Stopped::Wrong("a line that ends halfway")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Value {
        match frame(bytes) {
            Ok(Some((Frame::Answer(value), used))) if used == bytes.len() => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_read_as_the_library_reads_them() {
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
    fn a_publication_is_a_message_and_no_answer() {
        let bytes = b">3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$2\r\nhi\r\n:1\r\n";
        let (push, used) = frame(bytes).unwrap().unwrap();
        assert_eq!(push, Frame::Message { topic: b"t", payload: b"hi" });
        assert_eq!(&bytes[used..], b":1\r\n");
    }

    #[test]
    fn what_comes_unasked_is_no_answer() {
        let bytes = b">3\r\n$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n";
        let data = vec![Value::BulkString("t".into()), Value::Int(1)];
        let subscribed = Frame::Push(PushInfo { kind: PushKind::Subscribe, data });
        assert_eq!(frame(bytes), Ok(Some((subscribed, bytes.len()))));
    }

    #[test]
    fn what_is_no_frame_is_refused_and_not_awaited() {
        let deep = b"*1\r\n".repeat(20);
        let wrong: [&[u8]; 10] = [
            b"?\r\n",
            b":x\r\n",
            b"$9999999999\r\n",
            b"$1\r\nab\r\n",
            b"*-2\r\n",
            b">0\r\n",
            b">3\r\n:7\r\n",
            b">3\r\n$7\r\nmessage\r\n$-1\r\n",
            b":1\rx",
            &deep,
        ];
        for bytes in wrong {
            assert!(frame(bytes).is_err(), "{bytes:?}");
        }
        // A length alone makes nobody allocate.
        assert!(matches!(frame(b"*99999999\r\n:1\r\n"), Ok(None)));
    }

    proptest! {
        #[test]
        fn a_frame_in_parts_is_the_same_frame(cut in 0_usize..50) {
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
