//! The URL of `gaggle run`: where it comes from, and how it is shown without its password.

use std::{
    env, fmt, fs,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use gaggle::channels::url::{check_login, split_hosts};
use url::{Position, Url};

use super::{args::UrlArgs, processes::NONCE};
use crate::{
    cluster::{REDIS_SCHEMES, redis_address, unknown_scheme},
    failure::{BUILT_WITHOUT_TLS, Failure},
};

const EXAMPLE: &str = "for example redis://127.0.0.1:6379";
const URL_FILE_BYTES_MAX: u64 = 64 * 1024;
/// The permissions of other users.
const MODE_OF_OTHERS: u32 = 0o007;

/// The Redis of a run.
pub(crate) struct Address {
    url: String,
    /// Without its password.
    public: String,
    /// Host and port, or the path of the socket.
    shown: String,
    source: Source,
}

/// Where a URL was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Argument,
    File,
    Variable,
    /// A variable that a `gaggle run` has set for its command.
    Run,
}

const PASSWORD_IN_ARGUMENT: &str = "--url contains a password, which every user of this machine \
                                    can see: set GAGGLE_URL, or give --url-file";

impl Address {
    /// Finds the URL in the options or in `GAGGLE_URL`, before any request is sent.
    pub(crate) fn find(args: &UrlArgs) -> Result<Self, Failure> {
        let address = Self::given(args)?;
        if cfg!(not(feature = "tls")) && address.url.to_ascii_lowercase().starts_with("rediss") {
            return Err(Failure::new(BUILT_WITHOUT_TLS));
        }
        Ok(address)
    }

    fn given(args: &UrlArgs) -> Result<Self, Failure> {
        if let Some(url) = &args.url {
            return Self::parse(url.trim(), Source::Argument);
        }
        if let Some(path) = &args.url_file {
            let name = path.display();
            let in_file =
                |problem: &dyn fmt::Display| Failure::new(format!("--url-file {name}: {problem}"));
            let text = read(path).map_err(|error| in_file(&error))?;
            let address =
                Self::parse(text.trim(), Source::File).map_err(|failure| in_file(&failure))?;
            if address.has_password() && is_open_to_others(path) {
                let problem = "it contains a password and is open to every user";
                let cure = format!("run `chmod 600 {name}`");
                return Err(in_file(&format!("{problem}; {cure}")));
            }
            return Ok(address);
        }
        match env::var("GAGGLE_URL") {
            Ok(url) if !url.trim().is_empty() => {
                let is_from_run = env::var_os(NONCE).is_some();
                let source = if is_from_run { Source::Run } else { Source::Variable };
                Self::parse(url.trim(), source)
            }
            Err(env::VarError::NotUnicode(_)) => Err(Failure::new("GAGGLE_URL is not UTF-8")),
            _ => {
                let sources = "set GAGGLE_URL, or give --url or --url-file";
                Err(Failure::new(format!("no Redis is given: {sources}; {EXAMPLE}")))
            }
        }
    }

    /// Refuses URLs of members and of strategies of one process. No message shows the URL.
    fn parse(text: &str, source: Source) -> Result<Self, Failure> {
        let wrong = |problem: &str| Failure::new(format!("{problem}; {EXAMPLE}"));
        if text.is_empty() {
            return Err(wrong("the URL is empty: give that of a Redis"));
        }
        if text.contains(['\n', '\r']) {
            return Err(wrong("more than one line is given: give one URL, and nothing else"));
        }
        if text.starts_with(['\'', '"', '\u{feff}']) {
            let problem = "the URL begins with a quotation mark or a byte order mark: leave it out";
            return Err(wrong(problem));
        }
        let scheme = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if scheme.contains('=') {
            return Err(wrong("more than a URL is given: leave out what precedes it"));
        }
        if ["gaggle", "raft"].contains(&scheme.split('+').next().unwrap_or_default()) {
            return Err(wrong(
                "the URL is of a voting member, and a member that ends with each command costs its \
                 group a vote: give the URL of a Redis",
            ));
        }
        if scheme == "local" || scheme == "noop" {
            let problem = format!("{scheme}: excludes no other process: give the URL of a Redis");
            return Err(wrong(&problem));
        }
        if !REDIS_SCHEMES.contains(&&*scheme) {
            return Err(wrong(&unknown_scheme()));
        }
        check_login(text).map_err(wrong)?;
        let (one, hosts) = split_hosts(text);
        let others: String = hosts.iter().skip(1).map(|host| format!(",{host}")).collect();
        let mut public =
            Url::parse(&one).map_err(|error| wrong(&format!("invalid URL: {error}")))?;
        // A URL without a host has no password.
        let _ = public.set_password(None);
        // As it is written: a plus sign is no space in these URLs.
        let kept = public.query().unwrap_or_default().split('&').filter(|pair| !is_secret(pair));
        let kept = kept.collect::<Vec<_>>().join("&");
        public.set_query(Some(&*kept).filter(|kept| !kept.is_empty()));
        let shown = match scheme.as_str() {
            "redis+unix" => public.path().to_owned(),
            "redis+sentinel" | "rediss+sentinel" => {
                let host = public.host_str().unwrap_or_default();
                let port = public.port().map(|port| format!(":{port}")).unwrap_or_default();
                let master = public.path().trim_matches('/');
                format!("{master} of the Sentinels {host}{port}{others}")
            }
            "redis+cluster" | "rediss+cluster" => redis_address(&one) + &others,
            _ => redis_address(text),
        };
        let (before, after) = (&public[..Position::AfterPort], &public[Position::AfterPort..]);
        let public = [before, &others, after].concat();
        Ok(Self { url: text.to_owned(), public, shown, source })
    }

    /// What to say of it before it is used.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let is_shown = self.source == Source::Argument && self.has_password();
        is_shown.then_some(PASSWORD_IN_ARGUMENT)
    }

    /// The URL to open, with its password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL for the command's environment.
    pub(super) fn public(&self) -> &str {
        &self.public
    }

    /// The server, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The reason of a failure, and the remedy for a password that `gaggle run` has left out.
    pub(crate) fn explain(&self, mut reason: String) -> String {
        if self.source == Source::Run && reason.contains("password") {
            reason += "; gaggle run leaves the password out of the GAGGLE_URL of its command: give \
                       --url-file";
        }
        reason
    }

    fn has_password(&self) -> bool {
        Url::parse(&split_hosts(&self.url).0)
            .is_ok_and(|url| url.password().is_some() || url.query().is_some_and(is_secret))
    }
}

/// Whether options of a URL, as they are written there, have a password.
fn is_secret(query: &str) -> bool {
    let mut options = url::form_urlencoded::parse(query.as_bytes());
    options.any(|(name, _)| matches!(&*name, "pass" | "sentinel_password"))
}

/// The text of a file that holds a URL. A device may have no end.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(URL_FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > URL_FILE_BYTES_MAX {
        let problem = format!("it has more than {URL_FILE_BYTES_MAX} bytes, which is no URL");
        return Err(io::Error::other(problem));
    }
    Ok(text)
}

fn is_open_to_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & MODE_OF_OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use gaggle_fixtures::{SECRET_PARTS, secret_urls};

    use super::*;

    #[test]
    fn address_of_a_run_shows_no_secret() {
        for url in secret_urls() {
            let shown = match Address::parse(&url, Source::Variable) {
                Ok(address) => address.shown,
                Err(failure) => failure.to_string(),
            };
            assert!(!SECRET_PARTS.iter().any(|part| shown.contains(part)), "{url:?}: {shown}");
        }
        let failure =
            Address::parse("redis://u:hun?ter2@h", Source::Variable).err().unwrap().to_string();
        assert!(failure.contains("? as %3F"), "{failure}");
    }

    #[test]
    fn text_that_is_more_or_less_than_a_url_is_named() {
        for (text, problem) in [
            ("", "the URL is empty"),
            ("redis://u:p@h\nredis://u:q@i", "more than one line"),
            ("# my redis\nredis://h", "more than one line"),
            ("gaggle://x:1", "of a voting member"),
            ("localhost", "unknown scheme or none"),
            ("GAGGLE_URL=redis://h", "more than a URL"),
            ("export X=redis://h", "more than a URL"),
            ("'redis://h'", "begins with a quotation mark"),
            ("\"redis://h\"", "begins with a quotation mark"),
            ("\u{feff}redis://h", "or a byte order mark: leave it out"),
        ] {
            let failure = Address::parse(text, Source::Variable).err().unwrap().to_string();
            assert!(failure.contains(problem), "{text:?}: {failure}");
        }
    }

    #[test]
    fn public_url_has_no_password() {
        const SENTINELS: &str = "m of the Sentinels h:7,i:8";
        for (url, public, shown, secret) in [
            ("redis://a:b@h:7/2", "redis://a@h:7/2", "h:7/2", true),
            ("redis://h?queue=none", "redis://h?queue=none", "h:6379", false),
            ("redis+sentinel://a:b@h:7,i:8/m", "redis+sentinel://a@h:7,i:8/m", SENTINELS, true),
            (
                "rediss+sentinel://h:7,i:8/m?sentinel_password=x&queue=none",
                "rediss+sentinel://h:7,i:8/m?queue=none",
                SENTINELS,
                true,
            ),
            ("redis+cluster://a:b@h:7,i:8", "redis+cluster://a@h:7,i:8", "h:7,i:8", true),
            ("rediss+cluster://h,i:8/", "rediss+cluster://h,i:8/", "h:6379,i:8", false),
            ("redis+unix:///r.sock?db=1&pass=x", "redis+unix:///r.sock?db=1", "/r.sock", true),
            ("redis+unix:///r?p%61ss=x&user=a%20b+c", "redis+unix:///r?user=a%20b+c", "/r", true),
            ("redis+unix:///r.sock?pass=x", "redis+unix:///r.sock", "/r.sock", true),
        ] {
            let address = Address::parse(url, Source::Argument)
                .map_err(|failure| failure.to_string())
                .unwrap();
            assert_eq!((address.public(), address.shown()), (public, shown));
            assert_eq!((address.url(), address.warning().is_some()), (url, secret));
        }
    }
}
