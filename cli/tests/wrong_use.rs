//! Goal: a wrong command line is refused with what was expected, before any request.
//! Method: the files in `wrong_use/` hold command lines, their exit codes and what they print.
//! `TRYCMD=overwrite cargo test -p gaggle-cli --test wrong_use` writes what is printed now.

/// An unreachable server.
const NOWHERE: &str = "redis://127.0.0.1:1";

#[test]
fn wrong_use_is_refused_with_what_was_expected() {
    let cases = trycmd::TestCases::new();
    cases.env("GAGGLE_URL", NOWHERE).env("GAGGLE_REDIS", "").env("RUST_LOG", "");
    cases.case("tests/wrong_use/*.trycmd");
    if cfg!(not(feature = "tls")) {
        cases.skip("tests/wrong_use/tls.trycmd");
    }
}
