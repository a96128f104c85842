//! Goal: `gaggle cert` and `gaggle secret` make files with which members open.
//!
//! Method: the binary, `openssl verify` and `gaggle::open`.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::process::{Command, Output};

fn gaggle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gaggle")).args(arguments).output().unwrap()
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_build_without_tls_names_the_feature() {
    for arguments in [&["secret"][..], &["cert", "ca"]] {
        let refused = gaggle(arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("feature tls"), "{refused:?}");
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn two_commands_make_the_files_of_a_cluster() {
    use std::{fs, os::unix::fs::PermissionsExt};

    use gaggle_fixtures::free_port;

    let dir = std::env::temp_dir().join(format!("gaggle-cert-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let shown = dir.to_str().unwrap();
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    for arguments in [
        &["cert", "ca", "--dir", shown][..],
        &["cert", "member", "a", "b", "--cluster", "c", "--dir", shown],
        &["secret", &file("secret")],
    ] {
        let made = gaggle(arguments);
        assert!(made.status.success(), "{arguments:?}: {made:?}");
    }
    let fails = |arguments: &[&str], problem: &str| {
        let refused = gaggle(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains(problem) && !text.contains("tls_key"), "{text}");
    };
    let member = |names: &[&str], cluster: &str, dir: &str, problem: &str| {
        let options = ["--cluster", cluster, "--dir", dir];
        fails(&[&["cert", "member"], names, &options].concat(), problem);
    };
    member(&["d", "a"], "c", shown, "move it away");
    member(&["d", "d"], "c", shown, "two of the NAMEs");
    member(&["d", "d-key"], "c", shown, "make d-key.pem");
    let exists = "secret: it exists, and none is overwritten: move it away";
    fails(&["secret", &file("secret")], exists);
    fails(&["secret", "-"], "omit FILE to print the secret");
    assert!(!fs::exists("-").unwrap(), "a file in this directory");
    assert!(!fs::exists(file("d-key.pem")).unwrap(), "all are checked before the first is written");
    for name in ["ca.pem", "ca-key.pem", "a.pem", "a-key.pem", "b.pem", "b-key.pem", "secret"] {
        let mode = fs::metadata(file(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let verified = Command::new("openssl")
        .args(["verify", "-CAfile", &file("ca.pem"), "-verify_hostname", "a.member.c.gaggle"])
        .arg(file("a.pem"))
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    let (a, b) = (free_port(), free_port());
    let url = format!(
        "gaggle+tcp://127.0.0.1:{a}?cluster=c&name=a&peers=a@127.0.0.1:{a},b@127.0.0.1:{b}"
    );
    let by_files = format!(
        "{url}&tls_ca={}&tls_cert={}&tls_key={}",
        file("ca.pem"),
        file("a.pem"),
        file("a-key.pem")
    );
    for url in [by_files.clone(), format!("{url}&secret_file={}", file("secret"))] {
        gaggle::open(&url).await.unwrap().close().await;
    }
    let wrong = gaggle::open(&by_files.replace("a-key.pem", "b-key.pem")).await.unwrap_err();
    assert!(wrong.to_string().contains("option tls_key: "), "{wrong}");
    // None is overwritten, and no name becomes a path.
    fails(&["cert", "ca", "--dir", shown], "ca-key.pem: it exists");
    member(&["n", "../a"], "c", shown, "NAME \"../a\": under TLS it is");
    member(&["n"], "C", shown, "--cluster: under TLS it is");
    member(&["n"], "c", "/nowhere", "gaggle cert ca makes");
    // A key of another authority, or none.
    fs::rename(file("ca-key.pem"), file("kept.pem")).unwrap();
    member(&["n"], "c", shown, "ca-key.pem: no such file: --dir names");
    fails(&["cert", "ca", "--dir", shown], "ca.pem: it exists");
    assert!(!fs::exists(file("ca-key.pem")).unwrap(), "no key without its certificate");
    fs::copy(file("a-key.pem"), file("ca-key.pem")).unwrap();
    member(&["n"], "c", shown, "ca-key.pem: it is not the key of ");
    let printed = gaggle(&["secret"]).stdout;
    assert_eq!(printed.len(), 65, "32 bytes in hexadecimal digits, and the end of the line");
    fs::remove_dir_all(dir).unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn failed_write_leaves_no_file() {
    use std::fs;

    let dir = std::env::temp_dir().join(format!("gaggle-cert-full-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    // The limit of a file in bytes: a key has 119, and a certificate more than 200.
    let limited = |bytes: u32, arguments: &str| {
        let program = env!("CARGO_BIN_EXE_gaggle");
        let line = format!("trap '' XFSZ; prlimit --fsize={bytes} '{program}' {arguments}");
        Command::new("sh").args(["-c", &line]).current_dir(&dir).output().unwrap()
    };
    let files = || {
        let files = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name());
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let fails = |bytes, arguments: &str, part: &str| {
        let (before, failed) = (files(), limited(bytes, arguments));
        let text = String::from_utf8_lossy(&failed.stderr);
        assert!(failed.status.code() == Some(2) && text.contains(part), "{arguments}: {text}");
        assert_eq!(files(), before, "{arguments}");
    };
    fails(0, "secret s", "s: File too large");
    fails(200, "cert ca", "ca.pem: File too large");
    assert!(limited(2_000, "cert ca").status.success());
    fails(200, "cert member a b --cluster o", "a.pem: File too large");
    assert!(limited(2_000, "cert member a b --cluster o").status.success());
    fs::remove_dir_all(dir).unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn certificate_ends_with_its_authority() {
    use std::fs;

    let dir = std::env::temp_dir().join(format!("gaggle-cert-end-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let shown = dir.to_str().unwrap();
    let member = |name, options: &[&str]| {
        let arguments = ["cert", "member", name, "--cluster", "o", "--dir", shown];
        gaggle(&[&arguments[..], options].concat())
    };
    let text_of = |name: &str, options: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-in"]).arg(dir.join(name)).args(options);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(gaggle(&["cert", "ca", "--days", "2", "--dir", shown]).status.success());
    let refused = member("a", &["--days", "3"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), text.matches("Z").count()), (Some(2), 2), "{text}");
    assert!(text.contains("--days: 3 is until 2") && text.contains("valid until 2"), "{text}");
    assert!(!dir.join("a-key.pem").exists());
    assert!(member("a", &["--days", "1"]).status.success());
    assert!(member("b", &[]).status.success());
    let end = |name| text_of(name, &["-enddate"]);
    assert_eq!(end("b.pem"), end("ca.pem"));
    assert_ne!(end("a.pem"), end("ca.pem"));
    fs::remove_dir_all(dir).unwrap();
}
