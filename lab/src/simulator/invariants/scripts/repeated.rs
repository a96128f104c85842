//! The queue in Redis after a repeated LOCK.

use super::{KeyView, nonce, setting};
use crate::redis_server::{KeySpace, Run};

/// A LOCK of a nonce that waits keeps the position. If it is not a copy, its process gets the grant
/// from now on. Returns whether it is such another call.
pub(super) fn check(
    keys: &mut KeySpace,
    now_us: u64,
    run: &Run,
    before: &KeyView,
    after: &KeyView,
) -> bool {
    let arg = |at: usize| String::from_utf8_lossy(&run.args[at]);
    let nonce = nonce(&arg(2));
    let position = |view: &KeyView| view.queue.iter().position(|waiter| *waiter == nonce);
    let lived = before.queue_end.is_some_and(|end| now_us / 1000 <= end);
    if position(before).is_none() || !lived {
        return false;
    }
    // Without a holder, the script has granted the key or dropped silent waiters first.
    if before.holder.is_some() {
        assert_eq!(position(after), position(before), "the position of a repeated LOCK: {nonce}");
    }
    if arg(5) == "c" {
        return false;
    }
    let terms = keys.field(&run.keys[4], &arg(2));
    let process = terms.as_ref().and_then(|terms| terms.split(' ').nth(5));
    assert_eq!(process, Some(&*setting(run, 0)), "the process of a repeated LOCK: {nonce}");
    true
}
