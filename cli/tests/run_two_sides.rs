//! Goal: two machines run one scheduled job by `gaggle run --try --at-least`, over TLS. Each firing
//! runs on exactly one, and the loss of the Redis lets no two runs write by turns.
//! Method: two processes for each firing, whose clocks differ; the jobs write to a fenced log; the
//! Redis is killed in the middle of runs. And real `cron` on two machines, which are namespaces.
//! `GAGGLE_FIRINGS` and `GAGGLE_CRON_MINUTES` are the numbers of firings of the long forms.
#![cfg(all(feature = "tls", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use gaggle_fixtures::{Certificates, RedisServer, free_port};
use run_support::{gaggle, wait_until};
use rustix::time::{ClockId, clock_gettime};

const SIDES: [&str; 2] = ["a", "b"];
/// The clocks of the sides differ by less than this.
const SKEW_MAX: Duration = Duration::from_millis(100);
/// The Redis is killed once in this many firings.
const KILL_EACH: usize = 10;

/// The job of each firing: it writes `token firing side`, and what it does, to a log. The log
/// refuses a token that is less than its last one. With `long` the job writes until it is ended.
const JOB: &str = r#"
write() {
  (
    flock 9
    echo "$GAGGLE_FENCING_TOKEN $firing $side $1" >>"$LOG.unfenced"
    last=$(tail -n 1 "$LOG")
    [ "${last%% *}0" -le "${GAGGLE_FENCING_TOKEN}0" ] || exit 1
    echo "$GAGGLE_FENCING_TOKEN $firing $side $1" >&9
  ) 9>>"$LOG"
}
write begin || exit 1
while [ "$long" ]; do write work || exit 1; sleep 0.01; done
sleep 0.02
write end
"#;

/// A Redis over TLS, the file with its URL, and the log.
struct Setting {
    redis: RedisServer,
    certificates: Certificates,
    log: PathBuf,
}

impl Setting {
    fn new() -> Self {
        let (certificates, port) = (Certificates::new(), free_port());
        let redis = RedisServer::start_tls(&certificates, port);
        let ca = certificates.path("ca.pem");
        let url = format!("rediss://localhost:{port}?tls_ca={}\n", ca.display());
        certificates.write("url", &url);
        let log = certificates.write("log", "");
        certificates.write("log.unfenced", "");
        certificates.write("job", JOB);
        Self { redis, certificates, log }
    }

    fn path(&self, name: &str) -> String {
        self.certificates.path(name).to_str().unwrap().to_owned()
    }

    /// Starts the job of one side.
    fn fire(&self, firing: usize, side: &str, is_long: bool) -> Child {
        let (url, job) = (self.path("url"), self.path("job"));
        let options = ["--try", "--at-least", "1s", "--duration", "1s", "--url-file", &url];
        let words = ["report", "--", "bash", &job];
        let mut command = gaggle("", &[&options[..], &words].concat());
        command.env("LOG", &self.log).env("firing", firing.to_string()).env("side", side);
        command.env("long", if is_long { "long" } else { "" });
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Starts the job on both sides, first on one and a moment later on the other.
    fn fire_both(&self, firing: usize, is_long: bool) -> [Child; 2] {
        let (first, second) = if firing.is_multiple_of(2) { (0, 1) } else { (1, 0) };
        let started = self.fire(firing, SIDES[first], is_long);
        sleep(SKEW_MAX * u32::try_from(firing % 7).unwrap() / 7);
        let mut both = [started, self.fire(firing, SIDES[second], is_long)];
        both.rotate_left(first);
        both
    }

    /// Waits until the time of `--at-least` has passed.
    fn wait_until_free(&self) {
        let wait = ["--url-file", &self.path("url"), "report", "--", "true"];
        assert!(gaggle("", &wait).status().unwrap().success());
    }

    fn runs(&self) -> Vec<Run> {
        runs(&fs::read_to_string(&self.log).unwrap())
    }
}

/// What one run has written, without interruption by another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    token: u64,
    firing: String,
    side: String,
    has_ended: bool,
}

/// The runs of a log, in its order.
///
/// # Panics
///
/// If two runs have written by turns, or one began twice.
fn runs(log: &str) -> Vec<Run> {
    let mut runs = Vec::<Run>::new();
    for line in log.lines() {
        let [token, firing, side, what] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line:?}");
        };
        let token = token.parse().unwrap();
        if what == "begin" {
            assert!(runs.last().is_none_or(|last| last.token < token), "{line:?}: {runs:?}");
            let (firing, side) = (firing.to_owned(), side.to_owned());
            runs.push(Run { token, firing, side, has_ended: false });
            continue;
        }
        let last = runs.last_mut().unwrap();
        assert!(last.token == token && !last.has_ended, "{line:?}: {last:?}");
        last.has_ended = what == "end";
    }
    runs
}

/// Fires on both sides. In some firings the Redis is killed while the job runs, and started again
/// at once, or after the job was ended.
fn fire_all(firings: usize) {
    let mut setting = Setting::new();
    let (mut expected, mut sides) = (Vec::new(), BTreeMap::new());
    let mut killed = Vec::new();
    for firing in 0..firings {
        let is_killed = firing % KILL_EACH == KILL_EACH / 2;
        let [mut a, mut b] = setting.fire_both(firing, is_killed);
        if is_killed {
            // The other side has lost, and the Redis is killed in the middle of the run.
            wait_until(|| setting.runs().len() == firing + 1);
            let winner = setting.runs().pop().unwrap().side == SIDES[0];
            let (mut winner, mut loser) = if winner { (a, b) } else { (b, a) };
            assert_eq!(loser.wait().unwrap().code(), Some(124), "firing {firing}");
            setting.redis.stop();
            if killed.len() % 2 == 0 {
                assert_eq!(winner.wait().unwrap().code(), Some(123), "firing {firing}");
            }
            setting.redis.restart();
            killed.push(winner);
        } else {
            let mut codes = [&mut a, &mut b].map(|side| side.wait().unwrap().code());
            *sides.entry(codes[0] == Some(0)).or_insert(0) += 1;
            codes.sort_unstable();
            assert_eq!(codes, [Some(0), Some(124)], "firing {firing}");
            setting.wait_until_free();
        }
        expected.push((firing.to_string(), !is_killed));
    }
    for winner in &mut killed {
        assert_eq!(winner.wait().unwrap().code(), Some(123));
    }
    let found: Vec<_> = setting.runs().into_iter().map(|run| (run.firing, run.has_ended)).collect();
    assert_eq!(found, expected);
    let unfenced = fs::read_to_string(setting.path("log.unfenced")).unwrap();
    let refused =
        unfenced.lines().count() - fs::read_to_string(&setting.log).unwrap().lines().count();
    let counts: Vec<usize> = sides.values().copied().collect();
    let (runs, kills) = (found.len(), killed.len());
    println!(
        "{runs} firings, each on one side ({counts:?} without a fault); the Redis was killed in"
    );
    println!("{kills}; {refused} writes refused by the fence");
}

/// The number that a variable gives, or this.
fn number(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |number| number.parse().unwrap())
}

#[test]
#[should_panic(expected = "1 0 a end")]
fn runs_that_write_by_turns_are_found() {
    runs("1 0 a begin\n2 1 b begin\n1 0 a end\n");
}

#[test]
fn firing_runs_on_one_of_two_sides() {
    fire_all(7);
}

#[test]
#[ignore = "takes minutes"]
fn many_firings_run_on_one_of_two_sides() {
    fire_all(number("GAGGLE_FIRINGS", 200));
}

/// What makes a machine of a namespace: its name, and no crontab but that of this test.
const MACHINE: &str = r#"
hostname "$side"
[ ! -e /etc/crontab ] || mount --bind /dev/null /etc/crontab
[ ! -d /etc/cron.d ] || mount -t tmpfs none /etc/cron.d
mount -t tmpfs none /var/spool
mount -t tmpfs none /run
mkdir -p /var/spool/cron/crontabs
cp "$crontab" /var/spool/cron/crontabs/root
chmod 600 /var/spool/cron/crontabs/root
exec "$cron" -f
"#;

/// A machine that ends with its namespaces.
struct Machine(Child);

impl Machine {
    fn start(setting: &Setting, side: &str) -> Self {
        let (url, job) = (setting.path("url"), setting.path("job"));
        let (log, gaggle) = (setting.log.display(), env!("CARGO_BIN_EXE_gaggle"));
        let crontab = format!(
            "SHELL=/bin/bash\nMAILTO=\"\"\nLOG={log}\nside={side}\n* * * * * export \
             firing=$(date +\\%H:\\%M); {gaggle} run --url-file {url} --try --at-least 10s report -- \
             bash {job}; echo \"$firing $side $?\" >>{log}.codes\n"
        );
        let crontab = setting.certificates.write(&format!("crontab-{side}"), &crontab);
        let cron = env::var_os("GAGGLE_CRON").unwrap_or_else(|| "/usr/sbin/cron".into());
        assert!(Path::new(&cron).exists(), "{}: no cron; apt-get install cron", cron.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-euc", MACHINE]).stdin(Stdio::null());
        command.env("side", side).env("crontab", crontab).env("cron", cron);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "takes minutes, and needs cron and root"]
fn cron_of_two_machines_runs_each_job_once() {
    let minutes = number("GAGGLE_CRON_MINUTES", 5);
    let setting = Setting::new();
    let codes = setting.certificates.write("log.codes", "");
    for file in [&setting.log, &codes] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    // Both begin in the same minute.
    while clock_gettime(ClockId::Realtime).tv_sec % 60 > 50 {
        sleep(Duration::from_secs(1));
    }
    let machines = SIDES.map(|side| Machine::start(&setting, side));
    let lines = || fs::read_to_string(&codes).unwrap().lines().count();
    let has_ended = (0..60 * (minutes + 1)).any(|_| {
        sleep(Duration::from_secs(1));
        lines() >= minutes * SIDES.len()
    });
    drop(machines);
    assert!(has_ended, "{} codes", lines());
    let mut firings = BTreeMap::<String, Vec<String>>::new();
    for line in fs::read_to_string(&codes).unwrap().lines() {
        let (firing, end) = line.split_once(' ').unwrap();
        firings.entry(firing.into()).or_default().push(end.into());
    }
    println!("minute: side and exit code of each: {firings:?}");
    let runs = setting.runs();
    for (firing, ends) in &firings {
        let count = |code: &str| ends.iter().filter(|end| end.ends_with(code)).count();
        assert_eq!((ends.len(), count(" 0"), count(" 124")), (2, 1, 1), "{firing}: {ends:?}");
        let ran: Vec<_> = runs.iter().filter(|run| run.firing == *firing).collect();
        assert!(ran.len() == 1 && ran[0].has_ended, "{firing}: {ran:?}");
        assert!(ends.contains(&format!("{} 0", ran[0].side)), "{firing}: {ends:?}");
    }
    assert_eq!((firings.len(), runs.len()), (minutes, minutes));
}
