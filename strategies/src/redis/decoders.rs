//! Every decoder of the Redis strategy, fed with bytes.

use redis::Value;

use super::protocol;
use crate::Nonce;

/// Feeds every decoder: publications, and values as a reply to each verb, whatever they are.
/// Returns how many took the bytes.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    let published = protocol::published(bytes).is_some() || protocol::forced(bytes).is_some();
    let Ok(value) = redis::parse_redis_value(bytes) else { return u32::from(published) };
    let groups = [vec![Nonce::from_u128(1), Nonce::from_u128(2)]];
    let taken = [
        published,
        protocol::locked(value.clone()).is_ok(),
        protocol::held(value.clone()).is_ok(),
        protocol::found(value.clone(), &groups).is_ok(),
        protocol::time(&value).is_some(),
        protocol::master(value.clone()).is_some(),
        protocol::scanned(value.clone()).is_ok(),
        protocol::slot_and_nodes([Value::Int(7), value.clone()]).is_ok(),
        protocol::inspected(value).is_ok(),
    ];
    taken.into_iter().map(u32::from).sum()
}
