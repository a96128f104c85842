//! The commands, and the runtime in which each of them runs.

use std::{
    any::TypeId,
    env,
    ffi::OsStr,
    future::Future,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::{
    ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    builder::Resettable,
    error::{ContextKind, ContextValue, ErrorKind},
};
use gaggle::MaxWait;
use tokio::runtime::Builder;

use crate::{bench, cert, failure::Failure, operate, output, run, runtime, serve};

/// A keyed mutex whose strategy you choose: in process, Redis, or an embedded Raft group.
#[derive(Parser)]
#[command(name = "gaggle", version = crate::VERSION)]
#[command(propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command while this process holds the lock of a key: a scheduled job runs once.
    ///
    /// The command runs in a new process group. It gets SIGTERM before its lease ends and SIGKILL
    /// in time, also if this process is stopped or killed.
    ///
    /// The server may lose the lock earlier, as in a failover of Redis. The command then gets both as
    /// soon as that is noticed, at most 1s apart. Until then two commands may run, and only a resource
    /// that checks fencing tokens refuses one.
    ///
    /// Processes that left the group are ended with the command, if they still have its
    /// GAGGLE_NONCE. They run on after a command that ends under its lock, unless its code is 129,
    /// 130, 131 or 143, as of a shell after HUP, INT, QUIT or TERM. Signals are forwarded to the
    /// group, unless the command runs as another user: use `sudo gaggle run`, not `gaggle run …
    /// sudo`. The command finds GAGGLE_KEY, GAGGLE_FENCING_TOKEN, GAGGLE_NONCE and GAGGLE_URL
    /// (without its password) in its environment.
    ///
    /// Exit code: the command's own, or 128+n after signal n, also while it waits for the key. 122
    /// if the server cannot be used, 123 if the lock was lost, 124 if the key is held. 125 after
    /// wrong use, 126 if the command cannot be executed, 127 if it is not found.
    Run(run::Args),
    /// Serve locks over HTTP, for programs in any language.
    ///
    /// Without --url it is a lock server for the programs of this machine. Over a Redis it is a
    /// front for it; over gaggle+tcp it is a node of a replicated lock service. docs/http-api.md of
    /// the project has the API.
    ///
    /// SIGTERM ends it within 10s: waiting requests get 503, and active claims stay, unless --url is
    /// local. A second SIGTERM ends it at once. SIGHUP reads tokens and certificates again.
    Serve(serve::Args),
    /// List the keys that are held: holder, age, rest of the lease, waiters, token.
    ///
    /// The list fits 80 columns and shortens long keys; --json prints one whole object a line.
    /// Each thousand of keys is sorted, and a list is not a snapshot.
    ///
    /// Exit code: 2 after a failure, also if the stored value of a key is not a lock.
    List(operate::ListArgs),
    /// Show who holds a key, since when, for how long, and how many wait for it.
    ///
    /// Exit code: 1 if the key is not held, 2 after a failure.
    Inspect(operate::InspectArgs),
    /// End the lock of another process.
    ///
    /// The next waiter is granted the key with a greater token. The former holder is notified, and
    /// may write until it sees that: only a resource that checks fencing tokens refuses this.
    ///
    /// Exit code: 1 if nothing was unlocked, because the key is not held or has another token; 2
    /// after a failure.
    Unlock(operate::UnlockArgs),
    /// Increment a counter from several members at once, with a lock and without one.
    ///
    /// The counter lives in a store that has only GET and SET. Each increment reads it, works, and
    /// writes it back. Without a lock, updates are lost.
    ///
    /// Exit code: 1 if a lock lost an update, 130 after Ctrl-C, 143 after SIGTERM, 129 after
    /// SIGHUP, 2 after any other failure.
    Increment(bench::IncrementArgs),
    /// Measure locks on this machine, this network, this Redis.
    ///
    /// The tables show what a throughput hides, too: hand-off latency, longest wait, fairness,
    /// mutual exclusion.
    ///
    /// Exit code: 1 if a lock broke mutual exclusion, 130 after Ctrl-C, 143 after SIGTERM, 129
    /// after SIGHUP, 2 after any other failure.
    Bench(bench::Args),
    /// Make the certificates of a group whose members speak TLS: an authority, then its members.
    ///
    /// Every file is readable by this user alone, and none is overwritten.
    Cert(cert::Args),
    /// Generate a secret for the option `secret_file`, from which members derive certificates.
    Secret(cert::SecretArgs),
    /// Print the completions of a shell: `source <(gaggle completions bash)`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of this program, or of one of its commands.
    Man {
        /// The command, as `run` or `gaggle-cert-ca`.
        command: Option<String>,
    },
}

/// Runs the command that the arguments name.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    let first = env::args_os().nth(1);
    let first = first.as_deref().and_then(OsStr::to_str);
    // Not commands of the parser, which would suggest them after a typing error.
    match first {
        // A worker is one of several: threads that wake each other would be measured too.
        Some(bench::WORKER) => {
            return block_on(Builder::new_current_thread(), bench::run_worker());
        }
        Some(run::STARTER) => return Ok(run::run_starter()),
        Some(run::WATCHDOG) => return run::run_watchdog(),
        _ => {}
    }
    let parsed = command().try_get_matches().and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        // Also help and version. Clap drops output that it cannot print, and ends with 0.
        Err(mut error) => {
            // The help of `gaggle run` shows its key as required.
            if error.kind() == ErrorKind::DisplayHelp
                && let Err(help) = with_required_key(command()).try_get_matches()
            {
                error = help;
            }
            if let Some("run" | "inspect" | "unlock") = first {
                // Clap suggests '-- -x': for `run` that is the command, for the others another key.
                error.remove(ContextKind::Suggested);
            }
            let is_run = first == Some("run");
            // An option of the command is then taken for one of this program.
            let has_separator = env::args_os().any(|it| it == "--");
            if is_run && error.kind() == ErrorKind::UnknownArgument && !has_separator {
                let tip = "write `--` before the command: gaggle run KEY -- COMMAND";
                let tips = ContextValue::StyledStrs(vec![tip.into()]);
                error.insert(ContextKind::Suggested, tips);
            }
            let wrong_use = if is_run { run::WRONG_USE } else { 2 };
            output::written(error.print()).map_err(|it| it.with_exit_code(wrong_use))?;
            return Ok(ExitCode::from(if error.exit_code() == 0 { 0 } else { wrong_use }));
        }
    };
    match cli.command {
        Command::Increment(args) => {
            block_on(Builder::new_multi_thread(), bench::run_increment(args))
        }
        Command::Run(args) => Ok(run::run(args)),
        Command::Serve(args) => block_on(Builder::new_multi_thread(), serve::run(args)),
        Command::List(args) => operate::list(args),
        Command::Inspect(args) => operate::inspect(args),
        Command::Unlock(args) => operate::unlock(args),
        Command::Completions { shell } => completions(shell),
        Command::Man { command } => man(command.as_deref()),
        Command::Bench(args) => block_on(Builder::new_multi_thread(), bench::run(args)),
        Command::Cert(args) => cert::run(&args),
        Command::Secret(args) => cert::run_secret(&args),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "gaggle", &mut script);
    output::written(io::stdout().write_all(&script)).map(|()| ExitCode::SUCCESS)
}

fn man(name: Option<&str>) -> Result<ExitCode, Failure> {
    let mut all = with_required_key(command());
    all.build();
    let name = name.unwrap_or_default();
    let of = named(&all, name).cloned();
    let of =
        of.ok_or_else(|| Failure::new(format!("unknown command {name}: see gaggle --help")))?;
    let mut page = Vec::new();
    // The footer, in place of the name of the command and its version.
    let source = format!("gaggle {}", crate::VERSION);
    let rendered = clap_mangen::Man::new(of).source(source).render(&mut page);
    output::written(rendered.and_then(|()| io::stdout().write_all(&page)))?;
    Ok(ExitCode::SUCCESS)
}

/// For pages and help: the key of `gaggle run` is optional for the parser, which takes a key that
/// begins with `-` for the command.
fn with_required_key(command: clap::Command) -> clap::Command {
    let require_key = |it: clap::Arg| match it.get_id() == "key" {
        true => it.required_unless_present(Resettable::Reset).required(true),
        false => it,
    };
    command.mut_subcommand("run", |run| run.mut_args(require_key))
}

/// The command of this name: `gaggle`, `run`, `cert-ca`, or with `gaggle-` before it, as the pages
/// name each other.
fn named<'a>(all: &'a clap::Command, name: &str) -> Option<&'a clap::Command> {
    let name = name.strip_prefix("gaggle").unwrap_or(name);
    let mut words = name.split('-').filter(|word| !word.is_empty());
    words.try_fold(all, |command, word| command.find_subcommand(word))
}

/// The parser. An empty `GAGGLE_REDIS` counts as unset.
fn command() -> clap::Command {
    let command = with_negative_values(Cli::command());
    if env::var_os("GAGGLE_REDIS").is_none_or(|url| !url.is_empty()) {
        return command;
    }
    ["increment", "bench"].into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |it| it.mut_arg("redis", |it| it.env(Resettable::Reset)))
    })
}

/// Lets the parser of an option receive negative numbers and durations: its error names the limits.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let durations = [TypeId::of::<Duration>(), TypeId::of::<MaxWait>()];
    let of_option = |option: clap::Arg| {
        let value = option.get_value_parser().type_id();
        let is_duration = durations.iter().any(|it| value == *it);
        match option.get_action() {
            ArgAction::Set if !option.is_positional() => {
                option.allow_negative_numbers(true).allow_hyphen_values(is_duration)
            }
            _ => option,
        }
    };
    command.mut_args(of_option).mut_subcommands(with_negative_values)
}

fn block_on(
    mut builder: Builder,
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    runtime::run(runtime::build(&mut builder)?, command)
}
