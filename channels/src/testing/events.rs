//! The events that code under test reports, as text.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{DefaultGuard, set_default, set_global_default},
};

/// How long an event may take on a machine that is busy.
const REPORTED_WITHIN: Duration = Duration::from_secs(30);

/// Recorded events of this project: each its level and its fields.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    /// Records the events of this thread until the guard is dropped.
    #[must_use]
    pub fn of_thread() -> (Self, DefaultGuard) {
        let events = Self::default();
        (events.clone(), set_default(events))
    }

    /// Records the events of all threads, from the first call on.
    ///
    /// # Panics
    ///
    /// If the process has another subscriber.
    pub fn of_process() -> &'static Self {
        static EVENTS: OnceLock<Events> = OnceLock::new();
        EVENTS.get_or_init(|| {
            let events = Self::default();
            set_global_default(events.clone()).unwrap();
            events
        })
    }

    /// Removes and returns the events recorded so far.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The events recorded so far that contain this text.
    #[must_use]
    pub fn with(&self, text: &str) -> Vec<String> {
        let events = self.0.lock().unwrap();
        events.iter().filter(|event| event.contains(text)).cloned().collect()
    }

    /// Waits for an event that contains this text, and returns the first.
    ///
    /// # Panics
    ///
    /// If there is none within half a minute.
    pub async fn wait_for(&self, text: &str) -> String {
        let found = timeout(REPORTED_WITHIN, async {
            loop {
                if let Some(event) = self.with(text).into_iter().next() {
                    return event;
                }
                sleep(Duration::from_millis(10)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("no event contains {text:?}: {self:#?}"))
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gaggle")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
