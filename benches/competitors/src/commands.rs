//! What a Redis has to do for a lock, by its own counts: how many commands it is sent, and how long
//! they take.

use std::sync::Arc;

use gaggle_fixtures::RedisServer;
use gaggle_workloads::{Contender, Workload, run};
use redis::aio::MultiplexedConnection;

use crate::{
    cluster::handles,
    contenders::{BoxError, excluding},
    data::Data,
    settings::Settings,
};

/// Commands sent for each hand-off between eight handles, with few and with many waiters.
pub(crate) async fn sent(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    let server = RedisServer::start();
    let handles = handles(&[server.url()], 8).await;
    let mut connection = connect(&server).await?;
    let each = if settings.quick { 200 } else { 1000 };
    for (tasks, each) in [(8, each), (1000, each / 20)] {
        let before = Counts::read(&mut connection).await?;
        let workload = Workload::handoff(tasks).each(each);
        let figures = excluding(run(&handles, &workload, "commands").await?)?;
        let spent = Counts::read(&mut connection).await?.since(before);
        data.figure(
            &format!("redis_commands_per_handoff_{tasks}_waiters"),
            spent.sent / figures.pairs as f64,
        );
    }
    for handle in handles {
        handle.0.close().await;
    }
    Ok(())
}

/// How long the server's thread is in commands for a lock and an unlock.
pub(crate) async fn time(settings: &Settings, data: &mut Data) -> Result<(), BoxError> {
    let server = RedisServer::start();
    let mut connection = connect(&server).await?;
    let (fan, hot) = (settings.of(Workload::fan(64)), settings.of(Workload::handoff(8)));
    let handles = handles(&[server.url()], 8).await;
    spent("redis_64_keys", &handles[..1], &fan, &mut connection, data).await?;
    spent("redis_one_key_eight_handles", &handles, &hot, &mut connection, data).await?;
    for handle in handles {
        handle.0.close().await;
    }
    Ok(())
}

async fn spent<C: Contender>(
    name: &str,
    contenders: &[Arc<C>],
    workload: &Workload,
    connection: &mut MultiplexedConnection,
    data: &mut Data,
) -> Result<(), BoxError> {
    // All that is sent counts, and all that is made.
    let workload = Workload { warm_up: std::time::Duration::ZERO, ..workload.clone() };
    let before = Counts::read(connection).await?;
    let figures = excluding(run(contenders, &workload, name).await?)?;
    let spent = Counts::read(connection).await?.since(before);
    data.figure(&format!("server_us_a_pair_{name}"), spent.us / figures.pairs as f64);
    Ok(())
}

async fn connect(server: &RedisServer) -> Result<MultiplexedConnection, BoxError> {
    Ok(redis::Client::open(server.url())?.get_multiplexed_async_connection().await?)
}

/// The commands that clients sent: scripts and PINGs. The time of a script includes the commands
/// within it.
#[derive(Clone, Copy)]
struct Counts {
    sent: f64,
    us: f64,
}

impl Counts {
    async fn read(connection: &mut MultiplexedConnection) -> Result<Self, BoxError> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await?;
        Ok(Self::of(&stats))
    }

    fn of(stats: &str) -> Self {
        let mut counts = Self { sent: 0.0, us: 0.0 };
        for line in stats.lines() {
            if ["cmdstat_eval", "cmdstat_ping:"].iter().any(|name| line.starts_with(name)) {
                counts.sent += number(line, "calls=");
                counts.us += number(line, "usec=");
            }
        }
        counts
    }

    fn since(self, before: Self) -> Self {
        Self { sent: self.sent - before.sent, us: self.us - before.us }
    }
}

fn number(line: &str, name: &str) -> f64 {
    let value = line.split_once(name).and_then(|(_, rest)| rest.split(',').next());
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_between_two_readings_are_counted() {
        let stats = |evals: u32, pings: u32, us: u32| {
            format!(
                "# Commandstats\r\n\
                 cmdstat_evalsha:calls={evals},usec={us},usec_per_call=1.00,rejected_calls=0\r\n\
                 cmdstat_eval:calls=1,usec=50,usec_per_call=50.00\r\n\
                 cmdstat_ping:calls={pings},usec=7,usec_per_call=1.00\r\n\
                 cmdstat_set:calls=900,usec=300,usec_per_call=1.00\r\n\
                 cmdstat_hget:calls=800,usec=900,usec_per_call=1.00\r\n"
            )
        };
        let spent = Counts::of(&stats(40, 5, 1000)).since(Counts::of(&stats(10, 3, 400)));
        assert_eq!((spent.sent, spent.us), (32.0, 600.0));
        let all = Counts::of(&stats(10, 3, 400));
        assert_eq!((all.sent, all.us), (14.0, 457.0));
    }
}
