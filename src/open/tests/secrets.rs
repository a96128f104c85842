//! Goal: no error and no `Debug` shows a part of a URL that may be a secret.
//! Method: a generated secret, with all characters that end a part of a URL, at every position of
//! every form; and as user and password of valid URLs.

use std::{cmp::Reverse, error::Error as _};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;

use super::{SCHEMES, Url};
use crate::OpenError;

/// The parts of a secret; no URL form, option or message contains one of them.
const PARTS: [&str; 4] = ["hunter", "zyxwvu", "Tr0ub", "9q8w7"];

fn secret() -> impl Strategy<Value = String> {
    let part = prop::sample::select(&PARTS[..]);
    let between = "[:/?#@&=+,;%!. \\[\\]]{1,2}|%3F|%|1:2@|";
    (part.clone(), between, part.clone(), between, part)
        .prop_map(|(one, first, two, second, three)| format!("{one}{first}{two}{second}{three}"))
}

/// Names and values of options are no secrets in a URL without an option that holds one.
fn assert_hidden(shown: &str, url: &str) -> Result<(), TestCaseError> {
    let (lower, url) = (shown.to_lowercase(), &url.to_lowercase());
    let options = url.split_once('?').map_or("", |(_, query)| query);
    let options = if url.contains("pass") { "" } else { options };
    let mut words: Vec<_> = options.split(['&', '=']).filter(|word| !word.is_empty()).collect();
    // A short word may be a part of a longer one.
    words.sort_by_key(|word| Reverse(word.len()));
    let lower = words.iter().fold(lower, |lower, word| lower.replace(word, ""));
    for part in PARTS {
        prop_assert!(!lower.contains(&part.to_lowercase()), "{url}: {shown}");
    }
    Ok(())
}

/// All that a program may print of an error.
fn shown(error: &OpenError) -> String {
    let mut shown = format!("{error:?} {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        shown += &format!(" {cause:?} {cause}");
        source = cause.source();
    }
    shown
}

proptest! {
    // Each tries some thousand URLs.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn parse_errors_show_no_secret(secret in secret()) {
        for scheme in SCHEMES {
            let form = scheme.example;
            for at in 0..=form.len() {
                // Inserted, and in place of all that follows.
                let (before, after) = form.split_at(at);
                for url in [format!("{before}{secret}{after}"), format!("{before}{secret}")] {
                    if let Err(error) = Url::parse(&url) {
                        assert_hidden(&shown(&error), &url)?;
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn options_show_no_user_or_password(
        user in secret(),
        pass in secret(),
        escaped in any::<bool>(),
    ) {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        // Escaped, as what follows `&` in a user's name is another option, which an error may name.
        let user_option = encoded(&user);
        let [user, pass] = [user, pass].map(|text| if escaped { encoded(&text) } else { text });
        for form in [
            format!("redis://{user}:{pass}@127.0.0.1:1/2?queue=none"),
            format!("rediss://{user}:{pass}@h/2?tls_name=h"),
            format!("redis+sentinel://{user}:{pass}@a:1,b/m/2?sentinel_password={pass}"),
            format!("rediss+sentinel://h/m?sentinel_user={user_option}&sentinel_password={pass}"),
            format!("redis+cluster://{user}:{pass}@a:1,b?queue=none"),
            format!("rediss+cluster://{user}:{pass}@h?tls_name=h"),
            format!("http://:{pass}@a:1,b?request_timeout=1s"),
            format!("https://:{pass}@h?tls_name=h"),
            format!("redis+unix:///run/r.sock?user={user_option}&pass={pass}"),
            format!("gaggle+redis://{user}:{pass}@h?cluster=c&name=a&members=a"),
        ] {
            match Url::parse(&form) {
                Err(error) => {
                    prop_assert!(!escaped, "{form}: {error}");
                    assert_hidden(&shown(&error), &form)?;
                }
                Ok(url) => assert_hidden(&format!("{:?}", url.target()), &form)?,
            }
        }
    }
}

/// The rest of the password looks like an option.
#[test]
fn rest_of_a_password_is_no_option() {
    for url in [
        "redis+unix:///s?user=u&pass=hunter&zyxwvu=1",
        "redis+unix:///s?user=u&pass=hunter&db=zyxwvu",
        "redis+sentinel://a/m?sentinel_password=hunter&zyxwvu=1",
        "redis://h?password=hunter",
        "redis+unix:///s?p%61ss=hunter&zyxwvu=1",
        "redis://h?hunter",
    ] {
        let error = Url::parse(url).expect_err(url);
        assert_hidden(&shown(&error), "pass").unwrap();
    }
}

#[test]
fn unescaped_question_mark_is_named() {
    for url in
        ["redis://:1?secret@h", "redis://token?secret@h", "raft+redis://u:1?secret@h?cluster=c"]
    {
        let error = Url::parse(url).expect_err(url);
        assert!(error.to_string().contains("? as %3F"), "{url}: {error}");
        assert!(!shown(&error).contains("secret"), "{url}: {error:?}");
    }
}
