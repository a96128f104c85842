//! Goal: waiters of silent processes are skipped, and a server that stood still skips none
//! (contract, rules 7 and 9).
//! Method: the stored times are moved into the past between scripts, which is how a server sees
//! time pass. `waiter_ttl` is 3 s.

use redis::Value;

use super::scripts::*;

/// Lets this time (ms) pass for all signs of life of the key.
async fn pass(scripts: &Scripts, ms: u64) {
    let fields: Vec<String> = scripts.server.command(&["HGETALL", WAITERS]).await;
    let mut words = vec!["HSET".to_owned(), WAITERS.to_owned()];
    for field in fields.chunks(2).filter(|field| field[0].starts_with('@') || field[0] == "#r") {
        let earlier = |time: &str| time.parse::<u64>().unwrap().saturating_sub(ms).to_string();
        let times: Vec<_> = field[1].split(' ').map(earlier).collect();
        words.extend([field[0].clone(), times.join(" ")]);
    }
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let _: Value = scripts.server.command(&words).await;
    // The end of the queue comes nearer, too.
    for name in [QUEUE, WAITERS] {
        let left = scripts.number(&["PTTL", name]).await - ms.cast_signed();
        let _: Value = scripts.server.command(&["PEXPIRE", name, &left.to_string()]).await;
    }
}

/// A sign of life of a process that waits with the nonce of its number.
async fn sign(scripts: &mut Scripts, process: u8) {
    scripts.run(POLL, process, &[&hex(process)]).await;
}

/// A key that 1 holds, and for which 2 and 3 wait.
async fn two_waiters() -> Scripts {
    let mut scripts = Scripts::start().await;
    scripts.lock(1, 60_000, 0, false).await;
    scripts.lock_as(2, 2, 60_000, -1, false).await;
    scripts.lock_as(3, 3, 60_000, -1, false).await;
    scripts
}

/// The server may have stood still for all but the last moment of it.
#[tokio::test]
async fn silence_of_all_processes_skips_no_waiter() {
    let mut scripts = two_waiters().await;
    pass(&scripts, 4_000).await;
    assert_eq!(scripts.unlock(1, false).await[1..], ["held"]);
    assert_eq!(scripts.holder().await, None, "no process was active yet");
    // The second is heard first.
    sign(&mut scripts, 3).await;
    assert_eq!(scripts.holder().await, None, "the first may be heard");
    sign(&mut scripts, 2).await;
    assert_eq!(scripts.holder().await, Some(hex(2)));
    assert_eq!(scripts.number(&["ZCARD", QUEUE]).await, 1);
}

/// Contract, rule 7: it waits for no process, and those before it keep their order.
#[tokio::test]
async fn try_passes_waiters_silent_for_waiter_ttl() {
    for (ago, heard, passes) in [(4_000, 0, true), (3_000, 0, false), (4_000, 3, false)] {
        let mut scripts = two_waiters().await;
        // The head has been silent for longer.
        pass(&scripts, 400).await;
        sign(&mut scripts, 3).await;
        pass(&scripts, ago).await;
        scripts.unlock(1, false).await;
        if heard > 0 {
            sign(&mut scripts, heard).await;
        }
        let word = &scripts.lock_as(4, 4, 60_000, 0, false).await[1];
        assert_eq!(word, if passes { "granted" } else { "held" }, "{ago} {heard}");
        assert_eq!(scripts.holder().await, passes.then(|| hex(4)));
        sign(&mut scripts, 2).await;
        let left: Vec<String> = scripts.server.command(&["ZRANGE", QUEUE, "0", "-1"]).await;
        assert_eq!(left, if passes { vec![hex(2), hex(3)] } else { vec![hex(3)] });
    }
}

/// A waiting call keeps the order: it waits for half of `waiter_ttl`.
#[tokio::test]
async fn dead_waiters_delay_a_waiter_by_half_of_waiter_ttl() {
    let mut scripts = two_waiters().await;
    pass(&scripts, 4_000).await;
    scripts.unlock(1, false).await;
    scripts.lock_as(4, 4, 60_000, -1, false).await;
    pass(&scripts, 1_400).await;
    sign(&mut scripts, 4).await;
    assert_eq!(scripts.holder().await, None, "they may be heard");
    pass(&scripts, 200).await;
    sign(&mut scripts, 4).await;
    assert_eq!(scripts.holder().await, Some(hex(4)));
}

/// Nothing but the end of the queue removes it: after the last of them has been silent for
/// `waiter_ttl`.
#[tokio::test]
async fn free_key_ends_a_queue_of_dead_waiters() {
    for (before, ago, least, most) in [(0, 4_000, 1_000, 1_500), (2_000, 1_520, 1_510, 1_667)] {
        let mut scripts = two_waiters().await;
        pass(&scripts, before).await;
        sign(&mut scripts, 3).await;
        pass(&scripts, ago).await;
        scripts.unlock(1, false).await;
        assert_eq!(scripts.holder().await, None);
        for name in [QUEUE, WAITERS] {
            let left = scripts.number(&["PTTL", name]).await;
            assert!((least..=most).contains(&left), "{name}: {left} ms");
        }
    }
}

/// Contract, rule 7: both wait without end.
#[tokio::test]
async fn silent_process_beside_active_is_skipped() {
    let mut scripts = two_waiters().await;
    pass(&scripts, 2_900).await;
    sign(&mut scripts, 3).await;
    pass(&scripts, 1_000).await;
    sign(&mut scripts, 3).await;
    pass(&scripts, 1_000).await;
    scripts.unlock(1, false).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
}

/// Half of `waiter_ttl` after the first that was heard.
#[tokio::test]
async fn process_silent_after_a_standstill_is_skipped() {
    let mut scripts = two_waiters().await;
    pass(&scripts, 4_000).await;
    scripts.unlock(1, false).await;
    sign(&mut scripts, 3).await;
    pass(&scripts, 1_400).await;
    sign(&mut scripts, 3).await;
    assert_eq!(scripts.holder().await, None, "it may still be heard");
    pass(&scripts, 200).await;
    sign(&mut scripts, 3).await;
    assert_eq!(scripts.holder().await, Some(hex(3)));
}

/// The second standstill begins before all processes were heard after the first.
#[tokio::test]
async fn second_standstill_keeps_the_order() {
    for (before, run) in [(0, 0), (1_100, 0), (1_100, 300)] {
        let mut scripts = two_waiters().await;
        // A process gives a sign of life at least every three eighths of waiter_ttl.
        pass(&scripts, before).await;
        sign(&mut scripts, 3).await;
        pass(&scripts, 8_000).await;
        sign(&mut scripts, 3).await;
        pass(&scripts, run).await;
        sign(&mut scripts, 3).await;
        pass(&scripts, 8_000).await;
        scripts.unlock(1, false).await;
        assert_eq!(scripts.holder().await, None, "{before} {run}: the first may be heard");
        sign(&mut scripts, 3).await;
        assert_eq!(scripts.holder().await, None, "{before} {run}");
        sign(&mut scripts, 2).await;
        assert_eq!(scripts.holder().await, Some(hex(2)), "{before} {run}");
    }
}

/// Contract, rule 9: a process that is heard too rarely looks like a server that stands still.
#[tokio::test]
async fn slow_process_keeps_no_dead_waiter() {
    for interval in [1_600, 2_000, 3_000] {
        let mut scripts = two_waiters().await;
        for _ in 0..4 {
            pass(&scripts, interval).await;
            sign(&mut scripts, 3).await;
        }
        scripts.unlock(1, false).await;
        assert_eq!(scripts.holder().await, Some(hex(3)), "{interval}");
    }
}
