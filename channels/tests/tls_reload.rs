//! Goal: keys that cannot be used are reported once, and again after a repair.
//! Method: files that are replaced under a running channel, in virtual time.
#![cfg(all(feature = "tcp", feature = "tls"))]
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{fs, net::Ipv4Addr, time::Duration};

use gaggle_channels::{Channel, NodeName, Tcp, TcpOptions};
use gaggle_fixtures::{Certificates, Events};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn failed_reload_is_logged_once_and_again_after_a_repair() {
    let (events, _recording) = Events::of_thread();
    let directories: [Certificates; 3] = std::array::from_fn(|_| Certificates::new());
    let [own, new, other] = &directories;
    directories.iter().for_each(|each| each.issue_members("c", &["a"]));
    let options = TcpOptions::new(NodeName::new("a").unwrap(), (Ipv4Addr::LOCALHOST, 0).into());
    let a = Tcp::new(options.tls("c", own.keys("a"))).unwrap();
    a.connect().await.unwrap();
    // How many reloads have failed, and how many have succeeded, after some more of them.
    let logged = async || {
        sleep(Duration::from_secs(35)).await;
        let failed = events.with("new TLS keys do not fit").len();
        (failed, events.with("new TLS keys for new connections name=a").len())
    };
    assert_eq!(logged().await, (0, 0), "nothing has changed");
    own.replace("a-key.pem", new);
    assert_eq!(logged().await, (1, 0), "the same failure");
    fs::remove_file(own.path("ca.pem")).unwrap();
    assert_eq!(logged().await, (2, 0), "another failure");
    ["ca.pem", "a.pem"].iter().for_each(|file| own.replace(file, new));
    assert_eq!(logged().await, (2, 1));
    own.replace("a-key.pem", other);
    assert_eq!(logged().await, (3, 1), "the first failure, after a success");
    own.replace("a-key.pem", new);
    assert_eq!(logged().await, (3, 1), "the files in use");
    own.replace("a-key.pem", other);
    assert_eq!(logged().await, (4, 1), "the same failure, after a repair");
}
