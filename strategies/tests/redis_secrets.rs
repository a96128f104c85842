//! Goal: no error of a Redis handle shows a secret of its URL. Method: handles are opened with a
//! secret at every position of the URL; no server listens.
#![cfg(feature = "redis")]

use gaggle_fixtures::{SECRET_PARTS, secret_urls};
use gaggle_strategies::{Redis, RedisOptions};

#[tokio::test]
async fn open_error_shows_no_secret() {
    for url in secret_urls() {
        let error = Redis::open(RedisOptions::new(&url)).await.expect_err(&url);
        let shown = format!("{error} {error:?}");
        assert!(!SECRET_PARTS.iter().any(|part| shown.contains(part)), "{url:?}: {shown}");
    }
}
