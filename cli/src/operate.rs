//! `gaggle list`, `gaggle inspect` and `gaggle unlock`: who holds what, and the end of a lock.

mod filter;
mod text;

use std::{collections::BTreeSet, env, ffi::OsString, io, process::ExitCode};

use clap::value_parser;
use gaggle::{
    Error, Inspection, Locker, Owner,
    operator::{ForcedUnlock, ListOptions, Operator, Page},
};
use gaggle_strategies::limits::{LABEL_BYTES_MAX, PAGE_MAX};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use self::{
    filter::Filter,
    text::{Table, details},
};
use crate::{
    failure::Failure,
    output::{count, json, ms, notice, printable, say},
    run::{Address, UrlArgs, checked_key},
    runtime,
    utf8::utf8,
    verbosity::Verbosity,
};

/// The exit code if nothing holds the key.
const NOT_HELD: u8 = 1;

/// The options of `gaggle list`.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    server: UrlArgs,
    /// Only keys that begin with this text.
    #[arg(long, value_name = "TEXT", value_parser = utf8())]
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    filter: Filter,
    /// At most this many keys, after the filters.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = value_parser!(u64).range(1..))]
    limit: u64,
    /// Print JSON: one object a line, and nothing if no key is held.
    #[arg(long)]
    json: bool,
}

/// The options of `gaggle inspect`.
#[derive(clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    server: UrlArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The key. Put `--` before one that begins with `-`: gaggle inspect -- -KEY.
    key: OsString,
}

/// The options of `gaggle unlock`.
#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    server: UrlArgs,
    /// End the lock although its holder may still rely on it.
    #[arg(long)]
    force: bool,
    /// End only the grant with this fencing token.
    #[arg(long, value_name = "T", value_parser = token)]
    token: Option<u64>,
    /// Why, for the logs.
    #[arg(long, value_name = "TEXT", default_value = "no reason given", value_parser = utf8())]
    reason: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The key. Put `--` before one that begins with `-`: gaggle unlock --force -- -KEY.
    key: OsString,
}

fn token(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "give the token that `gaggle list` shows")
}

/// `gaggle list`.
pub(crate) fn list(args: ListArgs) -> Result<ExitCode, Failure> {
    run(&args.server, async |locker| {
        let is_filtered = args.filter.is_set();
        // Not `--limit`: a Redis scans that many keys of the database in a step.
        let mut options = ListOptions::default().prefix(&*args.prefix).limit(PAGE_MAX);
        // Two pages can have one key.
        let (mut seen, mut unreadable, mut table) = (BTreeSet::new(), 0, Table::default());
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        loop {
            let mut page = page(operator(locker), &options).await?;
            let left = limit - seen.len();
            // What a filter asks of a holder, such a key does not have.
            page.unreadable.retain(|key| !is_filtered && seen.insert(key.clone()));
            page.entries
                .retain(|it| args.filter.matches(&it.holder) && seen.insert(it.key.clone()));
            page.unreadable.sort();
            page.unreadable.truncate(left);
            page.entries.sort_by(|a, b| a.key.cmp(&b.key));
            page.entries.truncate(left.saturating_sub(page.unreadable.len()));
            unreadable += page.unreadable.len();
            if args.json {
                page.entries.iter().try_for_each(|it| say(json(&object(&it.key, &it.holder))))?;
                let object = |key| json!({ "key": key, "unreadable": true });
                page.unreadable.iter().try_for_each(|key| say(json(&object(key))))?;
            } else if !(page.entries.is_empty() && page.unreadable.is_empty()) {
                say(table.page(&page.entries, &page.unreadable))?;
            }
            if seen.len() > limit || seen.len() == limit && page.next.is_some() {
                let keys = count(args.limit, "key");
                notice(&format!("there may be more than {keys}: give a greater --limit"));
                break;
            }
            let Some(next) = page.next else { break };
            options = options.after(next);
        }
        if seen.is_empty() && !args.json {
            match &*args.prefix {
                _ if is_filtered => say("no held key matches")?,
                "" => say("no key is held")?,
                prefix => say(format!("no key that begins with {prefix:?} is held"))?,
            }
        }
        if unreadable == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let keys = count(u32::try_from(unreadable).unwrap_or(u32::MAX), "key");
        let cure = "gaggle inspect KEY says how to remove it";
        Err(Failure::new(format!("{keys} unreadable: the stored value is not a lock; {cure}")))
    })
}

/// A page, which is requested again once: a pause of the server loses no listing.
async fn page(operator: &dyn Operator, options: &ListOptions) -> Result<Page, Failure> {
    let page = match operator.list(options.clone()).await {
        Err(Error::Unavailable { .. } | Error::Unknown) => operator.list(options.clone()).await,
        page => page,
    };
    page.map_err(|error| Failure::of(&error))
}

/// `gaggle inspect`.
pub(crate) fn inspect(args: InspectArgs) -> Result<ExitCode, Failure> {
    let key = checked_key(args.key)?;
    run(&args.server, async |locker| {
        let found = locker.inspect(&key).await.map_err(|error| Failure::of(&error))?;
        let Some(holder) = found else {
            if args.json {
                say(json(&json!({ "key": key, "held": false })))?;
            } else {
                say(format!("{key:?} is not held"))?;
            }
            return Ok(ExitCode::from(NOT_HELD));
        };
        if args.json {
            say(json(&object(&key, &holder)))?;
        } else {
            say(details(&key, &holder))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// `gaggle unlock`.
pub(crate) fn unlock(args: UnlockArgs) -> Result<ExitCode, Failure> {
    if !args.force {
        return Err(Failure::new(
            "unlock ends the lock of another process, which may write on until it is notified: add \
             --force, and --token T to end one grant only",
        ));
    }
    let key = checked_key(args.key)?;
    let reason = reason(&args.reason)?;
    run(&args.server, async |locker| {
        let forced = operator(locker).force_unlock(&key, args.token, &reason).await;
        let forced = forced.map_err(|error| Failure::of(&error))?;
        let (outcome, holder) = match &forced {
            ForcedUnlock::Unlocked(holder) => ("unlocked", Some(holder)),
            ForcedUnlock::NotHeld => ("not held", None),
            ForcedUnlock::OtherToken(holder) => ("other token", Some(holder)),
        };
        let is_unlocked = outcome == "unlocked";
        if is_unlocked {
            let by = Owner::this_process(None);
            notice(&format!("{key:?} was force-unlocked by {by}: {}", printable(&reason)));
        }
        if args.json {
            let mut object = holder.map_or_else(|| json!({ "key": key }), |it| object(&key, it));
            object["held"] = (outcome == "other token").into();
            object["outcome"] = outcome.into();
            say(json(&object))?;
        } else if let Some(holder) = holder.filter(|_| is_unlocked) {
            say(format!("{key:?} is unlocked. It was held by:\n{}", details(&key, holder)))?;
        } else if let Some(holder) = holder {
            let text = details(&key, holder);
            say(format!("{key:?} is held with another token, and nothing changed:\n{text}"))?;
        } else {
            say(format!("{key:?} is not held"))?;
        }
        Ok(ExitCode::from(if is_unlocked { 0 } else { NOT_HELD }))
    })
}

/// The reason for the logs, with the user before it.
fn reason(given: &str) -> Result<String, Failure> {
    let named = |name| Some((name, env::var(name).ok().filter(|user| !user.is_empty())?));
    let mut parts = format!("--reason has {} bytes", given.len());
    let (mut reason, mut limit) = (given.to_owned(), LABEL_BYTES_MAX);
    if let Some((name, user)) = named("USER").or_else(|| named("LOGNAME")) {
        parts += &format!(" and {name} {}", user.len());
        reason = format!("{user}: {given}");
        limit -= ": ".len();
    }
    if reason.len() > LABEL_BYTES_MAX {
        return Err(Failure::new(format!("{parts}: give at most {limit} in all")));
    }
    Ok(reason)
}

fn operator(locker: &Locker) -> &dyn Operator {
    locker.operator().expect("a Redis and a `gaggle serve` have one")
}

/// Opens the lock server, runs a command on it, and closes it.
fn run(
    server: &UrlArgs,
    command: impl AsyncFnOnce(&Locker) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    Verbosity::default().start_if_chosen(io::stderr)?;
    let address = Address::find(server)?;
    address.warning().into_iter().for_each(notice);
    let runtime = runtime::build(&mut Builder::new_current_thread())?;
    runtime::run(runtime, async {
        let locker = address
            .url()
            .open()
            .await
            .map_err(|error| Failure::new(address.explain(Failure::of(&error).to_string())))?;
        let outcome = command(&locker).await;
        locker.close().await;
        outcome
    })
}

/// A holder as JSON.
fn object(key: &str, holder: &Inspection) -> Value {
    json!({
        "key": key,
        "held": true,
        "token": holder.fencing_token,
        "nonce": holder.nonce.to_string(),
        "host": holder.owner.host,
        "pid": holder.owner.pid,
        "label": holder.owner.label,
        "held_for_ms": ms(holder.held_for),
        "remaining_ms": ms(holder.remaining),
        "waiters": holder.waiters,
    })
}
