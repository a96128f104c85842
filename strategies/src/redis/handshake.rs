//! The first commands on a connection: whether the server can hold locks, and what time it has.

use futures_util::future::join_all;
use gaggle_channels::redis_error::reason;
use redis::{Cmd, RedisConnectionInfo, Value, aio::MultiplexedConnection};

use super::{
    error::{ConnectionError, Refusal, server_reason},
    protocol, script,
};
use crate::printable::Printable;

/// The oldest server whose `PEXPIRE` knows `GT` and `LT`.
const VERSION_MIN: u32 = 7;

/// What a new connection needs: the login, and what the handshake checks.
#[derive(Clone, Debug)]
pub(super) struct Handshake {
    pub(super) address: String,
    /// How URLs to such a server begin.
    pub(super) scheme: &'static str,
    pub(super) login: RedisConnectionInfo,
    /// Where grants are published; `None` if no call of this handle queues.
    pub(super) topic: Option<String>,
    /// Where force-unlocks are published, read together with `topic`.
    pub(super) forced: String,
    pub(super) allow_eviction: bool,
    /// Whether `WAIT` is used.
    pub(super) waits: bool,
    /// In a Cluster: a key without a use, which the server must be able to write.
    pub(super) key: Option<String>,
}

/// A server, as the handshake finds it.
#[derive(Debug)]
pub(super) struct Found {
    /// Its time in microseconds.
    pub(super) time: u64,
    /// Its `run_id`, another one after each start; empty if the server hides it.
    pub(super) run: String,
}

impl Handshake {
    /// Subscribes, checks the server and loads the scripts, in one write.
    ///
    /// It is the same for every connection: a server can be replaced, and its settings and rights
    /// can change.
    pub(super) async fn perform(
        &self,
        connection: &MultiplexedConnection,
    ) -> Result<Found, ConnectionError> {
        let mut commands: Vec<(&str, Cmd)> = vec![
            ("INFO", command(&["INFO", "server"])),
            ("INFO", command(&["INFO", "memory"])),
            ("INFO", command(&["INFO", "replication"])),
            ("TIME", command(&["TIME"])),
        ];
        if self.waits {
            commands.push(("WAIT", command(&["WAIT", "0", "1"])));
        }
        if let Some(key) = &self.key {
            // A Cluster that is down may allow reads.
            commands.push(("DEL", command(&["DEL", key])));
        }
        if let Some(topic) = &self.topic {
            for topic in [topic, &self.forced] {
                commands.push(("SUBSCRIBE", command(&["SUBSCRIBE", topic])));
            }
            // A script that may not publish would fail after it has changed who holds the key.
            commands.push(("PUBLISH", command(&["PUBLISH", topic, protocol::HELLO])));
        }
        let load =
            |script: &script::Script| ("SCRIPT LOAD", command(&["SCRIPT", "LOAD", script.text()]));
        commands.extend(script::all().map(load));
        let ask = async |(name, cmd): &(&'static str, Cmd)| {
            let reply = connection.clone().send_packed_command(cmd).await;
            self.reply(name, reply)
        };
        let mut replies = join_all(commands.iter().map(ask)).await.into_iter();
        let mut reply = || replies.next().expect("a reply to each command");
        let server = protocol::text(reply()?);
        self.check_version(&server)?;
        self.check_mode(&server)?;
        self.check_policy(&protocol::text(reply()?))?;
        self.check_role(&protocol::text(reply()?))?;
        let time = protocol::time(&reply()?);
        replies.try_for_each(|reply| reply.map(drop))?;
        let time = time.ok_or_else(|| self.refused("TIME", "no time".into(), true))?;
        Ok(Found { time, run: field(&server, "run_id").unwrap_or_default().to_owned() })
    }

    fn reply(
        &self,
        command: &'static str,
        reply: redis::RedisResult<Value>,
    ) -> Result<Value, ConnectionError> {
        match reply {
            Ok(Value::ServerError(error)) => {
                let (address, reason) = (self.address.clone(), server_reason(&error));
                if error.code() == "CLUSTERDOWN" {
                    return Err(ConnectionError::ClusterDown { address, reason });
                }
                let permanent = Refusal::of(error.code()) == Refusal::Permanent;
                Err(self.refused(command, reason, permanent))
            }
            Ok(value) => Ok(value),
            Err(error) => Err(ConnectionError::Unreachable {
                address: self.address.clone(),
                reason: reason(&error),
            }),
        }
    }

    fn refused(&self, command: &'static str, reason: String, permanent: bool) -> ConnectionError {
        ConnectionError::Refused { address: self.address.clone(), command, reason, permanent }
    }

    fn check_version(&self, info: &str) -> Result<(), ConnectionError> {
        // Valkey says which Redis it is compatible with under the same name.
        let found = field(info, "redis_version").unwrap_or_default();
        let major = found.split('.').next().and_then(|major| major.parse::<u32>().ok());
        match major {
            Some(major) if major < VERSION_MIN => Err(ConnectionError::TooOld {
                address: self.address.clone(),
                found: found.to_owned(),
                oldest: VERSION_MIN,
            }),
            _ => Ok(()),
        }
    }

    fn check_mode(&self, info: &str) -> Result<(), ConnectionError> {
        let (address, scheme) = (self.address.clone(), self.scheme);
        match field(info, "redis_mode").or_else(|| field(info, "server_mode")) {
            Some("cluster") if self.key.is_none() => {
                Err(ConnectionError::Cluster { address, scheme })
            }
            Some("sentinel") => Err(ConnectionError::Sentinel { address, scheme }),
            _ => Ok(()),
        }
    }

    fn check_role(&self, info: &str) -> Result<(), ConnectionError> {
        if field(info, "role") != Some("slave") {
            return Ok(());
        }
        let part = |name| Printable(field(info, name).unwrap_or("unknown"));
        let master = format!("{}:{}", part("master_host"), part("master_port"));
        Err(ConnectionError::Replica { address: self.address.clone(), master })
    }

    fn check_policy(&self, info: &str) -> Result<(), ConnectionError> {
        let policy = field(info, "maxmemory_policy").unwrap_or("unknown");
        if self.allow_eviction || policy == "noeviction" {
            return Ok(());
        }
        let (address, policy) = (self.address.clone(), policy.to_owned());
        Err(ConnectionError::Evicts { address, policy })
    }
}

fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    for word in words {
        cmd.arg(word);
    }
    cmd
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_or_evicting_server_is_refused() {
        let handshake = Handshake {
            address: "here".into(),
            scheme: "redis",
            login: RedisConnectionInfo::default(),
            topic: None,
            forced: String::new(),
            allow_eviction: false,
            waits: false,
            key: None,
        };
        let policy = |policy: &str| {
            handshake.check_policy(&format!("used:1\r\nmaxmemory_policy:{policy}\r\n"))
        };
        policy("noeviction").unwrap();
        for evicting in ["allkeys-lru", "volatile-ttl"] {
            let refused = policy(evicting);
            assert!(
                matches!(refused, Err(ConnectionError::Evicts { policy, .. }) if policy == evicting)
            );
        }
        handshake.check_policy("").unwrap_err();
        let allows = Handshake { allow_eviction: true, ..handshake.clone() };
        allows.check_policy("maxmemory_policy:allkeys-lru\r\n").unwrap();
        handshake.check_version("redis_version:7.0.15\r\n").unwrap();
        handshake.check_version("redis_version:7.2.4\r\nserver_name:valkey\r\n").unwrap();
        handshake.check_version("redis_version:6.2.14\r\n").unwrap_err();
        handshake.check_mode("redis_mode:standalone\r\n").unwrap();
        handshake.check_mode("redis_mode:cluster\r\n").unwrap_err();
        let clustered = Handshake { key: Some("k".into()), ..handshake.clone() };
        clustered.check_mode("redis_mode:cluster\r\n").unwrap();
        // Valkey from version 8 on.
        handshake.check_mode("server_mode:cluster\r\n").unwrap_err();
        handshake.check_mode("server_mode:sentinel\r\n").unwrap_err();
        handshake.check_role("role:master\r\n").unwrap();
        let replica = "role:slave\r\nmaster_host:h\u{1b}\r\nmaster_port:7\r\n";
        let refused = handshake.check_role(replica).unwrap_err().to_string();
        assert!(refused.ends_with("its master is h\\u{1b}:7"), "{refused}");
    }
}
