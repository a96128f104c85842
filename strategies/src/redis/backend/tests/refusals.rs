//! Goal: a refusal of the server becomes the failure of its request, and few are logged.
//! Method: as of its parent.

use gaggle_fixtures::Events;

use super::*;

#[test]
fn unknown_script_ends_the_connection() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Now));
    lab.turn();
    lab.say("-NOSCRIPT No matching script.\r\n");
    let events = lab.turn();
    // The fate is unknown, so that it is retransmitted on the connection that loads the scripts.
    assert_eq!(failures(&events), [(RequestId::Lock(nonce(1)), Fate::NoReply, false)]);
    assert!(events.iter().any(|event| matches!(event, Event::Reconnecting { .. })));
}

#[test]
fn refusals_are_sorted_by_what_helps() {
    for (error, permanent, drops) in [
        ("-OOM command not allowed", false, false),
        ("-LOADING Redis is loading", false, false),
        ("-READONLY You can't write", false, true),
        ("-MASTERDOWN Link with MASTER is down", false, true),
        ("-NOPERM no permissions", true, false),
        ("-ERR Error running script", true, false),
    ] {
        let mut lab = Lab::up();
        lab.submit(lock(1, Until::Now));
        lab.turn();
        lab.say(&format!("{error}\r\n"));
        let events = lab.turn();
        let expected = (RequestId::Lock(nonce(1)), Fate::Refused, permanent);
        assert_eq!(failures(&events), [expected], "{error}");
        let down = events.iter().any(|event| matches!(event, Event::Reconnecting { .. }));
        assert_eq!((down, lab.backend.status(0)), (drops, !drops), "{error}");
    }
}

/// A Cluster with `cluster-allow-reads-when-down yes`.
#[test]
fn script_refused_by_a_cluster_that_is_down_moves_on() {
    let mut lab = Lab::up();
    lab.submit(Command::Check { nonce: nonce(1), key: "k".into(), token: None });
    lab.turn();
    lab.say(
        "-ERR Script attempted to execute a write command while the cluster is down and readonly \
         script: abc, on @user_script:7.\r\n",
    );
    let events = lab.turn();
    assert_eq!(failures(&events), [(RequestId::WaiterCheck(nonce(1)), Fate::Refused, false)]);
    assert!(!lab.backend.status(0));
}

/// UNLOCK, after it dropped the last of the waiters, all dead, from a slot that moves.
#[test]
fn script_refused_in_a_slot_that_moves_is_repeated() {
    let mut lab = Lab::up();
    lab.submit(Command::Unlock {
        nonce: nonce(1),
        key: "k".into(),
        token: 0,
        copies: false,
        forced: None,
    });
    lab.turn();
    lab.say(
        "-ERR Script attempted to access a non local key in a cluster node script: abc, on \
         @user_script:50.\r\n",
    );
    let events = lab.turn();
    assert_eq!(failures(&events), [(RequestId::Unlock(nonce(1)), Fate::Refused, false)]);
    assert!(lab.backend.status(0));
}

/// How many refusals are logged after this reply to a LOCK; then five seconds pass.
fn logged(log: &Events, lab: &mut Lab, reply: &str) -> usize {
    lab.submit(lock(1, Until::Now));
    lab.turn();
    lab.say(reply);
    lab.turn();
    lab.after(Duration::from_secs(5));
    // The idle connection is tested.
    lab.say(&listed("5", &["free"]));
    lab.turn();
    log.with("redis refused a request").len()
}

/// Also where other requests succeed in between.
#[test]
fn passing_refusals_are_logged_every_ten_seconds() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::up();
    let mut refuse = |reply| logged(&log, &mut lab, reply);
    // The slot of a Cluster migrates, which is intended.
    assert_eq!(refuse("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), 0);
    assert_eq!(refuse("-OOM command not allowed\r\n"), 1);
    let [event] = &log.with("redis refused a request")[..] else { panic!("{log:?}") };
    assert!(event.starts_with("WARN") && event.contains("OOM command not allowed"), "{event}");
    assert_eq!(refuse("-OOM command not allowed\r\n"), 1);
    assert_eq!(refuse("-MISCONF Errors writing to the AOF file\r\n"), 2);
}

/// A service that locks without a right has the error in each call.
#[test]
fn permanent_refusals_are_logged_every_ten_seconds() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::up();
    let mut refuse = |reply| logged(&log, &mut lab, reply);
    let permission = "-ERR The user executing the script can't run this command or subcommand\r\n";
    // A passing refusal suppresses no permanent one.
    assert_eq!(refuse("-OOM command not allowed\r\n"), 1);
    assert_eq!([permission; 3].map(&mut refuse), [2, 2, 3]);
    // WRONGTYPE concerns one key: each one is logged.
    assert_eq!(["-WRONGTYPE Operation\r\n"; 2].map(refuse), [4, 5]);
}

/// A script reads six names, and its error names none.
#[test]
fn wrong_type_asks_for_the_type_of_every_name() {
    let mut lab = Lab::up();
    lab.submit(lock(1, Until::Now));
    lab.turn();
    lab.say("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    let events = lab.turn();
    let [Event::Failed { cause, .. }] = &events[..] else { panic!("{events:?}") };
    let error = cause.to_error().to_string();
    assert!(error.contains("by DEL the one whose TYPE is not string for \"gaggle:{b"), "{error}");
    for part in ["l:k", "g:k", "t", "f:k", "x", "a:k"] {
        assert!(error.contains(&format!("}}:{part}\"")), "{part}: {error}");
    }
}

/// The right was taken away after the handshake.
#[test]
fn refused_wait_is_logged() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::with_replicas(Way::Open, 1);
    lab.connect();
    lab.submit(lock(1, Until::Now));
    lab.turn();
    lab.say(&listed("7", &["granted 7"]));
    lab.turn();
    lab.say("+OK\r\n-NOPERM no permissions to run the 'wait' command\r\n");
    let events = lab.turn();
    let [Event::Unsafe { cause, .. }, Event::Granted { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(cause.text().contains("refused WAIT: NOPERM"), "{cause:?}");
    let [event] = &log.with("redis refused a request")[..] else { panic!("{log:?}") };
    assert!(event.contains("NOPERM"), "{event}");
}

#[test]
fn too_few_replicas_are_warned_of_once_in_ten_seconds() {
    let (log, _recording) = Events::of_thread();
    let mut lab = Lab::with_replicas(Way::Open, 2);
    lab.connect();
    for nonce in 1..=3 {
        lab.submit(lock(nonce, Until::Now));
        lab.turn();
        lab.say(&listed("7", &["granted 7"]));
        lab.turn();
        lab.say("+OK\r\n:1\r\n");
        let events = lab.turn();
        assert!(matches!(events[..], [Event::Unsafe { .. }, Event::Granted { .. }]), "{events:?}");
    }
    let [event] = &log.with("too few replicas")[..] else { panic!("{log:?}") };
    assert!(event.contains("fewer than 2 replicas of Redis at here:1"), "{event}");
}
