//! The scripts: one for each verb, with the sections of `settle.lua` that it includes, and one for
//! replicas.

use std::sync::LazyLock;

/// What a script does. All but `Mark` take a list of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Lock,
    Unlock,
    Extend,
    Poll,
    Inspect,
    Mark,
}

/// A script: its text, and the hash by which the server knows it once it was loaded.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) text: String,
    hash: String,
}

/// What the scripts share, in sections.
const SHARED: &str = include_str!("settle.lua");
/// What stands before the name of a section: where it begins, and where it is included.
const SECTION: &str = "\n--- ";
const INCLUDE: &str = "-- include ";

/// In the order of [`Verb`].
static SCRIPTS: LazyLock<[Script; 6]> = LazyLock::new(|| {
    [
        Script::new("lock", include_str!("lock.lua")),
        Script::new("unlock", include_str!("unlock.lua")),
        Script::new("extend", include_str!("extend.lua")),
        Script::new("poll", include_str!("poll.lua")),
        Script::new("inspect", include_str!("inspect.lua")),
        Script::new("mark", include_str!("mark.lua")),
    ]
});

/// All scripts, which each new connection loads.
pub(super) fn all() -> &'static [Script; 6] {
    &SCRIPTS
}

/// The text of a script with each section in the place of the line that includes it.
fn assemble(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines() {
        match line.trim_start().strip_prefix(INCLUDE) {
            Some(name) => text += &assemble(&section(name)),
            None => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

/// A section begins with "name: what it takes and sets".
fn section(name: &str) -> String {
    let mut sections = SHARED.split(SECTION).skip(1);
    let found = sections.find_map(|section| {
        let text = section.strip_prefix(name)?.strip_prefix(':')?;
        text.split_once('\n').map(|(_, text)| text)
    });
    found.expect("settle.lua has every section that is included").to_owned()
}

impl Verb {
    /// The hash by which a server that has loaded the script knows it.
    pub(super) fn hash(self) -> &'static str {
        &all()[self as usize].hash
    }
}

impl Script {
    fn new(name: &'static str, verb: &str) -> Self {
        let text = assemble(verb);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { name, text, hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_finds_its_place() {
        assert!(all().iter().all(|script| !script.text.contains(INCLUDE)));
    }
}
