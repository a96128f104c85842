//! A resource that checks fencing tokens refuses a late write:
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example fenced_write`
//!
//! The resource is a value in Redis. One script checks the token of each read and each write.

use std::{env, error::Error, time::Duration};

use gaggle::LockOptions;
use redis::{Script, aio::MultiplexedConnection};
use tokio::time::sleep;

const FENCED: &str = r"
local greatest = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local token = tonumber(ARGV[1])
if token < greatest then return redis.error_reply('STALE a later holder was here') end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
if ARGV[2] then redis.call('HSET', KEYS[1], 'value', ARGV[2]) end
return redis.call('HGET', KEYS[1], 'value')
";

/// Reads the value, or writes it where there is a new one.
async fn fenced(
    redis: &mut MultiplexedConnection,
    token: u64,
    value: Option<&str>,
) -> redis::RedisResult<Option<String>> {
    let script = Script::new(FENCED);
    let mut call = script.key("example:order:42");
    call.arg(token);
    if let Some(value) = value {
        call.arg(value);
    }
    call.invoke_async(redis).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let locker = gaggle::open(&url).await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;

    let short = LockOptions::default().duration(Duration::from_millis(200));
    let first = locker.lock_with("orders/42", short.clone()).await?;
    let token = first.fencing_token();
    fenced(&mut redis, token, None).await?;
    sleep(Duration::from_millis(400)).await; // a pause of the process, longer than the lease
    println!("first holder: lock valid: {}", first.is_valid());

    let second = locker.lock_with("orders/42", short).await?;
    fenced(&mut redis, second.fencing_token(), Some("by the second holder")).await?;

    let late = fenced(&mut redis, token, Some("by the first holder")).await;
    println!("late write: {}", late.expect_err("the token is stale"));
    let value = fenced(&mut redis, second.fencing_token(), None).await?;
    println!("value: {}", value.unwrap_or_default());
    locker.close().await;
    Ok(())
}
