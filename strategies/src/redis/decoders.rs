//! Every decoder of the Redis strategy, fed with bytes.

use std::time::Duration;

use redis::Value;

use super::protocol;
use crate::Nonce;

/// Feeds every decoder: publications, and values as a reply to each verb, whatever they are.
/// Returns how many took the bytes.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    let published = protocol::published(bytes).is_some() || protocol::forced(bytes).is_some();
    let (nonce, lease) = (Nonce::from_u128(0xaa), Duration::from_secs(5));
    let Ok(value) = redis::parse_redis_value(bytes) else { return u32::from(published) };
    let taken = [
        published,
        protocol::locked(value.clone(), nonce, &"k".into(), lease).is_ok(),
        protocol::held(value.clone()).is_ok(),
        protocol::found(value.clone(), 2).is_ok(),
        protocol::time(&value).is_some(),
        protocol::master(value.clone()).is_some(),
        protocol::scanned(value.clone()).is_ok(),
        protocol::slot_and_nodes([Value::Int(7), value.clone()]).is_ok(),
        protocol::inspected(value).is_ok(),
    ];
    taken.into_iter().map(u32::from).sum()
}

/// Publications, and replies of each script.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let nonce = Nonce::from_u128(0xaa);
    let grant = format!("{nonce} 7 8 9 5000");
    let held = format!("5 held\n{grant}");
    let examples = [
        format!("1 {grant}"),
        protocol::forced_payload(nonce, 7, "k", "host, pid 1"),
        "+5 granted 7\r\n".into(),
        "+5 again 7 5000\r\n".into(),
        format!("${}\r\n{held}\r\n", held.len()),
        format!("*2\r\n+9 50\r\n+1 granted {grant}\r\n"),
        format!("*2\r\n+9 held {nonce} 5 1 700 2\r\n+42 host +label\r\n"),
    ];
    examples.map(String::into_bytes).into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_example_is_taken() {
        for example in super::examples() {
            assert!(super::feed(&example) > 0, "{}", String::from_utf8_lossy(&example));
        }
    }
}
