//! The Redis strategy without a Redis: its scripts, as they ship, over a key space of a few hundred
//! lines, and a client that sends what the strategy's client sends.
//!
//! - `keyspace`: strings, sorted sets and hashes with expiries, and the commands that the scripts
//!   use; time is virtual.
//! - `server`: runs the scripts in Lua 5.1, as Redis does, and carries what they publish.
//! - `client`: a [`KeyedMutex`](gaggle_strategies::KeyedMutex) with the arguments, the waits and the
//!   withdrawals of the strategy; no connection, so nothing of what fails with one.

mod client;
mod keyspace;
mod server;

pub use self::{client::Scripted, server::Server};

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use gaggle_strategies::{Error, KeyedMutex, LockOptions, Nonce, TokioClock};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_waiting_nonce_asked_for_twice_gets_the_longer_lease() {
        // contract rule 2
        let server = Server::new(0);
        let clock = Arc::new(TokioClock::new());
        let open = |number| Scripted::open(server.clone(), number, clock.clone());
        let (holder, first, second) = (open(1), open(2), open(3));
        let held = holder.try_lock("k", Duration::from_secs(10)).await.unwrap();
        let ask = |client: Arc<Scripted>, ms| {
            let options = LockOptions::default().nonce(Nonce::from_u128(5));
            let options = options.duration(Duration::from_millis(ms));
            tokio::spawn(async move { client.lock("k", options).await })
        };
        let (long, short) = (ask(first, 2_000), ask(second, 500));
        sleep(Duration::from_millis(100)).await;
        holder.unlock(&held).await.unwrap();
        let (long, short) = (long.await.unwrap().unwrap(), short.await.unwrap().unwrap());
        assert_eq!(long.fencing_token(), short.fencing_token());
        sleep(Duration::from_millis(1_000)).await;
        assert!(long.deadline().is_some_and(|deadline| deadline > holder.clock().now()));
        let other = holder.try_lock("k", Duration::from_secs(1)).await;
        assert!(matches!(other, Err(Error::Held)), "{other:?}");
    }
}
