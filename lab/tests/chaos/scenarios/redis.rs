//! One Redis: faults that leave its memory, and two that do not.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use gaggle_fixtures::{Certificates, Proxy, RedisServer, free_port};
use rand::{RngExt, rngs::StdRng};

use super::members;
use crate::{
    Plan, Wire,
    crew::{Crew, FREE_BOUND, LEASE, Memory, PROGRESS_BOUND, Post},
    protocol::Resource,
    signals::{self, Signal},
    store::{Protected, Trap},
    tally::Tally,
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillHolder,
    PauseHolder,
    ClientPause,
    Hang,
    CutReplies,
    LosePublications,
    Sever,
}

const ALL: [Fault; 7] = [
    Fault::KillHolder,
    Fault::PauseHolder,
    Fault::ClientPause,
    Fault::Hang,
    Fault::CutReplies,
    Fault::LosePublications,
    Fault::Sever,
];

const NAMES: [&str; 3] = ["first", "second", "third"];

fn post(name: &str, url: &str) -> Post {
    Post { name: name.into(), namespace: None, url: url.into() }
}

/// A server, as workers reach it.
struct Served {
    server: RedisServer,
    /// The port of TLS, if there is TLS.
    port: u16,
    certificates: Option<Certificates>,
}

impl Served {
    fn over(wire: Wire) -> Self {
        let Wire::Tls = wire else {
            let server = RedisServer::start();
            return Self { port: server.port(), server, certificates: None };
        };
        let (certificates, port) = (Certificates::new(), free_port());
        let server = RedisServer::start_tls(&certificates, port);
        Self { server, port, certificates: Some(certificates) }
    }

    /// Workers at this URL, or at the same port over TLS.
    fn posts(&self, url: &str) -> Vec<Post> {
        let url = match &self.certificates {
            None => url.to_owned(),
            Some(certificates) => {
                let (url, ca) = (url.replace("redis:", "rediss:"), certificates.path("ca.pem"));
                format!("{url}?tls_ca={}&tls_name=localhost", ca.display())
            }
        };
        NAMES.map(|name| post(name, &url)).into()
    }
}

/// Losses between processes and a Redis that keeps its memory cost time, never the lock.
pub(crate) fn memory_kept(wire: Wire, plan: &mut Plan) -> Tally {
    let served = Served::over(wire);
    let (server, proxy) = (&served.server, Proxy::before(served.port));
    let mut crew = Crew::start(served.posts(&proxy.url()));
    // Under TLS nothing is seen of publications.
    let hidden = |fault: &Fault| wire == Wire::Tls && matches!(fault, Fault::LosePublications);
    let faults: Vec<Fault> = ALL.into_iter().filter(|fault| !hidden(fault)).collect();
    plan.each(&faults, |fault, random| {
        crew.traffic();
        inject(fault, &mut crew, server, &proxy, random);
        crew.tally.add("faults", 1);
    });
    crew.heal();
    assert_residue(&server.url());
    crew.close();
    assert_residue(&server.url());
    crew.check(Memory::Kept)
}

fn inject(fault: Fault, crew: &mut Crew, server: &RedisServer, proxy: &Proxy, random: &mut StdRng) {
    let pause = Duration::from_millis(random.random_range(0..300));
    let long = LEASE + Duration::from_millis(random.random_range(0..500));
    match fault {
        Fault::KillHolder => crew.kill_holder(pause),
        Fault::PauseHolder => crew.pause_holder(),
        Fault::ClientPause => client_pause(crew, server, long),
        Fault::Hang => hang(crew, server, long),
        Fault::CutReplies => cut_replies(crew, proxy),
        Fault::LosePublications => lose_publications(crew, proxy),
        Fault::Sever => {
            assert!(proxy.sever() > 0, "no connection was there to end");
            crew.tally.add("connections ended", 1);
        }
    }
}

/// Redis replies to no client for longer than a lease.
fn client_pause(crew: &mut Crew, server: &RedisServer, long: Duration) {
    let mut connection = connect(&server.url());
    let began = Instant::now();
    let paused: String = redis::cmd("CLIENT")
        .arg("PAUSE")
        .arg(u64::try_from(long.as_millis()).unwrap())
        .arg("ALL")
        .query(&mut connection)
        .unwrap();
    assert_eq!(paused, "OK");
    redis::cmd("PING").exec(&mut connect(&server.url())).unwrap();
    assert!(began.elapsed() >= long - Duration::from_millis(50), "the pause did not happen");
    crew.tally.add("client pauses", 1);
}

/// The server itself stands for longer than a lease.
fn hang(crew: &mut Crew, server: &RedisServer, long: Duration) {
    let pid = server.pid().expect("it runs");
    signals::stop(pid);
    assert!(signals::is_stopped(pid), "the stop did not happen");
    sleep(long);
    signals::send(pid, Signal::CONT);
    crew.tally.add("servers hung", 1);
}

/// Writes take effect, and connections end in place of the replies.
fn cut_replies(crew: &mut Crew, proxy: &Proxy) {
    let before = proxy.cuts();
    for _ in 0..4 {
        let so_far = proxy.cuts();
        proxy.cut_replies(1);
        wait("a write to cut off from its reply", || proxy.cuts() > so_far);
        crew.traffic();
    }
    crew.tally.add("replies cut off", proxy.cuts() - before);
}

fn lose_publications(crew: &mut Crew, proxy: &Proxy) {
    let before = proxy.publications_lost();
    proxy.lose_publications(true);
    wait("a publication to lose", || proxy.publications_lost() > before + 2);
    proxy.lose_publications(false);
    crew.tally.add("publications lost", proxy.publications_lost() - before);
}

fn wait(what: &str, is: impl Fn() -> bool) {
    let until = Instant::now() + PROGRESS_BOUND;
    while !is() {
        assert!(Instant::now() < until, "there was not {what} within {PROGRESS_BOUND:?}");
        sleep(Duration::from_millis(2));
    }
}

/// A Redis that restarts empty: two holders, as documented, and tokens that grow all the same.
pub(crate) fn restarts_empty(wire: Wire, plan: &mut Plan) -> Tally {
    let served = Served::over(wire);
    let posts = served.posts(&format!("redis://127.0.0.1:{}/", served.port));
    let mut server = served.server;
    // Longer than the scenario: no lease expires.
    let mut crew = Crew::start_with(posts, Duration::from_secs(20));
    crew.progress(0).unwrap();
    plan.each(&[(); 2], |(), _| {
        two_holders(&mut crew, || {
            let before = run_id(&server.url());
            server.restart();
            assert_ne!(run_id(&server.url()), before, "the restart did not happen");
        });
        crew.tally.add("servers restarted empty", 1);
    });
    crew.heal();
    crew.close();
    assert_residue(&server.url());
    let tally = crew.check(Memory::Lost);
    assert!(tally.of("two holders, as documented") > 0, "the documented loss was not seen");
    tally
}

/// Loses the memory of the lock while a holder stands between its reads and its writes. Another
/// takes the lock and writes long before the lease of the first ends; then the first writes.
fn two_holders(crew: &mut Crew, lose: impl FnOnce()) {
    let (_, trapped) = crew.trap(Trap::Stop);
    assert!(signals::is_stopped(trapped.pid), "the stop did not happen");
    let plain = crew.store.seen(Resource::Counter);
    let checked = crew.store.seen(Resource::CheckedCounter);
    lose();
    let newer = |seen: &Protected| seen.applied > plain.applied;
    let written = crew.store.wait(Resource::Counter, PROGRESS_BOUND, newer);
    signals::send(trapped.pid, Signal::CONT);
    assert!(written, "no worker takes the lost lock");
    let bound = PROGRESS_BOUND;
    let lost = crew.store.wait(Resource::Counter, bound, |seen| seen.lost > plain.lost);
    assert!(lost, "two held the lock, and no unchecked update was lost");
    let refused = |seen: &Protected| seen.refused > checked.refused;
    let refused = crew.store.wait(Resource::CheckedCounter, bound, refused);
    assert!(refused, "the older holder's write was not refused");
}

/// Members over the channel of a Redis: faults of that Redis do not affect their locks.
pub(crate) fn as_channel(policy: &str, plan: &mut Plan) -> Tally {
    let mut server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let mut crew = Crew::start(members::posts_over_redis(policy, &proxy.url()));
    plan.each(&[()], |(), random| {
        members::kill_and_pause(&mut crew, random);
        let long = LEASE + Duration::from_millis(random.random_range(0..500));
        crew.traffic();
        server.restart();
        crew.tally.add("servers restarted empty", 1);
        crew.traffic();
        hang(&mut crew, &server, long);
        crew.traffic();
        cut_replies(&mut crew, &proxy);
        crew.traffic();
        assert!(proxy.sever() > 0, "no connection was there to end");
        crew.tally.add("connections ended", 1);
        crew.traffic();
        lose_publications(&mut crew, &proxy);
        crew.tally.add("faults", 5);
    });
    let tally = members::finish(crew);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connect(&server.url())).unwrap();
    assert!(keys.is_empty(), "a channel leaves nothing behind: {keys:?}");
    tally
}

/// Nothing but token counters, and tombstones that expire (contract, rule 11).
pub(super) fn assert_residue(url: &str) {
    let until = Instant::now() + FREE_BOUND;
    loop {
        let residue = residue(url);
        if residue.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "left in Redis after {FREE_BOUND:?}: {residue:?}");
        sleep(Duration::from_millis(20));
    }
}

/// Keys that the contract does not allow to stay.
pub(super) fn residue(url: &str) -> Vec<String> {
    let mut connection = connect(url);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let mut stays = |key: &String| {
        let expires: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        let tombstone = key.ends_with("}:x") || key.contains("}:g:");
        key.ends_with("}:t") || (tombstone && expires != -1)
    };
    keys.into_iter().filter(|key| !stays(key)).collect()
}

pub(super) fn connect(url: &str) -> redis::Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn run_id(url: &str) -> String {
    let info: String = redis::cmd("INFO").arg("server").query(&mut connect(url)).unwrap();
    info.lines().find(|line| line.starts_with("run_id:")).unwrap().to_owned()
}
