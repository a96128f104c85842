mod call;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gaggle_strategies::{
    Capabilities, Clock, Drift, Error, Exclusion, Inspection, Instant, KeyedMutex, Lock,
    LockOptions, MaxWait, Nonce, Order,
    implement::{
        Holds, LossWatch, check_duration, check_request, extended, gone, wait_until, whole_ms,
    },
};
use tokio::{sync::watch, time::timeout};

use self::call::{Call, Reply, Waited};
use super::{
    keyspace::Answer,
    server::{Server, Verb},
};

const NONCE_MEMORY_MS: u64 = 30_000;
/// "memory bucket waiter_ttl waiters nonces topics", as the scripts are told the options; one
/// bucket serves all keys.
const SETTINGS: &str = "30000 0 3000 65536 65536 fuzz:p:";

/// One process that locks through the scripts. Its requests are answered at once; publications
/// arrive when the runtime gets to them, or never.
pub struct Scripted {
    server: Arc<Server>,
    process: String,
    clock: Arc<dyn Clock>,
    /// Grants to waiters of this process: told, and not yet taken.
    told: Mutex<BTreeMap<Nonce, Told>>,
    news: watch::Sender<u64>,
    /// Callers of each nonce, and whether somebody here holds it.
    callers: Mutex<BTreeMap<Nonce, (u32, bool)>>,
    seen: AtomicU64,
    holds: Holds,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    token: u64,
    waited: Duration,
}

impl Scripted {
    /// A process of this number. Spawns the task that hears publications; it ends with the server.
    #[must_use]
    pub fn open(server: Arc<Server>, number: u64, clock: Arc<dyn Clock>) -> Arc<Self> {
        let process = format!("{number:032x}");
        let mut publications = server.subscribe(&format!("fuzz:p:{process}"));
        let client = Arc::new(Self {
            server,
            process,
            clock,
            told: Mutex::default(),
            news: watch::Sender::new(0),
            callers: Mutex::default(),
            seen: AtomicU64::new(0),
            holds: Holds::default(),
        });
        let hears = Arc::downgrade(&client);
        tokio::spawn(async move {
            while let Some(payload) = publications.recv().await {
                let Some(client) = hears.upgrade() else { return };
                let text = String::from_utf8(payload).expect("a publication is text");
                let grant = text.strip_prefix("1 0 ").expect("version, bucket");
                client.hear(grant);
            }
        });
        client
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// "nonce token enqueued granted".
    fn hear(&self, grant: &str) {
        let words: Vec<&str> = grant.split(' ').collect();
        let [nonce, token, enqueued, granted, _] = words[..] else { panic!("a grant: {grant:?}") };
        let number = |word: &str| word.parse::<u64>().expect("a whole number");
        let nonce = u128::from_str_radix(nonce, 16).expect("a nonce");
        let waited = Duration::from_micros(number(granted).saturating_sub(number(enqueued)));
        self.tell(Nonce::from_u128(nonce), number(token), waited);
    }

    fn tell(&self, nonce: Nonce, token: u64, waited: Duration) {
        if hold(&self.callers).contains_key(&nonce) {
            hold(&self.told).entry(nonce).or_insert(Told { token, waited });
            self.news.send_modify(|count| *count += 1);
        }
    }

    /// Runs a script; the reply without what every reply begins with.
    fn eval(&self, verb: Verb, key: &str, arguments: Vec<String>) -> Vec<Answer> {
        let part = |part: char| format!("fuzz:{{b0}}:{part}:{key}");
        let [tokens, nonces] = ["fuzz:{b0}:t".to_owned(), "fuzz:{b0}:x".to_owned()];
        let keys = [tokens, nonces, part('l'), part('f'), part('a'), part('g')];
        let mut args = vec![self.process.clone(), SETTINGS.to_owned()];
        args.extend(arguments);
        let mut reply = match self.server.eval(verb, &keys, &args) {
            Answer::List(reply) => reply.into_iter(),
            short @ Answer::Int(_) => return vec![short],
            Answer::Text(text) => return self.read_text(&String::from_utf8_lossy(&text)),
            other => panic!("{verb:?} answers {other:?}"),
        };
        let now = int(&reply.next().expect("every reply has its time"));
        self.seen.fetch_max(now, Ordering::Relaxed);
        let own = match reply.next() {
            Some(Answer::List(own)) => own,
            other => panic!("every reply has own grants: {other:?}"),
        };
        for grant in own {
            let Answer::Text(grant) = grant else { panic!("a grant is text: {grant:?}") };
            self.hear(std::str::from_utf8(&grant).expect("a grant is text"));
        }
        reply.collect()
    }

    /// "queued now left" of a LOCK, or "held now" of an UNLOCK, with the grant behind it if that is own.
    fn read_text(&self, text: &str) -> Vec<Answer> {
        let mut words = text.splitn(3, ' ');
        let (word, now) = (words.next().expect("it has a word"), words.next().expect("a time"));
        self.seen.fetch_max(now.parse().expect("a time"), Ordering::Relaxed);
        match (word, words.next()) {
            ("queued", Some(left)) => {
                let left = Answer::Int(left.parse().expect("a lease"));
                vec![Answer::List(vec![Answer::Text(b"queued".to_vec()), left])]
            }
            ("held", own) => {
                own.inspect(|grant| self.hear(grant));
                vec![Answer::Text(b"held".to_vec())]
            }
            other => panic!("a text says {other:?}"),
        }
    }

    fn ask(&self, call: &Call<'_>) -> Reply {
        let wait = match (call.once, call.until) {
            (true, _) => "0".into(),
            (_, None) => "-1".into(),
            (_, Some(until)) => whole_ms(until.since(self.now())).max(1).to_string(),
        };
        loop {
            let too_late = self.seen.load(Ordering::Relaxed) + NONCE_MEMORY_MS * 1000;
            let arguments = vec![
                too_late.to_string(),
                call.nonce.to_string(),
                whole_ms(call.duration).to_string(),
                wait.clone(),
                copies(call.copies),
                "1 host -".into(),
            ];
            let reply = self.eval(Verb::Lock, call.key, arguments);
            let parts = match &reply[..] {
                [Answer::Int(token)] => {
                    let token = u64::try_from(*token).expect("a token");
                    self.seen.fetch_max(token, Ordering::Relaxed);
                    return Reply::Granted(token);
                }
                [Answer::List(parts)] => parts,
                other => panic!("LOCK answers {other:?}"),
            };
            return match (&*word(&parts[0]), &parts[1..]) {
                ("granted", [token]) => Reply::Granted(int(token)),
                ("again", [token, left]) => {
                    Reply::Again(int(token), Duration::from_millis(int(left)))
                }
                ("queued", [left]) => Reply::Queued(Duration::from_millis(int(left))),
                ("held", _) => Reply::Held,
                ("spent", _) => Reply::Spent,
                ("waiters" | "nonces", [limit]) => Reply::Limit(int(limit)),
                ("stale", _) => continue,
                other => panic!("LOCK answers {other:?}"),
            };
        }
    }

    fn free(&self, key: &str, nonce: Nonce, may_repeat: bool) -> bool {
        let reply = self.eval(Verb::Unlock, key, vec![nonce.to_string(), copies(may_repeat)]);
        match &reply[..] {
            [Answer::Int(1)] => true,
            [was] => &*word(was) == "held",
            other => panic!("UNLOCK answers {other:?}"),
        }
    }

    fn prolong(&self, key: &str, nonce: Nonce, token: u64, duration: Duration) -> bool {
        let arguments = vec![nonce.to_string(), whole_ms(duration).to_string(), token.to_string()];
        let reply = self.eval(Verb::Extend, key, arguments);
        &*word(&reply[0]) == "held"
    }

    /// What became of a waiter: `None` while it waits, and how long the holder's lease lasts.
    fn poll(&self, key: &str, nonce: Nonce) -> (Duration, Option<String>) {
        let reply = self.eval(Verb::Poll, key, vec!["1".into(), nonce.to_string()]);
        let [Answer::List(found)] = &reply[..] else { panic!("POLL answers {reply:?}") };
        let remaining = Duration::from_millis(int(&found[0]));
        let Some(Answer::List(parts)) = found.get(1) else { return (remaining, None) };
        let what = word(&parts[1]);
        if let ("granted", [token, enqueued, granted, _]) = (&*what, &parts[2..]) {
            let waited = int(granted).saturating_sub(int(enqueued));
            self.tell(nonce, int(token), Duration::from_micros(waited));
        }
        (remaining, Some(what.into_owned()))
    }

    /// Waits in the queue: told, or polled as the strategy polls. `None` when the time is up.
    async fn wait(&self, call: &Call<'_>, mut remaining: Duration) -> Option<Waited> {
        let mut news = self.news.subscribe();
        loop {
            if let Some(told) = hold(&self.told).remove(&call.nonce) {
                return Some(Waited::Granted(told));
            }
            let now = self.now();
            let left = call.until.map_or(Duration::MAX, |until| until.since(now));
            if left.is_zero() {
                return None;
            }
            let millisecond = Duration::from_millis(1);
            let latest = (call.duration / 3).min(Duration::from_secs(1));
            let pause = remaining.saturating_add(millisecond).min(latest).max(millisecond);
            if timeout(pause.min(left), news.changed()).await.is_ok() {
                continue;
            }
            if call.until.is_some_and(|until| self.now() >= until) {
                continue;
            }
            let (left, found) = self.poll(call.key, call.nonce);
            remaining = left;
            match found.as_deref() {
                Some("spent") => return Some(Waited::Spent),
                Some("unknown") => return Some(Waited::Unknown),
                _ => {}
            }
        }
    }
}

#[async_trait]
impl KeyedMutex for Scripted {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        check_request(key, &options)?;
        let until = wait_until(self.now(), options.get_max_wait());
        loop {
            let nonce = Nonce::random();
            hold(&self.callers).entry(nonce).or_insert((0, false)).0 += 1;
            let call = Call {
                client: self,
                key,
                nonce,
                copies: nonce.as_u128().is_multiple_of(3),
                duration: Duration::from_millis(whole_ms(options.get_duration())),
                once: options.get_max_wait() == MaxWait::AtMost(Duration::ZERO),
                until,
                there: false,
                left: false,
            };
            if let Some(lock) = call.run().await? {
                return Ok(lock);
            }
            if until.is_some_and(|until| self.now() >= until) {
                return Err(Error::TimedOut);
            }
        }
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        if self.free(lock.key(), lock.nonce(), false) {
            Ok(())
        } else {
            Err(gone(lock, self.now()))
        }
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_duration(duration)?;
        let sent = self.now();
        if lock.deadline().is_some_and(|deadline| sent >= deadline) {
            return Err(Error::Expired);
        }
        if !self.prolong(lock.key(), lock.nonce(), lock.fencing_token(), duration) {
            return Err(gone(lock, self.now()));
        }
        let drift = Drift::default();
        extended(lock, sent, duration, drift, self.now())
    }

    async fn inspect(&self, _: &str) -> Result<Option<Inspection>, Error> {
        Err(Error::no_quorum())
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::none("scripted redis");
        capabilities.exclusion = Exclusion::WhileServerKeepsMemory;
        capabilities.order = Order::Fifo;
        capabilities
    }

    async fn close(&self) {}

    fn release(&self, lock: &Lock) {
        self.free(lock.key(), lock.nonce(), false);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.holds.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

fn copies(may_repeat: bool) -> String {
    if may_repeat { "c" } else { "-" }.to_owned()
}

fn word(answer: &Answer) -> std::borrow::Cow<'_, str> {
    let Answer::Text(text) = answer else { panic!("no word: {answer:?}") };
    String::from_utf8_lossy(text)
}

fn int(answer: &Answer) -> u64 {
    let Answer::Int(number) = answer else { panic!("no number: {answer:?}") };
    u64::try_from(*number).expect("not negative")
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
