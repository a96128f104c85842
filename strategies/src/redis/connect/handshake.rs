//! The first commands on a connection: whether the server can hold locks, and what time it has.

use futures_util::future::join_all;
use gaggle_channels::internal::redis_error::reason;
use redis::{Cmd, ProtocolVersion, RedisConnectionInfo, Value, aio::MultiplexedConnection};

use crate::{
    printable::Printable,
    redis::{
        error::{ConnectionError, VERSION_MIN},
        options::{Queue, RedisOptions},
        protocol,
        request::Encoder,
        script,
    },
};

/// What a new connection needs: the login, and what the handshake checks.
#[derive(Clone, Debug)]
pub(in crate::redis) struct Handshake {
    address: String,
    /// How URLs to such a server begin.
    scheme: &'static str,
    login: RedisConnectionInfo,
    /// The topic of grants; `None` if no call of this handle queues.
    topic: Option<String>,
    /// The topic of force-unlocks, read together with `topic`.
    forced: String,
    allow_eviction: bool,
    /// Whether `WAIT` is used.
    waits: bool,
    /// An unused key that the server must be able to write, in a Cluster.
    key: Option<String>,
}

impl Handshake {
    /// The handshake with a server whose URLs begin with `scheme`.
    pub(in crate::redis) fn new(
        options: &RedisOptions,
        encoder: &Encoder,
        login: &RedisConnectionInfo,
        address: String,
        scheme: &'static str,
    ) -> Self {
        let login = login.clone().set_protocol(ProtocolVersion::RESP3);
        Self {
            address,
            scheme,
            login: login.set_skip_set_lib_name(),
            topic: (options.queue == Queue::Fifo).then(|| encoder.topic()),
            forced: encoder.names.forced(),
            allow_eviction: options.allow_eviction,
            waits: options.replicas > 0,
            key: options.server.is_cluster().then(|| encoder.names.mark()),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn login(&self) -> &RedisConnectionInfo {
        &self.login
    }

    /// Subscribes, checks the server and loads the scripts, in one write. Returns the server's time
    /// in microseconds.
    ///
    /// Every connection performs all of it: a server can be replaced, and its settings and rights
    /// can change.
    pub(in crate::redis) async fn perform(
        &self,
        connection: &MultiplexedConnection,
    ) -> Result<u64, ConnectionError> {
        let mut commands: Vec<(&str, Cmd)> =
            vec![("INFO", command(&["INFO"])), ("TIME", command(&["TIME"]))];
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
            // This right is needed: otherwise other processes find their grants by checks alone.
            commands.push(("PUBLISH", command(&["PUBLISH", topic, protocol::HELLO])));
        }
        let load =
            |script: &script::Script| ("SCRIPT LOAD", command(&["SCRIPT", "LOAD", &script.text]));
        commands.extend(script::all().iter().map(load));
        let ask = async |(name, cmd): &(&'static str, Cmd)| {
            let reply = connection.clone().send_packed_command(cmd).await;
            self.reply(name, reply)
        };
        let mut replies = join_all(commands.iter().map(ask)).await.into_iter();
        let mut reply = || replies.next().expect("a reply to each command");
        let info: String = redis::from_redis_value(reply()?).unwrap_or_default();
        self.check(&info)?;
        let time = protocol::time(&reply()?);
        replies.try_for_each(|reply| reply.map(drop))?;
        let not_redis = || ConnectionError::NotRedis { address: self.address.clone() };
        time.ok_or_else(not_redis)
    }

    fn reply(
        &self,
        command: &'static str,
        reply: redis::RedisResult<Value>,
    ) -> Result<Value, ConnectionError> {
        match reply {
            Ok(Value::ServerError(error)) => {
                Err(ConnectionError::of_command(&self.address, command, &error))
            }
            Ok(value) => Ok(value),
            Err(error) => Err(ConnectionError::Unreachable {
                address: self.address.clone(),
                reason: reason(&error),
            }),
        }
    }

    fn check(&self, info: &str) -> Result<(), ConnectionError> {
        let (address, scheme, of) = (&self.address, self.scheme, |name| field(info, name));
        // Valkey says which Redis it is compatible with under the same name.
        let found = of("redis_version").unwrap_or_default();
        let major = found.split('.').next().and_then(|major| major.parse::<u32>().ok());
        let policy = of("maxmemory_policy").unwrap_or("unknown");
        let part = |name| Printable(of(name).unwrap_or("unknown"));
        // Valkey has the mode under another name from version 8 on.
        Err(match of("redis_mode").or_else(|| of("server_mode")) {
            _ if major.is_some_and(|major| major < VERSION_MIN) => {
                ConnectionError::misconfigured(format!(
                    "Redis at {address} has version {found}: {VERSION_MIN}.0 is the oldest \
                     supported"
                ))
            }
            Some("cluster") if self.key.is_none() => ConnectionError::misconfigured(format!(
                "Redis at {address} is a node of a Cluster: write {scheme}+cluster://{address}"
            )),
            Some("sentinel") => ConnectionError::is_sentinel(address, scheme),
            _ if !self.allow_eviction && policy != "noeviction" => {
                ConnectionError::misconfigured(format!(
                    "Redis at {address} may evict locks: set its maxmemory-policy, {policy}, to \
                     noeviction, or accept lost locks by allow_eviction=true in the URL"
                ))
            }
            _ if of("role") == Some("slave") => {
                let (host, port) = (part("master_host"), part("master_port"));
                // A failover can make it a master.
                ConnectionError::refused(format!(
                    "Redis at {address} is a replica, which grants nothing: its master is \
                     {host}:{port}"
                ))
            }
            _ => return Ok(()),
        })
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
    fn server_that_cannot_hold_locks_is_refused() {
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
        let keeps = |rest: &str| format!("used:1\r\nmaxmemory_policy:noeviction\r\n{rest}\r\n");
        let refused = |rest: &str| handshake.check(&keeps(rest)).unwrap_err().to_string();
        for accepted in
            ["redis_version:7.0.15", "redis_version:7.2.4\r\nserver_name:valkey", "role:master"]
        {
            handshake.check(&keeps(accepted)).unwrap();
        }
        handshake.check(&keeps("redis_mode:standalone")).unwrap();
        assert!(refused("redis_version:6.2.14").contains("has version 6.2.14: 7.0 is the oldest"));
        // Valkey has the second name from version 8 on.
        for name in ["redis_mode", "server_mode"] {
            let cluster = format!("{name}:cluster");
            assert!(refused(&cluster).ends_with("write redis+cluster://here"));
            let clustered = Handshake { key: Some("k".into()), ..handshake.clone() };
            clustered.check(&keeps(&cluster)).unwrap();
            let sentinel = refused(&format!("{name}:sentinel"));
            assert!(sentinel.ends_with("write redis+sentinel://here/MASTER"));
        }
        for evicting in ["allkeys-lru", "volatile-ttl"] {
            let info = format!("maxmemory_policy:{evicting}\r\n");
            let refused = handshake.check(&info).unwrap_err().to_string();
            assert!(refused.contains(&format!("maxmemory-policy, {evicting},")), "{refused}");
            let allows = Handshake { allow_eviction: true, ..handshake.clone() };
            allows.check(&info).unwrap();
        }
        handshake.check("").unwrap_err();
        let replica = "role:slave\r\nmaster_host:h\u{1b}\r\nmaster_port:7";
        let refused = refused(replica);
        assert!(refused.ends_with("its master is h\\u{1b}:7"), "{refused}");
    }
}
