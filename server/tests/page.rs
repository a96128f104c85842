//! Goal: the status page shows the numbers of the API, runs no text of a user, and says what is
//! wrong.
//! Method: headless Chromium reads it from servers on free ports. The screenshots stay in the
//! directory for temporary files of the build, `target/tmp`.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

mod support;

use std::{
    env, fs,
    future::pending,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use gaggle_server::{Access, Listen, Options, Service, serve};
use support::{Client, Tokens};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// A browser that ends within this time has failed.
const SECONDS_MAX: &str = "60";

async fn start(url: &str, access: Access, options: Options) -> (String, Client) {
    let locker = gaggle::open(url).await.unwrap();
    let service = Service::new(locker, access, options).unwrap();
    let client = Client { router: service.router(), token: None };
    let listener = "127.0.0.1:0".parse::<Listen>().unwrap().bind().await.unwrap();
    let url = listener.url();
    tokio::spawn(serve(service, vec![listener], pending()));
    (url, client)
}

/// Runs a headless Chromium with a fresh profile. Returns its standard output.
async fn chromium(url: &str, arguments: &[&str]) -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let profile = env::temp_dir().join(format!("gaggle-page-{}-{run}", std::process::id()));
    let mut command = Command::new("timeout");
    command.args([SECONDS_MAX, "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
    command.args(["--hide-scrollbars", "--virtual-time-budget=3000"]).args(arguments).arg(url);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let _ = fs::remove_dir_all(profile);
    assert!(output.status.success(), "chromium: {}: is it installed? see ./test", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The page after its script has run for a while.
async fn shown(url: &str) -> String {
    chromium(url, &["--dump-dom"]).await
}

/// The text of the element with this id, up to its first child.
fn text<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!(" id=\"{id}\"")).unwrap_or_else(|| panic!("{id}"));
    rest.split_once('>').unwrap().1.split('<').next().unwrap()
}

/// The rows of a table: the texts of their cells.
fn rows(page: &str, id: &str) -> Vec<Vec<String>> {
    let table = page.split_once(&format!("<table id=\"{id}\"")).unwrap().1;
    let body = table.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    let cells = |row: &str| {
        let cells = row.split("<td").skip(1).map(|cell| {
            let cell = cell.split_once('>').unwrap().1.split_once("</td>").unwrap().0;
            cell.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        });
        cells.collect()
    };
    body.split("<tr>").skip(1).map(cells).collect()
}

fn is_hidden(page: &str, id: &str) -> bool {
    let (_, rest) = page.split_once(&format!(" id=\"{id}\"")).unwrap();
    rest.split_once('>').unwrap().0.contains("hidden")
}

const HOSTILE: &str = "<script>document.title='x'</script><img src=x onerror=alert(1)>&amp;";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_shows_the_numbers_of_the_api() {
    let (url, client) = start("local:", Access::anonymous(), Options::default()).await;
    for resource in ["orders/42", HOSTILE, "ä\u{202e}\u{1f512}", "orders/42", "orders/42", HOSTILE]
    {
        client.claim(resource).await;
    }
    let revoked = client.claim("nightly").await;
    client.set(&revoked, "revoked").await.is(204);
    let page = shown(&url).await;
    let status = client.get("/v1/status").await.is(200).body;
    assert_eq!((text(&page, "held"), text(&page, "waiting")), ("3", "3"));
    assert_eq!(text(&page, "held"), status["held"].to_string());
    assert_eq!(text(&page, "waiting"), status["waiting"].to_string());
    let keys = status["keys"].as_array().unwrap();
    let expected = |at: usize, name: &str| keys[at][name].as_str().unwrap().to_owned();
    let shown = rows(&page, "keys");
    assert_eq!(shown.len(), keys.len());
    for (at, row) in shown.iter().enumerate() {
        let named = [&row[0], &row[1], &row[5]].map(Clone::clone);
        assert_eq!(named, ["resource", "holder", "fencing_token"].map(|name| expected(at, name)));
        assert_eq!(row[4], keys[at]["waiters"].to_string());
        assert!(row[2].ends_with(" s") && row[3].ends_with(" s"), "{row:?}");
    }
    assert_eq!(shown[1][0], HOSTILE);
    assert!(page.contains("<title>Gaggle</title>") && !page.contains("<img"), "{page}");
    let losses = rows(&page, "losses");
    assert_eq!((losses.len(), &*losses[0][0], &*losses[0][2]), (1, "nightly", "revoked"));
    assert_eq!(text(&page, "ready"), "grants locks");
    assert!(is_hidden(&page, "problem") && is_hidden(&page, "access"), "{page}");
    assert!(text(&page, "updated").starts_with("as of "), "{page}");
    screenshots(&url).await;
}

/// The page at the width of a telephone and of a screen, in both colour schemes.
async fn screenshots(url: &str) {
    for width in [400, 1_400] {
        let mut images = Vec::new();
        for (scheme, number) in [("dark", 0), ("light", 1)] {
            let name = format!("status-{width}-{scheme}.png");
            let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            let size = format!("--window-size={width},1000");
            let scheme = format!("--blink-settings=preferredColorScheme={number}");
            let image = format!("--screenshot={}", path.display());
            chromium(url, &[&size, &scheme, &image]).await;
            images.push(fs::read(path).unwrap());
        }
        assert!(images.iter().all(|image| image.len() > 10_000), "there is something to see");
        assert_ne!(images[0], images[1], "the scheme is that of the reader");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_names_the_leader_of_a_group() {
    let group = "gaggle+memory://page?name=a&members=a&outside_max=100ms";
    let options = Options::default().max_ttl(Duration::from_millis(100));
    let (url, client) = start(group, Access::anonymous(), options).await;
    while client.get("/ready").await.status != 200 {
        support::sleep(0.1).await;
    }
    client.create(serde_json::json!({ "resource": "k", "ttl": 0.1 })).await.is(201);
    let page = shown(&url).await;
    assert_eq!((text(&page, "leader"), text(&page, "members")), ("a (here)", "a"));
    let status = client.get("/v1/status").await.is(200).body;
    assert_eq!(status["group"]["leader"], "a");
    assert_eq!(text(&page, "term"), status["group"]["term"].to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_without_a_token_asks_for_one() {
    let tokens = Tokens::new("asked");
    let (url, client) =
        start("local:", Access::tokens(tokens.path()).unwrap(), Options::default()).await;
    let [one, ..] = tokens.clients(&client);
    one.claim("a key of one").await;
    let page = shown(&url).await;
    assert!(is_hidden(&page, "data") && !is_hidden(&page, "access"), "{page}");
    assert!(!page.contains("a key of one"), "{page}");
}

/// The server ends after it has sent the page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_says_that_the_server_does_not_answer() {
    let (url, _client) = start("local:", Access::anonymous(), Options::default()).await;
    let mut upstream = tokio::net::TcpStream::connect(&url["http://".len()..]).await.unwrap();
    upstream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut response = Vec::new();
    upstream.read_to_end(&mut response).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(listener);
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        stream.write_all(&response).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let page = shown(&url).await;
    assert_eq!(text(&page, "problem"), "The server does not answer.");
    assert!(!is_hidden(&page, "problem"), "{page}");
}
