//! A Redis replica that is promoted while cut from its master does not know the master's grants.

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::redis::two_holders;
use crate::{
    Plan,
    crew::{Crew, Memory, PROGRESS_BOUND, Post},
    network::Network,
    protocol::Backend,
    tally::Tally,
    worker::now,
};

const PORT: u16 = 6379;
const MASTER: usize = 0;
const REPLICA: usize = 1;
const CLIENTS: usize = 2;

/// A server in a namespace, ended when dropped.
struct Server {
    namespace: String,
    address: Ipv4Addr,
    directory: PathBuf,
    child: Child,
}

impl Server {
    fn start(network: &Network, node: usize, more: &[&str]) -> Self {
        let (namespace, address) = (network.namespace(node).to_owned(), network.address(node));
        let directory = std::env::temp_dir().join(format!("{namespace}-redis"));
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new("ip");
        // Each replaces itself by the next: the process id stays.
        command.args(["netns", "exec", &namespace, "setpriv", "--pdeathsig", "KILL"]);
        command.args(["redis-server", "--port", &PORT.to_string()]);
        // Only the namespaces of this test reach that address.
        command.args(["--bind", &address.to_string(), "--protected-mode", "no"]);
        command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
        command.args(more).arg("--dir").arg(&directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { namespace, address, directory, child: command.spawn().unwrap() };
        server.until("PING", "PONG");
        server
    }

    fn url(&self) -> String {
        format!("redis://{}:{PORT}/", self.address)
    }

    /// The server's reply to a command; the parent is outside of its network.
    fn say(&self, words: &str) -> String {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "timeout", "2", "redis-cli", "-h"]);
        command.arg(self.address.to_string()).args(words.split(' ')).stdin(Stdio::null());
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    }

    fn until(&self, words: &str, reply: &str) {
        let until = Instant::now() + PROGRESS_BOUND;
        while !self.say(words).contains(reply) {
            assert!(Instant::now() < until, "{words}: no {reply} within {PROGRESS_BOUND:?}");
            sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn fails_over(_: &mut Plan) -> Tally {
    let network = Network::of(3);
    let mut master = Server::start(&network, MASTER, &[]);
    let of = [network.address(MASTER).to_string(), PORT.to_string()];
    let replica = Server::start(&network, REPLICA, &["--replicaof", &of[0], &of[1]]);
    replica.until("INFO replication", "master_link_status:up");

    let post = |name: &str, server: &Server| Post {
        name: name.into(),
        namespace: Some(network.namespace(CLIENTS).into()),
        backend: Backend::Redis { url: server.url() },
    };
    let posts = vec![post("of-the-master", &master)];
    let mut crew = Crew::start_with(posts, Duration::from_secs(20));
    crew.progress(0).unwrap();
    // The replica follows: it knows the token counter of the key.
    replica.until("KEYS *", "}:t");

    // No lock is held at the cut, so the replica lacks only the locks taken after it.
    crew.halt();
    sleep(Duration::from_millis(50));
    let (to_replica, to_master) = (network.cut(MASTER, REPLICA), network.cut(REPLICA, MASTER));
    crew.resume();
    crew.progress(now()).unwrap();
    two_holders(&mut crew, |crew| {
        let replicated = replica.say("KEYS *");
        master.kill();
        replica.say("REPLICAOF NO ONE");
        replica.until("INFO replication", "role:master");
        assert!(!replicated.contains("}:l:"), "the replica knows of a lock: {replicated}");
        let post = post("of-the-promoted", &replica);
        crew.join(post);
    });
    let packets = to_replica.lift() + to_master.lift();
    assert!(packets > 0, "the cut dropped nothing: it was none");
    crew.tally.add("packets dropped", packets);
    crew.tally.add("failovers", 1);

    // The master's client has no server any more; a real one would be redirected.
    let status = crew.processes[0].kill();
    crew.was_killed(status);
    crew.processes.remove(0);
    crew.heal();
    crew.close();
    let keys = replica.say("KEYS *");
    let stays = |key: &str| key.is_empty() || key.ends_with("}:t") || key.ends_with("}:x");
    assert!(keys.lines().all(stays), "left in Redis: {keys}");
    let tally = crew.check(Memory::Lost);
    assert!(tally.of("two holders, as documented") > 0, "the documented loss was not seen");
    tally
}
