//! Machines of the test's own: network namespaces on a bridge, which itself stands in a namespace,
//! so that nothing outside is touched. Needs root, `ip` and `iptables`.

use std::{
    net::Ipv4Addr,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// Begins the name of every namespace, socket and directory of ours; the process id follows.
pub(crate) const PREFIX: &str = "gaggle-chaos-";

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Some machines on one network. Dropping it takes everything away.
pub(crate) struct Network {
    hub: String,
    nodes: Vec<String>,
}

/// A rule by which one machine drops another's packets, until it is dropped itself or lifted.
pub(crate) struct Cut<'a> {
    network: &'a Network,
    node: usize,
    source: Ipv4Addr,
    lifted: bool,
}

impl Network {
    pub(crate) fn of(count: usize) -> Self {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = |node: &str| format!("{PREFIX}{}-{number}{node}", std::process::id());
        // Named first, so that a failure half-way leaves nothing behind.
        let nodes = (0..count).map(|node| name(&format!("-{node}"))).collect();
        let network = Self { hub: name("-hub"), nodes };
        let hub = &network.hub;
        run(&format!("ip netns add {hub}"));
        run(&format!("ip -n {hub} link add name br0 type bridge"));
        run(&format!("ip -n {hub} link set br0 up"));
        for (node, name) in network.nodes.iter().enumerate() {
            let address = network.address(node);
            run(&format!("ip netns add {name}"));
            run(&format!(
                "ip -n {name} link add name eth0 type veth peer name port{node} netns {hub}"
            ));
            run(&format!("ip -n {hub} link set port{node} master br0 up"));
            run(&format!("ip -n {name} addr add {address}/24 dev eth0"));
            run(&format!("ip -n {name} link set eth0 up"));
            run(&format!("ip -n {name} link set lo up"));
        }
        network
    }

    /// The namespace of a machine.
    pub(crate) fn namespace(&self, node: usize) -> &str {
        &self.nodes[node]
    }

    #[allow(clippy::unused_self, reason = "an address belongs to a network")]
    pub(crate) fn address(&self, node: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, u8::try_from(node + 1).unwrap())
    }

    /// From now on `node` hears nothing of `from`; the other way stays open.
    pub(crate) fn cut(&self, from: usize, node: usize) -> Cut<'_> {
        let cut = Cut { network: self, node, source: self.address(from), lifted: false };
        run(&cut.command("-A"));
        cut
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.nodes.iter().chain([&self.hub]) {
            quietly(&format!("ip netns delete {name}"));
        }
    }
}

impl Cut<'_> {
    /// How many packets it has dropped.
    pub(crate) fn packets(&self) -> u64 {
        let namespace = self.network.namespace(self.node);
        let listed = run(&format!("ip netns exec {namespace} iptables -w -nvxL INPUT"));
        let source = self.source.to_string();
        let ours = listed.lines().filter(|line| line.split_whitespace().any(|word| word == source));
        ours.filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok()).sum()
    }

    /// Ends it; says how many packets it has dropped.
    pub(crate) fn lift(mut self) -> u64 {
        let packets = self.packets();
        self.lifted = true;
        run(&self.command("-D"));
        packets
    }

    fn command(&self, what: &str) -> String {
        let (namespace, source) = (self.network.namespace(self.node), self.source);
        format!("ip netns exec {namespace} iptables -w {what} INPUT -s {source} -j DROP")
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if !self.lifted {
            quietly(&self.command("-D"));
        }
    }
}

/// Checks the requirements, and removes the leftovers of killed runs.
pub(crate) fn prepare() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces need root: run the test as root (sudo -E)".into());
    }
    for (program, argument, package) in [
        ("ip", "-V", "iproute2"),
        ("iptables", "-V", "iptables"),
        ("redis-server", "-v", "redis-server"),
        ("redis-cli", "-v", "redis-tools"),
    ] {
        if !quietly(&format!("{program} {argument}")) {
            return Err(format!("{program} is missing: install the Debian package {package}"));
        }
    }
    for name in run("ip netns list").lines().filter_map(|line| line.split_whitespace().next()) {
        if is_left_behind(name) {
            quietly(&format!("ip netns delete {name}"));
        }
    }
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        if is_left_behind(&entry.file_name().to_string_lossy()) {
            let _ = std::fs::remove_dir_all(entry.path());
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let trial = Network::of(2);
    let packets = trial.cut(0, 1).lift();
    if packets == 0 { Ok(()) } else { Err("a new network has packets on it".into()) }
}

/// Whether the process that created this name has ended.
fn is_left_behind(name: &str) -> bool {
    let of = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    of.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
}

/// Runs a command that must succeed. Returns its output.
fn run(line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command; whether it succeeded.
fn quietly(line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
