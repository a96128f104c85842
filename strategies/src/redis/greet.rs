//! The first words with a server: whether it is one that can hold locks, and what time it has.

use redis::Value;

use super::{script, shared::Shared, trouble::Trouble};
use crate::{Error, UnavailableKind};

/// The oldest server whose `PEXPIRE` knows `GT`.
const VERSION_MIN: u32 = 7;

/// A server that this strategy cannot use.
#[derive(Debug, thiserror::Error)]
#[error("redis {found} is too old, {VERSION_MIN}.0 is the oldest supported")]
struct TooOld {
    found: String,
}

impl Shared {
    /// Connects, and checks the server.
    pub(super) async fn greet(&self) -> Result<(), Error> {
        self.demand(&["PING"]).await?;
        let server = text(self.demand(&["INFO", "server"]).await?);
        let memory = text(self.demand(&["INFO", "memory"]).await?);
        check_version(&server)?;
        if !self.options.allow_eviction {
            check_policy(&memory)?;
        }
        let time = self.demand(&["TIME"]).await?;
        self.saw(micros(&time)?);
        for script in script::all() {
            self.demand(&["SCRIPT", "LOAD", script.text()]).await?;
        }
        Ok(())
    }

    async fn demand(&self, words: &[&str]) -> Result<Value, Trouble> {
        let mut cmd = redis::Cmd::new();
        for word in words {
            cmd.arg(word);
        }
        let options = &self.options;
        let until = self.now().after(options.connect_timeout + options.request_timeout);
        self.link.request(&cmd, until).await
    }
}

fn check_version(info: &str) -> Result<(), Error> {
    // Valkey says which Redis it is compatible with under the same name.
    let version = field(info, "redis_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major < VERSION_MIN => {
            let too_old = TooOld { found: version.to_owned() };
            Err(Error::unavailable(UnavailableKind::Misconfigured, too_old))
        }
        _ => Ok(()),
    }
}

fn check_policy(info: &str) -> Result<(), Error> {
    let policy = field(info, "maxmemory_policy").unwrap_or("unknown");
    if policy == "noeviction" {
        return Ok(());
    }
    Err(Error::InvalidOptions {
        field: "maxmemory-policy",
        value: policy.to_owned(),
        limit: "noeviction, or a client with allow_eviction".into(),
    })
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn text(value: Value) -> String {
    match value {
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    }
}

/// The answer to `TIME`, in microseconds.
fn micros(time: &Value) -> Result<u64, Trouble> {
    let wrong = Trouble::Malformed("no time");
    let Value::Array(parts) = time else { return Err(wrong) };
    let part = |part: Option<&Value>| match part {
        Some(Value::BulkString(digits)) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let (seconds, micros) = (part(parts.first()), part(parts.get(1)));
    seconds.zip(micros).and_then(|(s, us)| s.checked_mul(1_000_000)?.checked_add(us)).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_evict_or_is_too_old_is_refused() {
        check_policy("used_memory:1\r\nmaxmemory_policy:noeviction\r\n").unwrap();
        for policy in ["allkeys-lru", "volatile-ttl"] {
            let refused = check_policy(&format!("maxmemory_policy:{policy}\r\n"));
            assert!(matches!(refused, Err(Error::InvalidOptions { value, .. }) if value == policy));
        }
        check_policy("").unwrap_err();
        check_version("redis_version:7.0.15\r\n").unwrap();
        check_version("redis_version:7.2.4\r\nserver_name:valkey\r\n").unwrap();
        check_version("redis_version:6.2.14\r\n").unwrap_err();
    }
}
