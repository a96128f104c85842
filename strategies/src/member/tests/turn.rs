//! Goal: no request is stamped with a time read before it was received (contract, rule 3), and none
//! that a peer may not make is appended.
//! Method: one driver alone, turned by hand, and frames of a process that is none of ours; its own
//! process stops in the middle of a turn, and frames sent in that time arrive in that very turn.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use gaggle_channels::{NodeName, Received};

use super::{frame, hand::Hand, header, seeded, silent::Silent};
use crate::{
    client::Driver,
    lock::Nonce,
    lock_table::{Command, LockRequest, ProcessId, Seen, Wait},
    member::{Member, MemberOptions, backend::Backend, node::Node, wire::Body},
};

/// Frames that arrive, each with a pause of the process that goes before its arrival.
type Arrivals = Arc<Mutex<VecDeque<(u64, Bytes)>>>;

/// Who sends the requests.
const SENDER: u64 = 77;

/// A member that no other speaks to.
pub(super) struct Alone {
    pub(super) driver: Driver<Backend>,
    arrivals: Arrivals,
    pub(super) clock: Arc<Hand>,
    _member: Member,
}

impl Alone {
    /// A member that is its own majority.
    pub(super) fn leading() -> Self {
        let mut alone = Self::among(&["a"]);
        for _ in 0..1_000 {
            if alone.node().status().leads {
                return alone;
            }
            alone.turn();
        }
        panic!("it never leads");
    }

    /// The first of these; the others do not run.
    pub(super) fn among(names: &[&str]) -> Self {
        let names: Vec<NodeName> = names.iter().map(|name| NodeName::new(name).unwrap()).collect();
        let (name, clock) = (names[0].clone(), Arc::new(Hand::default()));
        let arrivals = Arrivals::default();
        let (pausing, arriving) = (clock.clone(), arrivals.clone());
        let arrived = move || {
            let (pause, frame) = arriving.lock().unwrap().pop_front()?;
            pausing.pass(pause);
            Some(Received::Frame { from: NodeName::new("other").unwrap(), frame })
        };
        let channel = Arc::new(Silent { name, arrived });
        let options = MemberOptions::named("test", names).clock(clock.clone());
        let (_member, driver) = seeded(channel, options, 1);
        Self { driver, arrivals, clock, _member }
    }

    pub(super) fn node(&self) -> &Node {
        self.driver.backend().node()
    }

    pub(super) fn turn(&mut self) {
        self.clock.pass(10);
        let _ = self.driver.step();
    }

    /// The next turn takes a LOCK that was sent while the process was stopped for `pause` ms.
    fn takes_after(&mut self, pause: u64, key: &str, nonce: u128) {
        self.takes_from(SENDER, pause, key, nonce);
    }

    /// The same, in the name of `process`.
    fn takes_from(&mut self, process: u64, pause: u64, key: &str, nonce: u128) {
        let group = self.node().group().unwrap().id();
        let header = header(SENDER, self.node().incarnation(), group);
        let request = LockRequest {
            key: key.into(),
            nonce: Nonce::from_u128(nonce),
            process: ProcessId(process),
            duration_ms: 60_000,
            wait: Wait::No,
            seen: Seen::Now,
            owner: Arc::default(),
        };
        let frame = frame(&header, &Body::Request(Command::Lock(request)));
        self.arrivals.lock().unwrap().push_back((pause, frame.into()));
    }

    fn granted_at(&self, key: &str) -> u64 {
        let table = self.node().group().unwrap().table();
        table.holder(&key.into()).expect("it was granted").granted_at.0
    }
}

#[test]
fn request_after_a_pause_is_stamped_later() {
    let mut alone = Alone::leading();
    alone.takes_after(0, "before", 1);
    alone.turn();
    alone.takes_after(500, "after", 2);
    alone.turn();
    let passed = alone.granted_at("after") - alone.granted_at("before");
    assert_eq!(passed, 510, "its sender counts its lease from within the pause");
}

#[test]
fn request_of_another_process_is_refused() {
    let mut alone = Alone::leading();
    alone.takes_from(SENDER + 1, 0, "forged", 1);
    alone.takes_after(0, "own", 2);
    alone.turn();
    let table = alone.node().group().unwrap().table();
    assert!(table.holder(&"own".into()).is_some());
    assert_eq!(table.holder(&"forged".into()), None);
}
