//! One connection, shared by all who ask: whoever finds it idle writes to the socket by itself, and
//! one task reads the answers, in their order.
//!
//! A request made alone passes no other task on its way out. Requests that answers have just woken
//! many callers to make leave in one write: the reading task lets all of them run first.

mod state;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::poll_fn,
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::Poll,
};

use gaggle_channels::resp::{self, Frame, Malformed, Reader, Writer};
use redis::{Cmd, ConnectionInfo, PushKind, Value};
use tokio::{
    io::AsyncReadExt,
    sync::{Notify, oneshot},
    task::{AbortHandle, yield_now},
};

use self::state::{Aside, Asked, State, lock};
use super::trouble::Trouble;

/// So many answers at once make the requests that follow leave in one write. Of fewer each leaves by
/// itself: the server answers the first while the others are on their way.
const ANSWERS_MANY: usize = 4;
/// Of those requests so many leave in one write: the server answers them while the next are made.
const REQUESTS_GATHERED: usize = 8;
/// What the buffers keep when they are empty.
const SPARE_BYTES: usize = 1 << 16;

/// What a connection tells unasked.
#[derive(Debug, PartialEq)]
pub(super) enum Unasked<'a> {
    /// A publication: its payload.
    Message(&'a [u8]),
    /// A subscription, or the connection, has ended.
    Ended,
}

/// Takes what is told unasked.
pub(super) type OnPush = Arc<dyn Fn(Unasked<'_>) + Send + Sync>;

/// Looks at an answer where it is read, and says whether something else will wake its caller: then
/// nothing wakes it now, and it has the answer when it is polled.
pub(super) type Look = Box<dyn FnOnce(&Value) -> bool + Send + Sync>;

/// How a request is sent, and its answer told.
#[derive(Default)]
pub(super) struct Delivery {
    pub(super) look: Option<Look>,
    /// Whoever sends it stays awake for a while.
    pub(super) awake: bool,
}

/// An answer as its caller gets it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) value: Value,
    /// It came some time ago, and was looked at then.
    pub(super) aside: bool,
}

/// A connection. Its socket closes with the last handle; what was asked is then [`Trouble::Dropped`].
#[derive(Clone)]
pub(super) struct Wire(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    reading: AbortHandle,
}

struct Shared {
    writer: Writer,
    state: Mutex<State>,
    /// The socket takes no more: the reading task goes on when it does.
    stuck: Notify,
    /// There is room again.
    room: Notify,
    on_push: OnPush,
}

impl Wire {
    /// Connects and says hello; no limit of time.
    pub(super) async fn connect(info: &ConnectionInfo, on_push: OnPush) -> Result<Self, Trouble> {
        let unreachable = |error: io::Error| Trouble::Unreachable(Arc::new(error.into()));
        let (reader, writer) = resp::open(info.addr()).await.map_err(unreachable)?;
        let shared = Arc::new(Shared {
            writer,
            state: Mutex::default(),
            stuck: Notify::new(),
            room: Notify::new(),
            on_push,
        });
        let reading = tokio::spawn(read(shared.clone(), reader)).abort_handle();
        let wire = Self(Arc::new(Handle { shared, reading }));
        for hello in resp::hello(info.redis_settings()) {
            match wire.request(&hello).await {
                Ok(_) => {}
                Err(Trouble::Refused(error)) => {
                    return Err(Trouble::Unreachable(Arc::new(resp::refused_hello(&error))));
                }
                Err(Trouble::Dropped(error)) => return Err(Trouble::Unreachable(error)),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(wire)
    }

    /// One command and its answer. It is sent when this is first polled, unless the connection is
    /// full.
    pub(super) async fn request(&self, cmd: &Cmd) -> Result<Value, Trouble> {
        Ok(self.request_with(cmd, Delivery::default()).await?.value)
    }

    /// Whether a single request was sent and waits for its answer.
    pub(super) fn awaits_one(&self) -> bool {
        self.0.shared.state().asked.len() == 1
    }

    /// As [`request`](Self::request), with a say in how the answer is told.
    pub(super) async fn request_with(
        &self,
        cmd: &Cmd,
        Delivery { look, .. }: Delivery,
    ) -> Result<Answered, Trouble> {
        let (asked, answered) = asked(look);
        let mut asked = Some(asked);
        while !self.0.shared.ask(cmd, &mut asked)? {
            self.0.shared.wait_for_room().await;
        }
        answered.await
    }
}

/// Where an answer is put, and where it is waited for.
fn asked(
    look: Option<Look>,
) -> (Asked, impl Future<Output = Result<Answered, Trouble>> + Send + 'static) {
    let (answer, mut answered) = oneshot::channel();
    let aside = look.is_some().then(Aside::default);
    let asked = Asked { answer, look: look.zip(aside.clone()) };
    let answered = poll_fn(move |context| {
        let kept = aside.as_ref().and_then(|aside| lock(aside).take());
        match kept {
            Some((value, sender)) => {
                // Else the sender's end would wake this very task.
                answered.close();
                drop(sender);
                Poll::Ready(Ok(Ok(Answered { value, aside: true })))
            }
            None => Pin::new(&mut answered)
                .poll(context)
                .map_ok(|result| result.map(|value| Answered { value, aside: false })),
        }
    });
    let answered = async move {
        match answered.await {
            Ok(Ok(Answered { value: value @ Value::ServerError(_), .. })) => {
                match value.extract_error() {
                    Err(error) => Err(Trouble::of_request(error)),
                    Ok(_) => Err(Trouble::Malformed("an error that is none")),
                }
            }
            Ok(result) => result,
            Err(_) => Err(ended()),
        }
    };
    (asked, answered)
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Shared {
    /// Hands in a command, unless the connection is full.
    fn ask(&self, cmd: &Cmd, asked: &mut Option<Asked>) -> Result<bool, Trouble> {
        let mut state = self.state();
        if let Some(trouble) = &state.ended {
            return Err(trouble.clone());
        }
        if state.is_full() {
            return Ok(false);
        }
        let Some(asked) = asked.take() else { return Ok(true) };
        cmd.write_packed_command(&mut state.outgoing);
        state.asked.push_back(asked);
        state.gathered += 1;
        if !state.gathering || state.gathered >= REQUESTS_GATHERED {
            self.write(state);
        }
        Ok(true)
    }

    async fn wait_for_room(&self) {
        let room = self.room.notified();
        {
            let mut state = self.state();
            if !state.is_full() || state.ended.is_some() {
                return;
            }
            state.waiting_for_room += 1;
        }
        room.await;
    }

    fn write_gathered(&self) {
        let mut state = self.state();
        state.gathering = false;
        self.write(state);
    }

    /// Writes what is to be written, unless somebody is at it.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.writing {
            return;
        }
        state.writing = true;
        state.gathered = 0;
        loop {
            if state.outgoing.is_empty() {
                break;
            }
            let spare = mem::take(&mut state.spare);
            let mut bytes = mem::replace(&mut state.outgoing, spare);
            drop(state);
            let written = self.writer.try_write(&bytes);
            state = self.state();
            match written {
                Ok(count) if count == bytes.len() => {
                    bytes.clear();
                    bytes.shrink_to(SPARE_BYTES);
                    state.spare = bytes;
                }
                Ok(count) => {
                    bytes.drain(..count);
                    state.put_back(bytes);
                }
                Err(error) => {
                    state.put_back(bytes);
                    if error.kind() != io::ErrorKind::WouldBlock {
                        state.ended.get_or_insert_with(|| dropped(error));
                    }
                    self.stuck.notify_one();
                    break;
                }
            }
        }
        state.writing = false;
    }

    /// Everything that is whole in `bytes`. Returns whether many callers were woken.
    fn take(&self, bytes: &mut Vec<u8>) -> Result<bool, Malformed> {
        let mut used = 0;
        let mut answers = Vec::new();
        let result = loop {
            match resp::frame(&bytes[used..]) {
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed),
                Ok(Some((frame, length))) => {
                    used += length;
                    match frame {
                        // A subscription is acknowledged by a push.
                        Frame::Push(info) if info.kind == PushKind::Subscribe => {
                            answers.push(Value::Okay);
                        }
                        Frame::Push(info) if info.kind == PushKind::Unsubscribe => {
                            (self.on_push)(Unasked::Ended);
                        }
                        Frame::Push(_) => {}
                        Frame::Message { payload, .. } => {
                            (self.on_push)(Unasked::Message(payload));
                        }
                        Frame::Answer(value) => answers.push(value),
                    }
                }
            }
        };
        bytes.drain(..used);
        let many = self.deliver(answers);
        result.map(|()| many)
    }

    /// Answers, in their order. Returns whether many callers were woken.
    fn deliver(&self, answers: Vec<Value>) -> bool {
        if answers.is_empty() {
            return false;
        }
        let mut state = self.state();
        let count = answers.len().min(state.asked.len());
        let asked: Vec<_> = state.asked.drain(..count).collect();
        let many = count >= ANSWERS_MANY;
        state.gathering = many;
        let waiting = mem::take(&mut state.waiting_for_room);
        drop(state);
        if waiting > 0 {
            self.room.notify_waiters();
        }
        for (asked, value) in asked.into_iter().zip(answers) {
            asked.answer(value);
        }
        many
    }

    fn end(&self, trouble: Trouble) {
        let mut state = self.state();
        let trouble = state.ended.get_or_insert(trouble).clone();
        let asked = mem::take(&mut state.asked);
        drop(state);
        for asked in asked {
            let _ = asked.answer.send(Err(trouble.clone()));
        }
        self.room.notify_waiters();
        (self.on_push)(Unasked::Ended);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The task that reads.
async fn read(shared: Arc<Shared>, mut reader: Reader) {
    let mut bytes = Vec::with_capacity(SPARE_BYTES);
    let mut stuck = false;
    let trouble = loop {
        tokio::select! {
            biased;
            read = reader.read_buf(&mut bytes) => match read {
                Ok(0) => break ended(),
                Err(error) => break dropped(error),
                Ok(_) => match shared.take(&mut bytes) {
                    Err(malformed) => {
                        break dropped(io::Error::new(io::ErrorKind::InvalidData, malformed));
                    }
                    Ok(many) => {
                        if many {
                            yield_now().await;
                        }
                        shared.write_gathered();
                    }
                },
            },
            () = shared.stuck.notified(), if !stuck => stuck = true,
            writable = shared.writer.writable(), if stuck => {
                stuck = false;
                if let Err(error) = writable {
                    break dropped(error);
                }
                shared.write(shared.state());
            }
        }
        if let Some(trouble) = shared.state().ended.clone() {
            break trouble;
        }
    };
    shared.end(trouble);
}

fn dropped(error: io::Error) -> Trouble {
    Trouble::Dropped(Arc::new(error.into()))
}

fn ended() -> Trouble {
    dropped(io::ErrorKind::BrokenPipe.into())
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}
