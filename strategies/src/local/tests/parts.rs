//! Goal: a table in parts keeps the bounds and the nonces of one table.
use super::*;

/// Enough that several fall into each part.
fn keys() -> Vec<String> {
    (0..100).map(|number| format!("orders/{number}")).collect()
}

fn bounded(keys_max: u64, nonces_max: u64) -> Local {
    let options = LocalOptions { keys_max, nonces_max, ..LocalOptions::default() };
    Local::with_options(options, Arc::new(TokioClock::new()))
}

#[tokio::test(start_paused = true)]
async fn every_key_finds_room_up_to_the_bound_of_the_whole_and_none_beyond() {
    for keys_max in [1, 7, 40] {
        let local = bounded(keys_max, 1 << 20);
        let mut locks = Vec::new();
        for key in keys() {
            match local.try_lock(&key, ms(1000)).await {
                Ok(lock) => locks.push(lock),
                Err(Error::Limit { what: "keys held", limit }) => assert_eq!(limit, keys_max),
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(locks.len() as u64, keys_max);
        // The room of one key serves any other.
        for key in keys() {
            local.unlock(&locks.pop().unwrap()).await.unwrap();
            if let Ok(lock) = local.try_lock(&key, ms(1000)).await {
                locks.push(lock);
            }
            assert_eq!(sizes(&local).keys, locks.len() as u64);
            if locks.is_empty() {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_have_run_out_leave_their_room_to_other_keys() {
    let local = bounded(3, 1 << 20);
    let keys = keys();
    for key in &keys[..3] {
        local.try_lock(key, ms(100)).await.unwrap();
    }
    let refused = local.try_lock(&keys[50], ms(100)).await;
    assert_error!(refused, Error::Limit { what: "keys held", limit: 3 });
    tokio::time::advance(ms(100)).await;
    for key in &keys[50..53] {
        local.try_lock(key, ms(100)).await.unwrap();
    }
}

/// Each part counts its own tokens: the former acquisition of a nonce may have a greater one.
#[tokio::test(start_paused = true)]
async fn a_nonce_that_ended_on_one_key_is_not_lost_on_another() {
    let local = bounded(1 << 20, 1 << 20);
    let given = LockOptions::default().nonce(Nonce::from_u128(7));
    let keys = keys();
    for _ in 0..10 {
        let drawn = local.lock(&keys[0], LockOptions::default()).await.unwrap();
        local.unlock(&drawn).await.unwrap();
    }
    let former = local.lock(&keys[0], given.clone()).await.unwrap();
    local.unlock(&former).await.unwrap();
    let mut smaller = 0;
    for key in &keys[1..] {
        // Until the nonce is forgotten.
        tokio::time::advance(ms(86_400_000)).await;
        let lock = local.lock(key, given.clone()).await.unwrap();
        let watch = local.watch(&lock);
        assert!(local.watch(&former).is_lost());
        assert!(!watch.is_lost(), "{key}");
        local.unlock(&lock).await.unwrap();
        assert!(watch.is_lost(), "{key}");
        smaller += usize::from(lock.fencing_token() < former.fencing_token());
    }
    assert!(smaller > 0);
}

#[tokio::test(start_paused = true)]
async fn nonces_are_bounded_as_a_whole() {
    let local = bounded(1 << 20, 20);
    let held = keys().len() as u64;
    let mut granted = 0;
    for key in keys() {
        match local.try_lock(&key, ms(1000)).await {
            Ok(_) => granted += 1,
            Err(Error::Limit { what: "nonces remembered", limit: 20 }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 20, "of {held}");
}

#[tokio::test(start_paused = true)]
async fn a_nonce_takes_no_second_key_wherever_that_is() {
    // contract rule 6
    let local = local();
    let nonce = Nonce::from_u128(9);
    let given = || options(1000, 0).nonce(nonce);
    let lock = local.lock("first", given()).await.unwrap();
    for key in keys() {
        assert_error!(local.lock(&key, given()).await, Error::Spent);
    }
    local.unlock(&lock).await.unwrap();
    for key in keys() {
        assert_error!(local.lock(&key, given()).await, Error::Spent);
    }
    // Forgotten with its age, as in the part that remembered it.
    tokio::time::advance(ms(31_000)).await;
    local.lock("orders/1", given()).await.unwrap();
}

/// Threads that look for room at one time neither lose any nor take more than there is.
#[test]
fn room_that_moves_between_parts_stays_what_it_was() {
    let local = Local::with_options(
        LocalOptions { keys_max: 5, ..LocalOptions::default() },
        Arc::new(BootClock),
    );
    let keys = keys();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (local, keys) = (&local, &keys);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let key = &keys[(turn * 7 + thread * 13) % keys.len()];
                    let lock = local.try_lock(key, ms(60_000)).now_or_never().unwrap();
                    assert!(local.sizes().keys <= 5, "more is held than the bound");
                    if let Ok(lock) = lock {
                        local.release(&lock);
                    }
                }
            });
        }
    });
    let room = |bound| -> u64 {
        local.shards.all().map(|part| part.lock().unwrap().table.spare(bound)).sum()
    };
    assert_eq!(room(crate::lock_table::Bound::Keys), 5);
    assert_eq!(room(crate::lock_table::Bound::Nonces), LocalOptions::default().nonces_max);
}
