//! The owner of a claim in the label of its lock: `TOKEN`, or `TOKEN@HOST PID LABEL`.
//!
//! The lock table keeps the label, so that each server and each program without HTTP sees it.

use gaggle::{Owner, strategies::limits::LABEL_BYTES_MAX};

const HOST_BYTES_MAX: usize = 100;

/// The label of a claim that this token made for this process. A long text is cut.
pub(crate) fn label(token: &str, process: Option<&Owner>) -> String {
    let Some(Owner { host, pid, label }) = process else { return token.into() };
    // One word, so that the label after it may contain spaces.
    let host = host.split_whitespace().collect::<Vec<_>>().join("-");
    let mut text = format!("{token}@{} {pid}", cut(&host, HOST_BYTES_MAX));
    if let Some(label) = label {
        text.push(' ');
        text.push_str(cut(label, LABEL_BYTES_MAX - text.len()));
    }
    text
}

/// The name of the token that made the claim.
pub(crate) fn token_of(owner: &Owner) -> &str {
    let label = owner.label.as_deref().unwrap_or_default();
    label.split_once('@').map_or(label, |(token, _)| token)
}

/// The process for which a claim was made, or the one that requested the lock.
pub(crate) fn process_of(owner: &Owner) -> Owner {
    let process = || {
        let (_, process) = owner.label.as_deref()?.split_once('@')?;
        let mut words = process.splitn(3, ' ');
        let (host, pid) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some(Owner { host, pid, label: words.next().map(str::to_owned) })
    };
    process().unwrap_or_else(|| owner.clone())
}

/// The longest beginning of at most `bytes`.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(label: &str) -> Owner {
        Owner { host: "server".into(), pid: 7, label: Some(label.into()) }
    }

    #[test]
    fn label_names_token_and_process() {
        let label_of = |label: Option<&str>| Owner {
            host: "web-3".into(),
            pid: 711,
            label: label.map(str::to_owned),
        };
        for process in [label_of(None), label_of(Some("")), label_of(Some("a b@c 7"))] {
            let owner = server(&label("ci", Some(&process)));
            assert_eq!((token_of(&owner), process_of(&owner)), ("ci", process));
        }
        for other in ["ci", "", "of a program", "ci@h", "ci@h x"] {
            assert_eq!(process_of(&server(other)), server(other), "{other}");
        }
        assert_eq!(token_of(&server(&label("ci", None))), "ci");
    }

    #[test]
    fn long_label_is_cut() {
        let process =
            Owner { host: "h ost".repeat(100), pid: u32::MAX, label: Some("ü".repeat(128)) };
        let token = "t".repeat(64);
        let owner = server(&label(&token, Some(&process)));
        let text = owner.label.as_deref().unwrap();
        assert!((LABEL_BYTES_MAX - 1..=LABEL_BYTES_MAX).contains(&text.len()), "{text}");
        let found = process_of(&owner);
        assert!(found.host.len() == HOST_BYTES_MAX && found.host.starts_with("h-osth-ost"));
        assert!(found.label.unwrap().chars().all(|it| it == 'ü'));
    }
}
