//! Goal: files that TLS cannot use are refused with the option, the file and the cure.
//!
//! Method: files made by `openssl` and by the authority of tests, in directories of a test's own.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use gaggle_channels::{
    ChannelError, NodeName, Tcp, TcpOptions,
    tls::{TlsClient, TlsFiles, TlsKeys, Validity},
};
use gaggle_fixtures::{Certificates, free_port};

use tokio::{net::TcpStream, time::sleep};

/// A self-signed certificate and its key, made by `openssl`.
fn self_signed(directory: &Certificates, name: &str, authority: bool) -> (PathBuf, PathBuf) {
    made(directory, name, authority, &[])
}

/// The same with more arguments of `openssl`, which may name another issuer.
fn made(
    directory: &Certificates,
    name: &str,
    authority: bool,
    arguments: &[&str],
) -> (PathBuf, PathBuf) {
    let [cert, key] = ["", "-key"].map(|part| directory.path(&format!("{name}{part}.pem")));
    let constraint = if authority { "TRUE" } else { "FALSE" };
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=test", "-addext"])
        .arg(format!("basicConstraints=critical,CA:{constraint}"))
        .args([Path::new("-keyout"), &key, Path::new("-out"), &cert])
        .args(arguments)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    (cert, key)
}

fn openssl(arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

/// The option and the problem.
fn refused(files: &TlsFiles) -> (&'static str, String) {
    match TlsClient::new(files) {
        Err(ChannelError::InvalidOptions { field, problem }) => (field, problem),
        other => panic!("{files:?}: {other:?}"),
    }
}

#[test]
fn unusable_files_are_refused_by_option_and_cure() {
    let directory = Certificates::new();
    let (ca, ca_key) = self_signed(&directory, "root", true);
    let (leaf, leaf_key) = self_signed(&directory, "leaf", false);
    let text = directory.write("text", "no PEM");
    let half = directory.write("half", "-----BEGIN CERTIFICATE-----\nMIIB");
    let missing = directory.path("missing");
    let files = |ca: &PathBuf| TlsFiles::default().ca(ca);
    let own = |cert: &PathBuf, key: &PathBuf| files(&ca).cert(cert, key);
    TlsClient::new(&files(&ca)).unwrap();
    TlsClient::new(&own(&leaf, &leaf_key)).unwrap();
    for (files, file, option, problem) in [
        (files(&missing), &missing, "tls_ca", "No such file"),
        (files(&directory.path("")), &directory.path(""), "tls_ca", "expected a file of at most"),
        (files(&text), &text, "tls_ca", "no certificate in PEM form"),
        (files(&half), &half, "tls_ca", "malformed PEM"),
        (own(&text, &leaf_key), &text, "tls_cert", "no certificate in PEM form"),
        (own(&leaf, &text), &text, "tls_key", "no private key in PEM form"),
        (own(&leaf, &ca_key), &ca_key, "tls_key", "the key is not that of tls_cert"),
    ] {
        let (field, shown) = refused(&files);
        assert_eq!(field, option, "{files:?}: {shown}");
        assert!(shown.contains(problem), "{files:?}: {shown}");
        assert!(shown.contains(&*file.to_string_lossy()), "it names the file: {shown}");
    }
    fs::set_permissions(&leaf_key, fs::Permissions::from_mode(0o644)).unwrap();
    let (field, shown) = refused(&own(&leaf, &leaf_key));
    assert_eq!(field, "tls_key");
    assert!(shown.contains(&format!("chmod 600 {}", leaf_key.display())), "{shown}");
}

/// Each kind of file that `openssl` writes, where PEM of a certificate or of a key is expected.
#[test]
fn file_of_another_kind_is_named_with_its_cure() {
    let directory = Certificates::new();
    let (cert, key) = self_signed(&directory, "leaf", false);
    fs::set_permissions(&cert, fs::Permissions::from_mode(0o600)).unwrap();
    let path = |name: &str| directory.path(name);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let [cert_text, key_text] = [&cert, &key].map(|path| text(path));
    let made = |name: &str, arguments: &str| {
        let made = text(&path(name));
        let arguments = arguments.replace("CERT", &cert_text).replace("KEY", &key_text);
        let arguments: Vec<&str> = arguments.split(' ').chain(["-out", &made]).collect();
        openssl(&arguments);
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).unwrap();
        path(name)
    };
    let own = |cert: &PathBuf, key: &PathBuf| TlsFiles::default().cert(cert, key);
    let rsa = made("rsa.pem", "genrsa -traditional");
    let old = format!("rsa -in {} -aes128 -passout pass:x", text(&rsa));
    let version_1 = made("request.pem", "req -new -key KEY -subj /CN=test");
    let version_1 = format!("x509 -req -in {} -signkey KEY", text(&version_1));
    let p12 = "pkcs12 -export -in CERT -inkey KEY -passout pass:x";
    let foreign = "ecparam -name secp521r1 -genkey -noout";
    for (files, option, problem) in [
        (
            own(&made("c.der", "x509 -in CERT -outform DER"), &key),
            "tls_cert",
            "openssl x509 -inform DER",
        ),
        (
            own(&made("c.p12", p12), &key),
            "tls_cert",
            "it is PKCS #12: expected PEM, as `openssl pkcs12",
        ),
        (own(&path("request.pem"), &key), "tls_cert", "it is a certificate request: expected the"),
        (own(&key, &key), "tls_cert", "it has a private key: expected a certificate"),
        (own(&made("v1.pem", &version_1), &key), "tls_cert", "X.509 version 1: expected version 3"),
        (
            own(&cert, &made("k.der", "pkey -in KEY -outform DER")),
            "tls_key",
            "openssl pkey -inform DER",
        ),
        (
            own(&cert, &made("r.der", &format!("rsa -in {} -outform DER", text(&rsa)))),
            "tls_key",
            "it is DER",
        ),
        (own(&cert, &path("c.p12")), "tls_key", "-nocerts -noenc` writes it"),
        (
            own(&cert, &made("e.pem", "pkey -in KEY -aes128 -passout pass:x")),
            "tls_key",
            "it is encrypted: ",
        ),
        (
            own(&cert, &made("old.pem", &format!("{old} -traditional"))),
            "tls_key",
            "without a passphrase, as",
        ),
        (own(&cert, &cert), "tls_key", "it has a certificate: expected its private key"),
        (
            own(&cert, &made("p521.pem", foreign)),
            "tls_key",
            "expected a key of Ed25519, ECDSA P-256",
        ),
        (own(&cert, &rsa), "tls_key", "the key is not that of tls_cert"),
    ] {
        let (field, shown) = refused(&files);
        assert_eq!(field, option, "{files:?}: {shown}");
        assert!(shown.contains(problem), "{problem}: {shown}");
    }
}

/// Why a client refuses a server that has this certificate.
async fn refused_server(cert: &Path, key: &Path, files: TlsFiles) -> Result<(), String> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-accept", &at.to_string(), "-cert"])
        .args([cert, Path::new("-key"), key])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    let stream = loop {
        match TcpStream::connect(at).await {
            Ok(stream) => break stream,
            Err(_) => assert!(server.try_wait().unwrap().is_none(), "{cert:?}"),
        }
        sleep(Duration::from_millis(5)).await;
    };
    let connected = TlsClient::new(&files).unwrap().connect("localhost", stream).await;
    server.kill().unwrap();
    server.wait().unwrap();
    connected.map(drop).map_err(|error| error.to_string())
}

/// Each certificate is its own authority.
#[tokio::test]
async fn certificate_of_a_server_is_refused_with_its_cure() {
    let directory = Certificates::new();
    let name = ["-addext", "subjectAltName=DNS:localhost"];
    let of = |file: &str, authority: bool, arguments: &[&str]| {
        made(&directory, file, authority, arguments)
    };
    let version_1 = || {
        let (_, key) = of("v1", false, &[]);
        let [request, cert] = ["v1.csr", "v1.pem"].map(|name| directory.path(name));
        let [request, cert_text, key_text] =
            [&request, &cert, &key].map(|path| path.to_str().unwrap());
        openssl(&["req", "-new", "-key", key_text, "-subj", "/CN=localhost", "-out", request]);
        openssl(&["x509", "-req", "-in", request, "-signkey", key_text, "-out", cert_text]);
        (cert, key)
    };
    let (good, key) = of("good", false, &name);
    refused_server(&good, &key, TlsFiles::default().ca(&good)).await.unwrap();
    for ((cert, key), ca, problem) in [
        (of("ca", true, &name), None, "CA:TRUE) used as one's own: expected one that"),
        (version_1(), None, "X.509 version 1: expected version 3 with a subjectAltName"),
        (
            of("nameless", false, &[]),
            None,
            "no name: expected a subjectAltName, a common name does",
        ),
        (
            (good.clone(), key.clone()),
            Some(directory.path("nameless.pem")),
            "not signed by one of tls_ca",
        ),
    ] {
        let files = TlsFiles::default().ca(ca.as_ref().unwrap_or(&cert));
        let shown = refused_server(&cert, &key, files).await.unwrap_err();
        assert!(shown.contains(problem), "{problem}: {shown}");
    }
    let unknown = refused_server(&good, &key, TlsFiles::default()).await.unwrap_err();
    assert!(
        unknown.ends_with("not an authority of this system: set tls_ca to the authority's file"),
        "{unknown}"
    );
}

#[test]
fn system_roots_are_found_without_a_file() {
    TlsClient::new(&TlsFiles::default()).unwrap();
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// The option and the problem.
fn keys_refused(node: &str, cluster: &str, keys: TlsKeys) -> (&'static str, String) {
    let options = TcpOptions::new(name(node), (Ipv4Addr::LOCALHOST, 0).into());
    match Tcp::new(options.tls(cluster, keys)) {
        Err(ChannelError::InvalidOptions { field, problem }) => (field, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unusable_keys_are_refused_by_option_and_cure() {
    let (ours, foreign) = (Certificates::new(), Certificates::new());
    ours.issue_members("c", &["a", "b"]);
    foreign.issue_members("c", &["a"]);
    let dns_name = "a.member.c.gaggle";
    ours.issue_for("expired", dns_name, Validity { from: 0, until: 1_700_000_000 });
    ours.issue_for("early", dns_name, Validity { from: 4_102_444_800, until: 4_202_444_800 });
    let secret =
        |bytes: usize| TlsKeys::secret(ours.write(&format!("secret-{bytes}"), &"x".repeat(bytes)));
    let mixed =
        |ca: PathBuf, cert: &str, key: &str| TlsKeys::files(ca, ours.path(cert), ours.path(key));
    let long = "x".repeat(64);
    let ca = || ours.path("ca.pem");
    for (node, cluster, keys, option, problem) in [
        ("a", "c", secret(31), "secret_file", "31 bytes long, the limit is at least 32"),
        ("a", "c", mixed(ca(), "a.pem", "b-key.pem"), "tls_key", "not that of tls_cert"),
        (
            "a",
            "c",
            mixed(foreign.path("ca.pem"), "a.pem", "a-key.pem"),
            "tls_cert",
            "not signed by",
        ),
        ("a", "other", ours.keys("a"), "tls_cert", "is not for a.member.other.gaggle"),
        ("b", "c", ours.keys("a"), "tls_cert", "is not for b.member.c.gaggle"),
        ("a", "c", mixed(ca(), "expired.pem", "expired-key.pem"), "tls_cert", "expired at 2023"),
        ("a", "c", mixed(ca(), "early.pem", "early-key.pem"), "tls_cert", "this machine's clock?"),
        ("a", "c", mixed(ca(), "ca.pem", "ca-key.pem"), "tls_cert", "used as one's own"),
        ("a", "c", mixed(ours.path("a.pem"), "a.pem", "a-key.pem"), "tls_cert", "not signed by"),
        ("A", "c", secret(32), "name", "a part of a DNS name"),
        ("a-", "c", secret(32), "name", "a part of a DNS name"),
        (&long, "c", secret(32), "name", "a part of a DNS name"),
        ("a", "c.d", secret(32), "cluster", "a part of a DNS name"),
        ("a", "", secret(32), "cluster", "a part of a DNS name"),
    ] {
        let (field, shown) = keys_refused(node, cluster, keys);
        assert_eq!(field, option, "{shown}");
        assert!(shown.contains(problem), "{problem}: {shown}");
    }
    let path = ours.write("secret", &"x".repeat(32));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (field, shown) = keys_refused("a", "c", TlsKeys::secret(&path));
    assert_eq!(field, "secret_file");
    assert!(shown.contains(&format!("chmod 600 {}", path.display())), "{shown}");
    let everywhere = |node| TcpOptions::new(name(node), "0.0.0.0:0".parse().unwrap());
    assert!(Tcp::new(everywhere("a").tls("c", ours.keys("a"))).is_ok());
    for (options, option) in [
        (everywhere("a").insecure(true), "insecure"),
        (everywhere("a").peer(name("B"), "127.0.0.1:1"), "peers"),
    ] {
        let error = Tcp::new(options.tls("c", ours.keys("a"))).unwrap_err();
        assert!(
            matches!(error, ChannelError::InvalidOptions { field, .. } if field == option),
            "{error}"
        );
    }
}

#[test]
fn certificate_of_a_member_needs_both_usages() {
    let directory = Certificates::new();
    let (ca, ca_key) = self_signed(&directory, "root", true);
    let signed = |purpose: &str| {
        let purpose = format!("extendedKeyUsage={purpose}");
        let name = "subjectAltName=DNS:a.member.c.gaggle";
        let [issuer, by] = [&ca, &ca_key].map(|path| path.to_str().unwrap());
        let arguments = ["-addext", &purpose, "-addext", name, "-CA", issuer, "-CAkey", by];
        let (cert, key) = made(&directory, "a", false, &arguments);
        TlsKeys::files(&ca, cert, key)
    };
    for (purpose, missing) in [("serverAuth", "client"), ("clientAuth", "server")] {
        let (field, shown) = keys_refused("a", "c", signed(purpose));
        assert_eq!(field, "tls_cert", "{shown}");
        let expected = format!("a.pem: certificate does not allow {missing} authentication");
        assert!(shown.contains(&expected), "{shown}");
    }
    let both = TcpOptions::new(name("a"), (Ipv4Addr::LOCALHOST, 0).into());
    Tcp::new(both.tls("c", signed("serverAuth,clientAuth"))).unwrap();
}

/// A Redis does so with the `ca.pem` of a rotation.
#[test]
fn openssl_trusts_both_authorities_of_a_bundle() {
    let both = [Certificates::new(), Certificates::new()];
    let pem = both.each_ref().map(|own| fs::read_to_string(own.path("ca.pem")).unwrap());
    for bundle in [format!("{}{}", pem[0], pem[1]), format!("{}{}", pem[1], pem[0])] {
        let bundle = both[0].write("bundle.pem", &bundle);
        for own in &both {
            own.issue_members("c", &["a"]);
            let verified = Command::new("openssl")
                .args([Path::new("verify"), Path::new("-CAfile"), &bundle, &own.path("a.pem")])
                .output()
                .expect("openssl is installed");
            assert!(verified.status.success(), "{verified:?}");
        }
    }
}
