//! What the client core has to know of a Redis.

use std::time::Duration;

use super::super::options::{Queue, RedisOptions};
use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    client::backend::Profile,
    deadline::Drift,
    limits::DURATION_MAX,
};

/// Between two attempts where there is no queue: the numbers of Gaggle 1.x.
const RETRY: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(300));
/// The longest time between two checks of a waiter.
const CHECK_MAX: Duration = Duration::from_secs(1);
/// How many requests of a handle may be pending, some kilobytes each.
const REQUESTS_MAX: usize = 1 << 20;

pub(super) fn of(options: &RedisOptions) -> Profile {
    let queues = options.queue == Queue::Fifo;
    Profile {
        capabilities: Capabilities {
            exclusion: Exclusion::WhileServerKeepsMemory,
            order: if queues { Order::Fifo } else { Order::None },
            survives: Survives::AnyClient,
            distributed: true,
            ..Capabilities::none("redis")
        },
        queues,
        retry: RETRY,
        // A connection loses nothing without breaking.
        resend: None,
        // Checks are signs of life as well.
        check_every: Some(CHECK_MAX.min(options.waiter_ttl / 3)),
        lease_max: DURATION_MAX,
        request_timeout: options.request_timeout,
        requests_max: REQUESTS_MAX,
        drift: Drift::default(),
        busy_poll: options.busy_poll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_profile_has_the_values_of_its_options() {
        let (timeout, polls) = (Duration::from_millis(123), Duration::from_micros(45));
        let options = RedisOptions::new("redis://h").request_timeout(timeout);
        let profile = of(&options.busy_poll(polls).queue(Queue::None));
        assert_eq!((profile.request_timeout, profile.busy_poll), (timeout, polls));
        let brief = of(&RedisOptions::new("redis://h").waiter_ttl(Duration::from_millis(300)));
        assert_eq!(brief.check_every, Some(Duration::from_millis(100)), "alive within waiter_ttl");
        let retry = [150, 300].map(Duration::from_millis);
        assert_eq!((profile.queues, profile.retry), (false, (retry[0], retry[1])));
    }
}
