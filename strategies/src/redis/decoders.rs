//! Every decoder of the Redis strategy, fed with bytes.

use gaggle_channels::resp::{self, Frame};

use super::reply::{self, Granted, Reply};
use crate::Nonce;

/// Feeds every decoder: publications, and replies both as bytes of the protocol and, whatever they
/// are, as an answer to each verb. Returns how many took the bytes.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    let mut taken = 0;
    if let Some((bucket, granted)) = Granted::published(bytes) {
        let Granted { nonce, token, enqueued, granted: at } = granted;
        let again = format!("1 {bucket} {nonce} {token} {enqueued} {at}");
        let back = Granted::published(again.as_bytes());
        assert_eq!(back, Some((bucket, granted)), "a publication comes back as it went");
        taken += 1;
    }
    let Ok(Some((Frame::Answer(value), _))) = resp::frame(bytes) else { return taken };
    let nonces = [Nonce::from_u128(1), Nonce::from_u128(2)];
    let read = || Reply::read(value.clone()).ok();
    taken += u32::from(reply::only_queued(&value).is_some());
    taken += u32::from(read().is_some_and(|mut reply| reply.answer().is_ok()));
    taken += u32::from(read().is_some_and(|mut reply| reply.held().is_ok()));
    taken += u32::from(read().is_some_and(|mut reply| reply.found(&nonces).is_ok()));
    taken += u32::from(read().is_some_and(|mut reply| reply.inspection().is_ok()));
    taken
}
