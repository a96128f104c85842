//! The filters of `gaggle list`.

use std::time::Duration;

use gaggle::Inspection;

use crate::{duration, utf8::utf8};

/// Which holders are listed: a holder is shown if every filter matches.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// Only keys with a holder, without those whose stored value is not a lock.
    #[arg(long)]
    held: bool,
    /// Only keys for which others wait.
    #[arg(long)]
    waiting: bool,
    /// Only keys of this holder: its host, HOST:PID, or its label.
    #[arg(long, value_name = "TEXT", value_parser = utf8())]
    owner: Option<String>,
    /// Only keys that were granted longer ago than this, as 90s, 5m or 2h.
    #[arg(long, value_name = "DURATION", value_parser = duration::between(Duration::ZERO, duration::YEAR))]
    older_than: Option<Duration>,
}

impl Filter {
    pub(super) fn is_set(&self) -> bool {
        self.held || self.waiting || self.owner.is_some() || self.older_than.is_some()
    }

    pub(super) fn matches(&self, holder: &Inspection) -> bool {
        let waits = !self.waiting || holder.waiters > 0;
        let is_older = self.older_than.is_none_or(|span| holder.held_for > span);
        waits && is_older && self.owner.as_deref().is_none_or(|text| is_of(holder, text))
    }
}

/// Whether the holder has this host, this host and process, or this label.
fn is_of(holder: &Inspection, text: &str) -> bool {
    let owner = &holder.owner;
    let process = format!("{}:{}", owner.host, owner.pid);
    text == owner.host || text == process || owner.label.as_deref() == Some(text)
}

#[cfg(test)]
mod tests {
    use gaggle::{Nonce, Owner};

    use super::*;

    fn holder(label: Option<&str>, waiters: u64) -> Inspection {
        Inspection {
            fencing_token: 1,
            nonce: Nonce::from_u128(1),
            owner: Owner { host: "web-3".into(), pid: 71, label: label.map(Into::into) },
            held_for: Duration::from_secs(60),
            remaining: Duration::from_secs(5),
            waiters,
        }
    }

    #[test]
    fn owner_is_host_process_or_label() {
        let of = |text: &str| Filter { owner: Some(text.into()), ..Filter::default() };
        let found = holder(Some("nightly"), 0);
        for text in ["web-3", "web-3:71", "nightly"] {
            assert!(of(text).matches(&found), "{text}");
        }
        for text in ["", "web", "web-3:7", ":71", "71", "Nightly"] {
            assert!(!of(text).matches(&found), "{text}");
        }
        assert!(!of("").matches(&holder(None, 0)));
    }

    #[test]
    fn every_filter_is_met() {
        let minute = Some(Duration::from_secs(60));
        let younger = Some(Duration::from_millis(59_999));
        for (filter, waiters, expected) in [
            (Filter::default(), 0, true),
            (Filter { held: true, ..Filter::default() }, 0, true),
            (Filter { waiting: true, ..Filter::default() }, 0, false),
            (Filter { waiting: true, ..Filter::default() }, 1, true),
            (Filter { older_than: minute, ..Filter::default() }, 1, false),
            (Filter { older_than: younger, ..Filter::default() }, 1, true),
            (Filter { older_than: younger, waiting: true, ..Filter::default() }, 0, false),
        ] {
            assert_eq!(filter.matches(&holder(None, waiters)), expected, "{filter:?}");
        }
    }
}
