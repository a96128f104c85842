//! Who may use the service: bearer tokens in a file, each with a name and a role.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    extract::Request,
    http::{HeaderValue, StatusCode, header, uri::Authority},
};
use gaggle::channels::internal::private_file;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

use crate::{listen::Transport, problem::Problem, request::host};

const FILE_BYTES_MAX: u64 = 1 << 20;
const TOKENS_MAX: usize = 4_096;
const NAME_BYTES_MAX: usize = 64;
const TOKEN_BYTES_MIN: usize = 16;

/// The name of callers without tokens.
const ANONYMOUS: &str = "http";

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The claims of the token itself.
    Client,
    /// The claims of all tokens, too: to list, and to revoke.
    Operator,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of its token.
    pub(crate) name: Arc<str>,
    role: Role,
}

impl Caller {
    pub(crate) fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    /// Whether it may see the claims of this owner.
    pub(crate) fn may_see(&self, owner: &str) -> bool {
        self.is_operator() || *self.name == *owner
    }
}

/// Who may use a [`Service`](crate::Service): every client, or those with a token of a file.
///
/// Each line of the file is `NAME ROLE TOKEN`. A `client` has its own claims, and an `operator`
/// those of all. A token has at least 16 characters. Lines that begin with `#` are comments.
pub struct Access(Option<Tokens>);

struct Tokens {
    path: PathBuf,
    known: RwLock<Vec<Token>>,
}

struct Token {
    /// The SHA-256 of the token, so that all comparisons are of the same length.
    digest: [u8; 32],
    caller: Caller,
}

impl Access {
    /// Serves every client that can connect, as an operator.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(None)
    }

    /// Serves those with a token of this file.
    ///
    /// # Errors
    ///
    /// The path, the line and what was expected; no text of the file.
    pub fn tokens(path: impl Into<PathBuf>) -> Result<Self, String> {
        let path = path.into();
        let known = RwLock::new(read(&path)?);
        Ok(Self(Some(Tokens { path, known })))
    }

    /// Reads the file again.
    ///
    /// # Errors
    ///
    /// As [`tokens`](Self::tokens); the tokens stay as they were.
    pub fn reload(&self) -> Result<(), String> {
        let Some(tokens) = &self.0 else { return Ok(()) };
        let known = read(&tokens.path)?;
        *tokens.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    pub(crate) fn identify(&self, request: &Request) -> Result<Caller, Problem> {
        let headers = request.headers();
        // A browser sends the requests of any page, also to a server on loopback.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !site.is_none_or(|site| matches!(site, b"same-origin" | b"none")) {
            let message = "a page of another site has sent this request";
            return Err(Problem::new(StatusCode::FORBIDDEN, "cross-site", message));
        }
        let Some(tokens) = &self.0 else {
            check_host(request)?;
            return Ok(Caller { name: ANONYMOUS.into(), role: Role::Operator });
        };
        let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let token = match given.split_at_checked("Bearer ".len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
            _ => return Err(unauthorized("expected the header `Authorization: Bearer TOKEN`")),
        };
        let digest = digest(&SHA256, token.trim_ascii());
        let known = tokens.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        // Each token is compared, in constant time.
        for token in &*known {
            if bool::from(token.digest[..].ct_eq(digest.as_ref())) {
                found = Some(token.caller.clone());
            }
        }
        found.ok_or_else(|| unauthorized("the token is not known"))
    }
}

/// Refuses the request of a page whose site has given its own name the address of this machine: to a
/// browser, such a page is of the same site as the server.
fn check_host(request: &Request) -> Result<(), Problem> {
    let is_loopback = request.extensions().get() == Some(&Transport::Loopback);
    match host(request).filter(|_| is_loopback) {
        Some(host) if !is_of_loopback(host) => {
            let message = format!(
                "expected localhost or a loopback address in the header `Host`, not {host:?}; a \
                 server with --tokens takes any"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "wrong-host", message))
        }
        _ => Ok(()),
    }
}

fn is_of_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let is_address = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || name == "localhost" || name.ends_with(".localhost")
}

fn unauthorized(message: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

fn read(path: &Path) -> Result<Vec<Token>, String> {
    let text = private_file::check(path).and_then(|()| private_file::read(path, FILE_BYTES_MAX));
    let tokens = text.and_then(|text| parse(&text));
    tokens.map_err(|problem| format!("{}: {problem}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::<Token>::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = token(line).map_err(|expected| format!("line {number}: {expected}"))?;
        if tokens.iter().any(|other| other.digest == token.digest) {
            return Err(format!("line {number}: the token of an earlier line"));
        }
        if tokens.len() == TOKENS_MAX {
            return Err(format!("line {number}: expected at most {TOKENS_MAX} tokens"));
        }
        tokens.push(token);
    }
    if tokens.is_empty() { Err("expected a line `NAME ROLE TOKEN`".into()) } else { Ok(tokens) }
}

fn token(line: &str) -> Result<Token, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, role, token] = words[..] else { return Err("expected NAME ROLE TOKEN".into()) };
    let role = match role {
        "client" => Role::Client,
        "operator" => Role::Operator,
        _ => return Err("expected the role client or operator".into()),
    };
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_of_name) {
        let expected = "letters, digits, _, - and .";
        return Err(format!("expected a name of at most {NAME_BYTES_MAX} {expected}"));
    }
    if token.len() < TOKEN_BYTES_MIN {
        return Err(format!("expected a token of at least {TOKEN_BYTES_MIN} characters"));
    }
    let digest = digest(&SHA256, token.as_bytes());
    let digest = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
    Ok(Token { digest, caller: Caller { name: name.into(), role } })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn invalid_lines_are_named_without_their_text() {
        for (text, problem) in [
            ("", "expected a line `NAME ROLE TOKEN`"),
            ("# only this\n", "expected a line"),
            ("\na client", "line 2: expected NAME ROLE TOKEN"),
            (&format!("a client {SECRET} x"), "line 1: expected NAME ROLE TOKEN"),
            (&format!("a root {SECRET}"), "line 1: expected the role client or operator"),
            (&format!("a/b client {SECRET}"), "line 1: expected a name of at most 64 letters"),
            (&format!("{} client {SECRET}", "a".repeat(65)), "line 1: expected a name of at most"),
            ("a client 0123456789abcde", "line 1: expected a token of at least 16 characters"),
            (&format!("a client {SECRET}\nb client {SECRET}"), "line 2: the token of an earlier"),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.starts_with(problem) && !error.contains("0123"), "{text:?}: {error}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_of_loopback() {
        for host in
            ["localhost", "LOCALHOST:7080", "a.localhost.", "127.0.0.1:1", "127.9.9.9", "[::1]:7"]
        {
            assert!(is_of_loopback(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7080", "localhost.evil.example", "10.0.0.1", "a b"]
        {
            assert!(!is_of_loopback(host), "{host}");
        }
    }

    #[test]
    fn token_names_its_caller() {
        let tokens = parse(&format!("# x\n a  client {SECRET}\nb operator {SECRET}0\r\n")).unwrap();
        let path = PathBuf::new();
        let access = Access(Some(Tokens { path, known: RwLock::new(tokens) }));
        let identify = |value: &str| {
            let request = Request::builder().header(header::AUTHORIZATION, value);
            let request = request.body(Body::empty()).unwrap();
            access.identify(&request).ok().map(|it| (it.name.to_string(), it.is_operator()))
        };
        assert_eq!(identify(&format!("Bearer {SECRET}")), Some(("a".into(), false)));
        assert_eq!(identify(&format!("bearer  {SECRET}0")), Some(("b".into(), true)));
        for wrong in ["", "Bearer", "Bearer ", "Basic 0123456789abcdef", SECRET, "Bearer 012"] {
            assert_eq!(identify(wrong), None, "{wrong:?}");
        }
        assert!(access.identify(&Request::new(Body::empty())).is_err());
    }
}
