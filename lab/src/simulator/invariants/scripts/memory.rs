//! How long the scripts remember nonces.

use gaggle_strategies::{lock::Nonce, lock_table::ClusterTime};

use super::{Holder, KeyView, is_late_force, nonce, number, setting, word};
use crate::redis_server::{KeySpace, Run, Verb};

/// A nonce of whose LOCK a copy may be in flight is remembered until `nonce_memory` after its end
/// (contract, rule 6).
pub(super) fn check(
    keys: &mut KeySpace,
    now: ClusterTime,
    run: &Run,
    before: &KeyView,
    after: &KeyView,
) {
    let arg = |at: usize| String::from_utf8_lossy(&run.args[at]);
    let memory = number(&setting(run, 1));
    let mut forgotten_at = |nonce: Nonce| keys.score(&run.keys[1], &nonce.to_string());
    if let Some(Holder { nonce: holder, expires_at, .. }) = after.holder {
        let own = run.verb == Verb::Lock && nonce(&arg(2)) == holder;
        let word = run.reply.as_deref().map(word).unwrap_or_default();
        let copied = own && arg(5) == "c" && ["granted", "again"].contains(&word);
        let from_queue = !own && before.queue.contains(&holder);
        let was_kept = before.holder.is_some_and(|held| held.nonce == holder && before.remembers());
        if copied || from_queue || was_kept {
            let kept = Some((holder, expires_at - 1 + memory));
            assert_eq!(after.kept, kept, "how long the holder is remembered");
        }
    }
    let unlocked = (run.verb == Verb::Unlock).then(|| nonce(&arg(1)));
    if let Some(nonce) = unlocked.filter(|_| arg(3) == "c" && !is_late_force(run)) {
        let at = forgotten_at(nonce);
        assert_eq!(at, Some(now.0 + 1 + memory), "how long an unlocked nonce is remembered");
    }
    if let Some((nonce, end)) = before.kept
        && end >= now.0
        && unlocked != Some(nonce)
        && after.kept.is_none_or(|(other, _)| other != nonce)
    {
        assert_eq!(forgotten_at(nonce), Some(end + 1), "how long an expired nonce is remembered");
    }
}
