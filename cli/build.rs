//! Names the commit of the build for `gaggle --version`, and never fails for want of one.

use std::{env, fs, path::Path, process::Command};

fn main() {
    let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let commit = packaged(Path::new(&directory)).or_else(|| checked_out(Path::new(&directory)));
    let commit = commit.map(|commit| format!(" ({commit:.12})")).unwrap_or_default();
    println!("cargo::rustc-env=GAGGLE_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The commit that `cargo package` has noted in the crate.
fn packaged(directory: &Path) -> Option<String> {
    let note = fs::read_to_string(directory.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = note.split_once("\"sha1\"")?;
    rest.split('"').nth(1).filter(|commit| is_commit(commit)).map(str::to_owned)
}

/// The commit of this repository, if the package lies in a checkout of it. Another repository that
/// holds a copy of the package has commits of other code.
fn checked_out(directory: &Path) -> Option<String> {
    if !directory.parent()?.join(".git").exists() {
        return None;
    }
    let commit = git(directory, &["rev-parse", "HEAD"])?;
    // Changes with each commit and checkout. Of a file that does not exist Cargo would rebuild
    // always.
    if let Some(log) = git(directory, &["rev-parse", "--git-path", "logs/HEAD"]) {
        let log = directory.join(log);
        if log.exists() {
            println!("cargo::rerun-if-changed={}", log.display());
        }
    }
    is_commit(&commit).then_some(commit)
}

fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
