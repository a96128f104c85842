//! Goal: the loss of a lock is reported although the command takes no signal. Method: `gaggle run`
//! as an unprivileged user, and a command that becomes root by a setuid copy of `setpriv`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use gaggle_fixtures::RedisServer;
use run_support::{force_unlock, wait_until};
use serde_json::Value;

/// A user without rights.
const USER: u32 = 65_534;

/// A directory of programs and of the events of a run, which that user can read.
struct Setting {
    redis: RedisServer,
    folder: PathBuf,
}

impl Setting {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gaggle-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let install = |from: &Path, name: &str, mode| {
            fs::copy(from, folder.join(name)).unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).unwrap();
        };
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        install(Path::new(env!("CARGO_BIN_EXE_gaggle")), "gaggle", 0o755);
        install(Path::new("/usr/bin/setpriv"), "become", 0o4755);
        Self { redis: RedisServer::start(), folder }
    }

    /// Starts a run whose command sleeps as root.
    fn start(&self, options: &[&str], seconds: &str) -> Child {
        let mut command = Command::new(self.folder.join("gaggle"));
        command.args(["run", "--json"]).args(options).args(["k", "--"]);
        command.arg(self.folder.join("become"));
        command.args(["--reuid", "0", "--clear-groups", "sleep", seconds]);
        command.env_remove("RUST_LOG").env("GAGGLE_URL", self.redis.url());
        let events = fs::File::create(self.folder.join("events")).unwrap();
        command.stdin(Stdio::null()).stderr(events);
        command.uid(USER).gid(USER).spawn().unwrap()
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("events")).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn names(&self) -> Vec<String> {
        self.events().iter().map(|it| it["event"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
#[ignore = "needs root"]
fn loss_of_a_command_without_signals_is_reported() {
    let setting = Setting::new("forced");
    let mut run = setting.start(&["--kill-after", "100ms"], "5");
    wait_until(|| setting.names() == ["granted"]);
    // The command runs as root by then.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(force_unlock(&setting.redis, "it's stuck"));
    wait_until(|| setting.names().len() == 3);
    assert!(run.try_wait().unwrap().is_none(), "while the command runs");
    assert_eq!(run.wait().unwrap().code(), Some(123));
    assert_eq!(setting.names(), ["granted", "not_permitted", "lost"]);
    let lost = &setting.events()[2];
    assert_eq!((&lost["cause"], &lost["command"]), (&"forced".into(), &"running".into()));
    assert!(lost["by"].as_str().unwrap().ends_with("it's stuck"), "{lost}");
    let text = "\"k\" was lost; the command runs on, it takes no signal: force-unlocked by ";
    assert!(lost["text"].as_str().unwrap().starts_with(text), "{lost}");
}
