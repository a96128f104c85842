//! The targets, each as a ratio or a bound within this run, and whether it was met.

use gaggle_workloads::Figures;
use serde::Serialize;

use crate::{apart, data::Data};

/// A line of the table.
#[derive(Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) measured: String,
    pub(crate) target: &'static str,
    pub(crate) met: bool,
}

/// How many a whole run has.
pub(crate) const COUNT: usize = 41;
const MEMBERS: f64 = 5.0;
const FIFO: &[&str] = &["Redis", "Gaggle, Memory", "Gaggle, TCP", "Gaggle, Redis"];
const POLLING: &[&str] = &["Raft, Memory", "Raft, TCP", "Raft, Redis"];
const TCP: &str = "Gaggle, TCP, 3 processes";
pub(crate) const ETCD: &str = "etcd, 3 nodes";
pub(crate) const HTTP: &str = "Gaggle over HTTP, 3 nodes";
/// The two commands of an uncontended lock.
pub(crate) const BARE: &str = "SET NX PX, EVALSHA";
/// Two scripts: a lease and a fencing token, and nothing else of a lock.
pub(crate) const SCRIPTS: &str = "Two scripts with a token";
/// A token that Redis grants in turn: a competitor with next to nothing of a lock.
pub(crate) const TOKEN: &str = "BLPOP, RPUSH";

/// All targets that the measured data allow.
pub(crate) fn all(data: &Data) -> Vec<Target> {
    let mut table = Table { data, lines: Vec::new() };
    table.gaggle1();
    table.local();
    table.redis();
    table.tcp();
    table.http();
    table.rest();
    table.lines
}

struct Table<'a> {
    data: &'a Data,
    lines: Vec<Target>,
}

impl Table<'_> {
    fn say(&mut self, what: impl Into<String>, measured: String, target: &'static str, met: bool) {
        self.lines.push(Target { what: what.into(), measured, target, met });
    }

    /// A number that must not be exceeded.
    fn most(
        &mut self,
        what: &str,
        value: Option<f64>,
        unit: &str,
        most: f64,
        target: &'static str,
    ) {
        if let Some(value) = value {
            self.say(what, format!("{}{unit}", number(value)), target, value <= most);
        }
    }

    /// A number that must be reached.
    fn least(
        &mut self,
        what: &str,
        value: Option<f64>,
        unit: &str,
        least: f64,
        target: &'static str,
    ) {
        if let Some(value) = value {
            self.say(what, format!("{}{unit}", number(value)), target, value >= least);
        }
    }

    fn rate(&self, workload: &str, lock: &str) -> Option<f64> {
        Some(self.data.of(workload, lock)?.pairs_per_s)
    }

    fn ratio(&self, workload: &str, lock: &str, peer: &str) -> Option<f64> {
        Some(self.rate(workload, lock)? / self.rate(workload, peer)?)
    }

    /// A competitor's figure, to stand behind ours, if it was measured.
    fn beside(&self, peer: &str, value: Option<f64>) -> String {
        value.map_or(String::new(), |value| format!(" ({peer}: {})", number(value)))
    }

    fn gaggle1(&mut self) {
        let Some(sequential) = self.data.of("gaggle1-contended", "sequential") else { return };
        let sequential = sequential.ms_per_pair;
        let over = |data: &Data, lock: &str| {
            let figures = data.of("gaggle1-contended", lock)?;
            Some((figures.ms_per_pair - sequential, figures.longest_streak.unwrap_or(0)))
        };
        for lock in FIFO {
            let Some((ms, streak)) = over(self.data, lock) else { continue };
            let measured = format!("{ms:+.2} ms, streak {streak}");
            let what = format!("Gaggle 1.x, contended − sequential ({sequential:.2} ms): {lock}");
            self.say(what, measured, "≤ +0.5 ms, streak 1", ms <= 0.5 && streak <= 1);
        }
        for lock in POLLING {
            let Some((ms, streak)) = over(self.data, lock) else { continue };
            let measured = format!("{ms:+.2} ms, streak {streak}");
            self.say(format!("the same: {lock}, which polls"), measured, "≤ +3 ms", ms <= 3.0);
        }
        for lock in FIFO.iter().chain(POLLING) {
            let Some(figures) = self.data.of("gaggle1-uncontended", lock) else { continue };
            let ratio_of = |ms: f64| ms / (sequential / MEMBERS);
            let ratio = ratio_of(figures.ms_per_pair);
            let mut what = format!("Gaggle 1.x, uncontended ÷ (sequential ÷ 5): {lock}");
            if *lock == "Redis" {
                for (what_less, less) in [("two bare commands", BARE), ("two scripts", SCRIPTS)] {
                    let Some(less) = self.data.of("gaggle1-uncontended", less) else { continue };
                    what += &format!(" ({what_less}: {:.4})", ratio_of(less.ms_per_pair));
                }
            }
            // More digits than others, because the difference is in the thousandths.
            self.say(what, format!("{ratio:.4}"), "≤ 1.01", ratio <= 1.01);
        }
    }

    fn local(&mut self) {
        const MAP: &str = "DashMap of mutexes";
        for (workload, least, target) in [
            ("uncontended", 1e6, "≥ 1 M: 0.33 of 3.0 M"),
            ("fan", 1.5e6, "≥ 1.5 M: 0.35 of 4.3 M"),
            ("handoff", 0.7e6, "≥ 0.7 M: 0.33 of 2.15 M"),
        ] {
            let Some(pairs) = self.rate(workload, "Local") else { continue };
            let peer = self.beside(MAP, self.rate(workload, MAP));
            let what = format!("`Local`, {}, pairs/s{peer}", phrase(workload));
            let share = share(self.ratio(workload, "Local", MAP), "of the map");
            self.say(what, number(pairs) + &share, target, pairs >= least);
        }
    }

    fn redis(&mut self) {
        let bare = self.ratio("uncontended", "Redis", BARE);
        let rslock = self.beside("rslock", self.ratio("uncontended", "rslock", BARE));
        let what = format!("Redis, one uncontended key ÷ bare SET NX PX and EVALSHA{rslock}");
        self.least(&what, bare, "", 0.97, "≥ 0.97");
        let fan = self.ratio("fan", "Redis", "rslock");
        let mut bare = self.beside("two bare commands", self.ratio("fan", BARE, "rslock"));
        bare += &self.beside("two scripts", self.ratio("fan", SCRIPTS, "rslock"));
        self.least(&format!("Redis, 64 keys ÷ rslock{bare}"), fan, "", 1.3, "≥ 1.3");
        let hot = self.ratio("handoff", "Redis", "PostgreSQL");
        let token = self.beside("a bare token", self.ratio("handoff", TOKEN, "PostgreSQL"));
        let what = format!("Redis, one contended key, one process ÷ PostgreSQL{token}");
        self.least(&what, hot, "", 2.0, "≥ 2");
        if let Some(hot) = self.data.of("handoff", "Redis") {
            let worst = hot.lock_us.max / hot.lock_us.p50;
            let what = "Redis, one contended key, one process: hand-off share, worst wait ÷ p50";
            let met = always_hands_off(&hot) && worst <= 20.0;
            let measured = format!("{}, {}", hand_off_share(&hot), number(worst));
            self.say(what, measured, "100 %, ≤ 20", met);
        }
        self.redis_processes();
        if let Some(busy) = self.data.of("busy", "Redis") {
            let p99_ms = busy.lock_us.p99 / 1e3;
            let measured = format!("{:.1} a second, p99 {p99_ms:.1} ms", busy.pairs_per_s);
            let met = busy.pairs_per_s >= 160.0 && p99_ms <= 45.0;
            let token = self.beside("a bare token", self.rate("busy", TOKEN));
            self.say(
                format!("Redis, {}{token}", phrase("busy")),
                measured,
                "≥ 160, p99 ≤ 45 ms",
                met,
            );
        }
    }

    fn redis_processes(&mut self) {
        let bare = self.data.of("uncontended", BARE);
        let hot = self.data.of("handoff", "Redis, 8 processes");
        if let (Some(bare), Some(hot)) = (bare, hot)
            && let Some(handoff) = hot.handoff_us
        {
            let trips = handoff.p50 / bare.lock_us.p50;
            let measured = format!(
                "p50 {:.0} µs ({} round trips), p99 {:.0} µs, {}",
                handoff.p50,
                number(trips),
                handoff.p99,
                hand_off_share(&hot),
            );
            let met = trips <= 2.0 && handoff.p99 <= 200.0 && always_hands_off(&hot);
            let target = "p50 ≤ 2 round trips, p99 ≤ 200 µs, 100 %";
            let beside = |what: &str, lock: &str| {
                let handoff = self.data.of("handoff", lock).and_then(|figures| figures.handoff_us);
                handoff.map_or_else(String::new, |handoff| {
                    format!(" ({what}: p50 {:.0} µs, p99 {:.0} µs)", handoff.p50, handoff.p99)
                })
            };
            let mut token = beside("a bare token", apart::TOKEN);
            token += &beside("PostgreSQL", apart::POSTGRES);
            let what = format!("Redis, one contended key, eight processes: hand-off{token}");
            self.say(what, measured, target, met);
        }
        let few = self.data.get("redis_commands_per_handoff_8_waiters");
        let many = self.data.get("redis_commands_per_handoff_1000_waiters");
        if let (Some(few), Some(many)) = (few, many) {
            let measured = format!("{}; with 1,000 waiters {}", number(few), number(many));
            let met = few <= 4.0 && many <= few * 1.05;
            let what = "Redis, eight handles: commands sent for a hand-off";
            self.say(what, measured, "≤ 4, no more with 1,000 waiters", met);
        }
    }

    fn tcp(&mut self) {
        let leader = format!("{TCP}, leader");
        let ratio = self
            .rate("uncontended", &leader)
            .zip(self.rate("uncontended", ETCD))
            .map(|(a, b)| a / b);
        self.least(
            "Gaggle over TCP, 3 processes, one uncontended key ÷ etcd",
            ratio,
            "",
            4.0,
            "≥ 4",
        );
        let fan = self.ratio("fan", TCP, ETCD);
        self.least("Gaggle over TCP, 3 processes, 64 keys ÷ etcd", fan, "", 15.0, "≥ 15");
        if let (Some(ratio), Some(hot)) =
            (self.ratio("handoff", TCP, ETCD), self.data.of("handoff", TCP))
        {
            let p50 = hot.handoff_us.map_or(f64::INFINITY, |handoff| handoff.p50);
            let measured = format!("{}, hand-off p50 {p50:.0} µs", number(ratio));
            let met = ratio >= 50.0 && p50 < 300.0;
            self.say(
                "Gaggle over TCP, 3 processes, one contended key ÷ etcd",
                measured,
                "≥ 50, < 300 µs",
                met,
            );
        }
        let Some(floor) = self.data.get("quorum_floor_p50_us") else { return };
        let p50 = |data: &Data, place: &str| {
            data.of("uncontended", &format!("{TCP}, {place}")).map(|figures| figures.lock_us.p50)
        };
        let what =
            format!("Gaggle over TCP: lock p50 at the leader ÷ quorum floor ({floor:.0} µs)");
        let at_leader = p50(self.data, "leader");
        self.most(&what, at_leader.map(|us| us / floor), "", 1.5, "≤ 1.5");
        let Some(trip) = self.data.get("round_trip_p50_us") else { return };
        let more = p50(self.data, "follower").zip(at_leader).map(|(far, near)| (far - near) / trip);
        let what = format!(
            "Gaggle over TCP: a follower's lock p50 − the leader's, in round trips to a process ({trip:.0} µs)"
        );
        self.most(&what, more, "", 1.0, "≤ 1: one round trip");
    }

    fn http(&mut self) {
        for (workload, least, target) in
            [("uncontended", 2.0, "≥ 2"), ("fan", 2.0, "≥ 2"), ("handoff", 10.0, "≥ 10")]
        {
            let what = format!("{HTTP}, {} ÷ etcd", phrase(workload));
            self.least(&what, self.ratio(workload, HTTP, ETCD), "", least, target);
        }
        let p50 = |lock: &str| Some(self.data.of("uncontended", lock)?.lock_us.p50);
        let ratio = p50(HTTP).zip(p50(&format!("{TCP}, follower"))).map(|(far, near)| far / near);
        self.most("the same: lock p50 ÷ that of a member", ratio, "", 4.0, "≤ 4");
    }

    fn rest(&mut self) {
        let data = self.data;
        for how in ["killed", "stopped"] {
            let figure = |which: &str| data.get(&format!("failover_{how}_{which}_ms"));
            let (Some(median), Some(worst)) = (figure("median"), figure("worst")) else { continue };
            let count = data.get("failovers").unwrap_or(0.0);
            let what = format!("leader {how} to the next grant, {count} times, three processes");
            let measured = format!("median {median:.0} ms, worst {worst:.0} ms");
            self.say(what, measured, "≤ 400, ≤ 800 ms", median <= 400.0 && worst <= 800.0);
        }
        let many = data.get("many_waiters").unwrap_or(0.0);
        let slower = |name: &str| {
            let p50 = |waiters: f64| data.get(&format!("{name}_handoff_p50_us_{waiters}_waiters"));
            p50(many).zip(p50(10.0)).map(|(many, few)| many / few)
        };
        let mutexes = slower("dashmap").map_or_else(String::new, |ratio| {
            format!(" (DashMap of mutexes, max_wait: {ratio:.2})")
        });
        for (name, shown, beside) in
            [("gaggle", "Gaggle over Memory", ""), ("local", "`Local`", &*mutexes)]
        {
            let ratio = slower(name);
            let what = format!("{shown}: hand-off with {} waiters ÷ with 10{beside}", number(many));
            self.most(&what, ratio, "", 2.0, "≤ 2");
        }
        self.most("`Local`: bytes a key held", data.get("bytes_per_key_held"), "", 300.0, "≤ 300");
        for place in ["leader", "follower"] {
            let after =
                |share| data.get(&format!("resident_mib_{place}_after_{share}_of_the_pairs"));
            let (Some(half), Some(all)) = (after("half"), after("all")) else { continue };
            let pairs = number(data.get("pairs_watched").unwrap_or(0.0));
            let what = format!("3 members resident after {pairs} pairs at a {place} (after half)");
            let measured = format!("{all:.0} MiB ({half:.0} MiB)");
            self.say(what, measured, "flat", all <= half * 1.05 + 1.0);
        }
        let cpu = data.get("cpu_at_rest_percent_of_a_core");
        let bare = data.get("cpu_of_bare_heartbeats_percent_of_a_core");
        let bare = bare.map_or_else(String::new, |bare| format!(" (bare heartbeats: {bare:.2} %)"));
        let what = format!("CPU at rest, the busiest of 3 members{bare}");
        self.most(&what, cpu, " %", 0.5, "≤ 0.5 % of a core");
    }
}

/// A workload in the words of the pages.
fn phrase(workload: &str) -> &'static str {
    match workload {
        "uncontended" => "one uncontended key",
        "fan" => "64 keys",
        "handoff" => "one contended key",
        _ => "one contended key, 5 ms inside and away",
    }
}

/// All but what chance makes of the first and the last.
fn always_hands_off(figures: &Figures) -> bool {
    figures.handoff_share.is_some_and(|share| share >= 0.999)
}

fn hand_off_share(figures: &Figures) -> String {
    format!("hand-off share {:.1} %", figures.handoff_share.unwrap_or(0.0) * 100.0)
}

/// What a figure is of another of the same run, to stand behind it: machines differ.
fn share(ratio: Option<f64>, of: &str) -> String {
    ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} {of}"))
}

/// Three digits that say something, thousands apart.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{value:.2}");
    }
    if value.abs() < 1000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}
