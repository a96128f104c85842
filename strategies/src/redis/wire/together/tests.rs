//! Goal: requests that leave together are done as if each had left alone, whatever the server says.
//! Method: groups as they are packed, and a server of a few lines that answers them as it is told.

use std::{pin::pin, time::Duration};

use futures_util::future::{join, join_all};
use gaggle_channels::resp;
use redis::IntoConnectionInfo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use super::{
    super::{Delivery, Together, Wire, state::BUSY},
    *,
};
use crate::redis::trouble::Trouble;

const LIMIT: Duration = Duration::from_secs(20);

/// `EVALSHA` of a script for one key, with what is said to it.
fn script(name: &str, said: &[&str]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(&["hash", "6", "t", "x"]);
    for part in ["l", "f", "a", "g"] {
        cmd.arg(format!("{part}:{name}"));
    }
    cmd.arg(&["process", "settings"]).arg(said);
    cmd
}

fn lock(name: &str) -> Cmd {
    lock_with(name, "-")
}

fn lock_with(name: &str, copies: &str) -> Cmd {
    script(name, &["900", name, "10000", "-1", copies, "1 host -"])
}

fn unlock(name: &str) -> Cmd {
    unlock_with(name, "-")
}

fn unlock_with(name: &str, copies: &str) -> Cmd {
    script(name, &[name, copies])
}

fn asked() -> Asked {
    Asked { answer: tokio::sync::oneshot::channel().0, look: None }
}

/// The words of the commands that are whole, which are taken.
fn commands(bytes: &mut Vec<u8>) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    while let Some((resp::Frame::Answer(Value::Array(parts)), used)) = resp::frame(bytes).unwrap() {
        let word = |part: &Value| match part {
            Value::BulkString(word) => String::from_utf8(word.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        commands.push(parts.iter().map(word).collect());
        bytes.drain(..used);
    }
    commands
}

#[test]
fn a_group_is_packed_as_its_script_has_it_and_one_alone_as_it_is() {
    let mut group = Group::default();
    let mut bytes = Vec::new();
    // Twice, so that nothing of the first is left in the second.
    for _ in 0..2 {
        group.push(Together::Lock, &lock("\u{e9} 1"), asked());
        group.push(Together::Unlock, &unlock("3"), asked());
        group.push(Together::Lock, &lock("a-longer-name"), asked());
        assert_eq!(group.close(&mut bytes).requests.len(), 3);
        let names = ["l:3", "t", "t", "f:3", "x", "f:\u{e9} 1", "g:\u{e9} 1", "x"];
        let names = [&names[..], &["f:a-longer-name", "g:a-longer-name"]].concat();
        let written = ["l:\u{e9} 1", "l:a-longer-name"];
        let arguments = ["1", "2", "900", "3", "\u{e9} 1", "10000", "1 host -"];
        let last = ["a-longer-name", "10000", "1 host -"];
        let expected =
            [&["EVALSHA", MANY.hash(), "12"], &names[..], &written, &arguments, &last].concat();
        assert_eq!(commands(&mut bytes), [expected]);
    }
    group.push(Together::Unlock, &unlock("one"), asked());
    group.push(Together::Unlock, &unlock("two"), asked());
    group.close(&mut bytes);
    let expected = ["EVALSHA", MANY.hash(), "4", "l:one", "l:two", "f:one", "f:two", "2", "0", "0"];
    assert_eq!(commands(&mut bytes), [[&expected[..], &["one", "two"]].concat()]);
    group.push(Together::Lock, &lock("alone"), asked());
    group.close(&mut bytes);
    assert_eq!(bytes, lock("alone").get_packed_command());
    assert_eq!(group.len(), 0);
}

#[test]
fn a_request_of_which_copies_may_be_under_way_leaves_alone() {
    for (copies, takes) in [("-", true), ("c", false)] {
        assert_eq!(Together::Lock.takes(&lock_with("k", copies)), takes);
        assert_eq!(Together::Unlock.takes(&unlock_with("k", copies)), takes);
    }
}

/// A server that reads `BUSY` commands before it answers any; and then answers what `answer` says.
struct Server {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Server {
    async fn start() -> (Wire, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let info = url.into_connection_info().unwrap();
        let on_push: super::super::OnPush = std::sync::Arc::new(|_| {});
        let accepted = async {
            let mut server = Self { stream: listener.accept().await.unwrap().0, bytes: Vec::new() };
            assert_eq!(server.commands(1).await.len(), 1);
            server.say("+OK\r\n").await;
            server
        };
        let (wire, server) = tokio::join!(Wire::connect(&info, on_push), accepted);
        (wire.unwrap(), server)
    }

    /// The next commands, so many at the least.
    async fn commands(&mut self, count: usize) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        while all.len() < count {
            let read = self.stream.read_buf(&mut self.bytes);
            assert!(timeout(LIMIT, read).await.expect("commands").unwrap() > 0);
            all.append(&mut commands(&mut self.bytes));
        }
        all
    }

    async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

/// `BUSY` plain requests and then three that leave together. Returns what each of the three was
/// answered, by a server that answers the group with `group`, and each command after it with what
/// `after` says.
async fn three(group: &str, after: &[&str]) -> (Vec<Result<Value, Trouble>>, Vec<Vec<String>>) {
    let (wire, mut server) = Server::start().await;
    let ping = redis::cmd("PING");
    let plain = async {
        let plain = (0..BUSY).map(|_| wire.request(&ping));
        assert!(join_all(plain).await.into_iter().all(|answer| answer.is_ok()));
    };
    let (one, two, three) = (unlock("1"), lock("2"), lock("3"));
    let together = [(&one, Together::Unlock), (&two, Together::Lock), (&three, Together::Lock)];
    let wire = &wire;
    let together = together.map(|(cmd, kind)| async move {
        let together = Some(kind);
        let asking = wire.request_with(cmd, Delivery { together, ..Delivery::default() });
        asking.await.map(|answered| answered.value)
    });
    let serve = async {
        assert_eq!(server.commands(BUSY).await.len(), BUSY, "the others wait");
        server.say("+PONG\r\n").await;
        let sent = server.commands(1).await;
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!(sent[0][1], MANY.hash());
        server.say(&"+PONG\r\n".repeat(BUSY - 1)).await;
        server.say(group).await;
        let mut later = Vec::new();
        if !after.is_empty() {
            later = server.commands(after.len()).await;
            server.say(&after.concat()).await;
        }
        later
    };
    let ((), answers, later) = tokio::join!(plain, join_all(together), serve);
    (answers, later)
}

#[tokio::test]
async fn each_of_a_group_gets_its_own_answer() {
    let (answers, _) = three("*3\r\n:1\r\n:20\r\n*3\r\n:20\r\n*0\r\n:21\r\n", &[]).await;
    let [Ok(one), Ok(two), Ok(three)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((one, two), (&Value::Int(1), &Value::Int(20)));
    let parts = vec![Value::Int(20), Value::Array(Vec::new()), Value::Int(21)];
    assert_eq!(three, &Value::Array(parts));
}

#[tokio::test]
async fn one_that_leaves_alone_takes_those_along_that_came_before() {
    let (wire, mut server) = Server::start().await;
    let ping = redis::cmd("PING");
    let plain = join_all((0..BUSY).map(|_| wire.request(&ping)));
    let (waits, copied) = (lock("waits"), lock_with("copied", "c"));
    let both = join_all([&waits, &copied].map(|cmd| {
        let together = Some(Together::Lock);
        wire.request_with(cmd, Delivery { together, ..Delivery::default() })
    }));
    let serve = async {
        let sent = server.commands(BUSY + 2).await;
        assert_eq!([&*sent[BUSY][5], &*sent[BUSY + 1][5]], ["l:waits", "l:copied"]);
        server.say(&"+PONG\r\n".repeat(BUSY)).await;
        server.say(":1\r\n:2\r\n").await;
    };
    let (_, both, ()) = tokio::join!(plain, both, serve);
    let both: Vec<_> = both.into_iter().map(|answer| answer.unwrap().value).collect();
    assert_eq!(both, [Value::Int(1), Value::Int(2)]);
}

#[tokio::test]
async fn what_a_group_was_not_for_is_asked_for_alone() {
    let (answers, later) = three("*3\r\n:0\r\n:20\r\n:0\r\n", &[":7\r\n", "-OOM no\r\n"]).await;
    assert_eq!(later.len(), 2, "and nothing else");
    assert_eq!([&later[0][5], &later[1][5]], ["l:1", "l:3"]);
    assert_eq!([&later[0][1], &later[1][1]], ["hash", "hash"]);
    let [Ok(one), Ok(two), Err(Trouble::Refused(error))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((one, two, error.code()), (&Value::Int(7), &Value::Int(20), Some("OOM")));
}

#[tokio::test]
async fn a_group_that_is_refused_or_answered_otherwise_is_asked_for_one_by_one() {
    let each = [":7\r\n", ":8\r\n", ":9\r\n"];
    for (group, loads) in [
        ("-NOSCRIPT No matching script.\r\n", true),
        ("-CROSSSLOT Keys in request don't hash to the same slot\r\n", false),
        ("-ERR The user executing the script can't run this command\r\n", false),
        ("-OOM command not allowed\r\n", false),
        ("*2\r\n:1\r\n:2\r\n", false),
        (":1\r\n", false),
    ] {
        let mut after = each.to_vec();
        after.extend(loads.then_some("$4\r\nhash\r\n"));
        let (answers, later) = three(group, &after).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [Value::Int(7), Value::Int(8), Value::Int(9)], "{group}");
        let sent = later.iter().filter(|words| words[1] == "hash").count();
        assert_eq!((sent, later.len()), (3, after.len()), "{group}");
        if loads {
            assert_eq!(later[3], ["SCRIPT", "LOAD", MANY.text()]);
        }
    }
}

#[tokio::test]
async fn a_server_that_takes_no_groups_is_asked_for_no_other() {
    for (refusal, again) in [("-CROSSSLOT apart", false), ("-OOM full", true)] {
        let (wire, mut server) = Server::start().await;
        for round in 0..2 {
            let ping = redis::cmd("PING");
            let plain = join_all((0..BUSY).map(|_| wire.request(&ping)));
            let (one, two) = (unlock("1"), unlock("2"));
            let together = Some(Together::Unlock);
            let pair =
                join_all([&one, &two].map(|cmd| {
                    wire.request_with(cmd, Delivery { together, ..Delivery::default() })
                }));
            let serve = async {
                let grouped = round == 0 || again;
                if grouped {
                    server.commands(BUSY).await;
                    server.say("+PONG\r\n").await;
                    assert_eq!(server.commands(1).await[0][1], MANY.hash());
                    server.say(&"+PONG\r\n".repeat(BUSY - 1)).await;
                    server.say(&format!("{refusal}\r\n")).await;
                    server.commands(2).await;
                } else {
                    let sent = server.commands(BUSY + 2).await;
                    assert_eq!([&*sent[BUSY][1], &*sent[BUSY + 1][1]], ["hash", "hash"]);
                    server.say(&"+PONG\r\n".repeat(BUSY)).await;
                }
                server.say(":1\r\n:1\r\n").await;
            };
            let (_, pair, ()) = tokio::join!(plain, pair, serve);
            assert!(pair.iter().all(Result::is_ok), "{pair:?}");
        }
    }
}

#[tokio::test]
async fn who_has_gone_is_not_asked_for_again_and_who_waits_hears_of_the_end() {
    let (wire, mut server) = Server::start().await;
    let ping = redis::cmd("PING");
    let plain = async { join_all((0..BUSY).map(|_| wire.request(&ping))).await };
    let together = Some(Together::Unlock);
    let (gone, stays, late) = (lock("gone"), unlock("stays"), unlock("late"));
    let frees = unlock("frees");
    let delivery = || Delivery { together, ..Delivery::default() };
    let asks = async {
        let together = Some(Together::Lock);
        let gone = wire.request_with(&gone, Delivery { together, ..Delivery::default() });
        let mut gone = Box::pin(join(gone, wire.request_with(&frees, delivery())));
        let mut stays = pin!(wire.request_with(&stays, delivery()));
        tokio::select! {
            biased;
            _ = &mut gone => panic!("nobody answers"),
            _ = &mut stays => panic!("nobody answers"),
            () = sleep(Duration::from_millis(50)) => {}
        }
        drop(gone);
        stays.await
    };
    let serve = async {
        server.commands(BUSY).await;
        sleep(Duration::from_millis(100)).await;
        server.say("+PONG\r\n").await;
        server.commands(1).await;
        server.say(&"+PONG\r\n".repeat(BUSY - 1)).await;
        server.say("*3\r\n:0\r\n:0\r\n:0\r\n").await;
        // An unlock is, though nobody waits for its answer.
        let again = server.commands(2).await;
        let asked: Vec<_> = again.iter().map(|words| &*words[5]).collect();
        assert_eq!(asked, ["l:frees", "l:stays"]);
        server.say(":1\r\n:1\r\n").await;
    };
    let (_, stays, ()) = tokio::join!(plain, asks, serve);
    assert_eq!(stays.unwrap().value, Value::Int(1));
    // One that has not left yet, and the server hangs up.
    let plain = async { join_all((0..BUSY).map(|_| wire.request(&ping))).await };
    let hang_up = async {
        server.commands(BUSY).await;
        drop(server);
    };
    let (_, late, ()) = tokio::join!(plain, wire.request_with(&late, delivery()), hang_up);
    assert!(matches!(late, Err(Trouble::Dropped(_))), "{late:?}");
}
