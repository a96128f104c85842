//! Requests that leave in one run of a script, where several are to be written at once: the server
//! then does for all of them together what it would do for each.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use redis::{Arg, Cmd, Value};

use super::state::Asked;
use crate::redis::script::MANY;

/// How many requests one run takes at the most: that long nobody else is served.
const MOST: usize = 32;

/// A request that may leave with others. Its command runs the script of its kind for one key.
///
/// The script for many does the shortest way alone, and answers 0 where it did nothing: that request
/// is then sent by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Together {
    Unlock,
    Lock,
}

/// What is sent on of a request: each part goes to one of these columns, in this order.
#[derive(Clone, Copy)]
enum Column {
    /// Names of what is read, of what is not there on the shortest way, and of what is written.
    Read,
    Absent,
    Written,
    Argument,
}

/// How many of them are names.
const NAMES: usize = 3;
const COLUMNS: usize = 4;

impl Together {
    /// Whether a command may leave with others: no copy of its LOCK may be under way, which the script
    /// for many does not remember.
    pub(super) fn takes(self, cmd: &Cmd) -> bool {
        let copies = match self {
            Self::Unlock => 12,
            Self::Lock => 15,
        };
        cmd.args_iter().nth(copies) == Some(Arg::Simple(b"-"))
    }

    /// Which arguments of its command go where. `EVALSHA`, the hash and the number of names come
    /// first.
    fn parts(self) -> &'static [(usize, Column)] {
        match self {
            // Lock and queue; the nonce.
            Self::Unlock => &[(5, Column::Read), (6, Column::Absent), (11, Column::Argument)],
            // Tokens, nonces, lock, queue, grant; nonce, duration, owner.
            Self::Lock => &[
                (3, Column::Read),
                (4, Column::Absent),
                (5, Column::Written),
                (6, Column::Absent),
                (8, Column::Absent),
                (12, Column::Argument),
                (13, Column::Argument),
                (16, Column::Argument),
            ],
        }
    }
}

/// The argument of a LOCK that is sent on of the first alone: when it is too late. Any time will do
/// that was known when they were handed in, because whoever withdraws one does so later.
const TOO_LATE: usize = 11;

/// Requests that are to leave together.
#[derive(Default)]
pub(super) struct Group {
    /// In the order in which they are done: what is freed may be asked for in the same run.
    kinds: [OfKind; 2],
    too_late: Vec<u8>,
}

/// Those of one kind, in their order.
#[derive(Default)]
struct OfKind {
    /// Each as it is sent by itself, and where it ends.
    alone: Vec<u8>,
    requests: Vec<(usize, Asked)>,
    columns: [Vec<u8>; COLUMNS],
    counts: [usize; COLUMNS],
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.kinds.iter().map(|kind| kind.requests.len()).sum()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MOST
    }

    pub(super) fn push(&mut self, kind: Together, cmd: &Cmd, asked: Asked) {
        let of_kind = &mut self.kinds[kind as usize];
        let begin = of_kind.alone.len();
        cmd.write_packed_command(&mut of_kind.alone);
        let packed = &of_kind.alone;
        let mut at = past_line(packed, begin);
        let mut parts = kind.parts().iter().peekable();
        for place in 0..cmd.args_iter().len() {
            let end = past_argument(packed, at);
            if let Some((_, column)) = parts.next_if(|(part, _)| *part == place) {
                of_kind.columns[*column as usize].extend_from_slice(&packed[at..end]);
                of_kind.counts[*column as usize] += 1;
            } else if kind == Together::Lock && place == TOO_LATE && self.too_late.is_empty() {
                self.too_late.extend_from_slice(&packed[at..end]);
            }
            at = end;
        }
        of_kind.requests.push((at, asked));
    }

    /// Writes it, and leaves it empty. Returns who waits for the answer.
    pub(super) fn close(&mut self, outgoing: &mut Vec<u8>) -> Sent {
        if self.len() > 1 {
            self.write(outgoing);
        }
        let unlocks = self.kinds[Together::Unlock as usize].requests.len();
        let requests = Vec::with_capacity(self.len());
        let mut sent = Sent { alone: Vec::new(), requests, unlocks };
        for of_kind in &mut self.kinds {
            let before = sent.alone.len();
            sent.alone.append(&mut of_kind.alone);
            let requests = of_kind.requests.drain(..);
            sent.requests.extend(requests.map(|(end, asked)| (before + end, asked)));
            of_kind.columns.iter_mut().for_each(Vec::clear);
            of_kind.counts = [0; COLUMNS];
        }
        self.too_late.clear();
        if let [_] = sent.requests[..] {
            outgoing.append(&mut sent.alone);
        }
        sent
    }

    fn write(&self, outgoing: &mut Vec<u8>) {
        let columns = |range: std::ops::Range<usize>| {
            range.flat_map(|column| self.kinds.iter().map(move |of_kind| (of_kind, column)))
        };
        let count = |range| -> usize {
            columns(range).map(|(of_kind, column)| of_kind.counts[column]).sum()
        };
        let (names, others) = (count(0..NAMES), count(NAMES..COLUMNS));
        let mut head = String::with_capacity(96);
        write!(head, "*{}\r\n$7\r\nEVALSHA\r\n", 6 + names + others)
            .expect("a string takes everything");
        bulk(&mut head, MANY.hash());
        bulk(&mut head, &names.to_string());
        outgoing.extend_from_slice(head.as_bytes());
        for (of_kind, column) in columns(0..NAMES) {
            outgoing.extend_from_slice(&of_kind.columns[column]);
        }
        head.clear();
        for of_kind in &self.kinds {
            bulk(&mut head, &of_kind.requests.len().to_string());
        }
        if self.too_late.is_empty() {
            bulk(&mut head, "0");
        }
        outgoing.extend_from_slice(head.as_bytes());
        outgoing.extend_from_slice(&self.too_late);
        for (of_kind, column) in columns(NAMES..COLUMNS) {
            outgoing.extend_from_slice(&of_kind.columns[column]);
        }
    }

    /// Whoever asked.
    pub(super) fn into_asked(self) -> impl Iterator<Item = Asked> {
        self.kinds.into_iter().flat_map(|of_kind| of_kind.requests).map(|(_, asked)| asked)
    }
}

/// A group that was sent: what asks for each request alone, where that ends, and who asked.
pub(super) struct Sent {
    alone: Vec<u8>,
    pub(super) requests: Vec<(usize, Asked)>,
    /// How many of them are UNLOCKs, which come first.
    unlocks: usize,
}

impl Sent {
    /// Tells each its answer. Returns the requests of which nothing was done: those of a group that
    /// was refused, or answered otherwise than asked, are all such.
    pub(super) fn answered(self, value: Value) -> Left {
        let (values, refusal) = match value {
            Value::Array(values) if values.len() == self.requests.len() => (values, None),
            Value::ServerError(error) => (Vec::new(), Some(Refusal::of(error.code()))),
            _ => (Vec::new(), Some(Refusal::Lasting)),
        };
        let mut left = Left { bytes: Vec::new(), requests: Vec::new(), refusal };
        let mut values = values.into_iter();
        let mut begin = 0;
        for (place, (end, asked)) in self.requests.into_iter().enumerate() {
            match values.next() {
                Some(value) if value != Value::Int(0) => asked.answer(value),
                // Who asked for a lock and has gone withdraws it; an unlock frees the key all the same.
                _ if place >= self.unlocks && asked.answer.is_closed() => {}
                _ => {
                    left.bytes.extend_from_slice(&self.alone[begin..end]);
                    left.requests.push(asked);
                }
            }
            begin = end;
        }
        left
    }

    pub(super) fn into_asked(self) -> impl Iterator<Item = Asked> {
        self.requests.into_iter().map(|(_, asked)| asked)
    }
}

/// What a group was not for.
pub(super) struct Left {
    /// What asks for each of them alone.
    pub(super) bytes: Vec<u8>,
    pub(super) requests: Vec<Asked>,
    pub(super) refusal: Option<Refusal>,
}

impl Left {
    pub(super) fn is_nothing(&self) -> bool {
        self.requests.is_empty() && self.refusal.is_none()
    }
}

/// How a server refuses a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It does not know the script (any more).
    Unknown,
    /// It takes none: keys of several buckets lie apart in a cluster, or this user may not run what
    /// is in the script.
    Lasting,
    /// It takes nothing at present.
    Passing,
}

impl Refusal {
    fn of(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::Unknown,
            "CROSSSLOT" | "NOPERM" | "ERR" => Self::Lasting,
            _ => Self::Passing,
        }
    }
}

/// Where the line ends that begins at `at`, in what this process has packed.
fn past_line(packed: &[u8], at: usize) -> usize {
    at + packed[at..].iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Where the argument ends that begins at `at`.
fn past_argument(packed: &[u8], at: usize) -> usize {
    let text = past_line(packed, at);
    // "$12\r\n"
    let digits = &packed[at + 1..text - 2];
    let length = digits.iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    text + length + 2
}

fn bulk(packed: &mut String, text: &str) {
    write!(packed, "${}\r\n{text}\r\n", text.len()).expect("a string takes everything");
}
