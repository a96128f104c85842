//! Builds the woven library with its tests, and finds the mutants that do not compile.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;

/// What a build came to.
pub(crate) enum Built {
    /// The test executables.
    Whole(Vec<PathBuf>),
    Errors(Vec<Diagnostic>),
}

#[derive(Deserialize)]
struct Line {
    message: Option<Diagnostic>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
pub(crate) struct Diagnostic {
    level: String,
    code: Option<Code>,
    spans: Vec<Span>,
    #[serde(default)]
    children: Vec<Self>,
    pub(crate) rendered: Option<String>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Clone, Deserialize)]
struct Span {
    file_name: PathBuf,
    byte_start: usize,
    is_primary: bool,
    expansion: Option<Expansion>,
}

#[derive(Clone, Deserialize)]
struct Expansion {
    span: Box<Span>,
}

impl Diagnostic {
    /// Whether it is only that the switch cannot be asked in a constant.
    pub(crate) fn is_about_const(&self) -> bool {
        self.code.as_ref().is_some_and(|code| code.code == "E0015")
    }

    /// Where the fault may lie, the likeliest first: file, from the root, and byte.
    pub(crate) fn places(&self) -> Vec<(PathBuf, usize)> {
        let mut spans = self
            .spans
            .iter()
            .chain(self.children.iter().flat_map(|child| &child.spans))
            .collect::<Vec<_>>();
        spans.sort_by_key(|span| !span.is_primary);
        let mut places = Vec::new();
        for span in spans {
            let mut span = span;
            places.push((span.file_name.clone(), span.byte_start));
            // What a macro writes stands elsewhere than where it is called.
            while let Some(expansion) = &span.expansion {
                span = &expansion.span;
                places.push((span.file_name.clone(), span.byte_start));
            }
        }
        places
    }
}

/// Builds the tests that `arguments` name in `tree`.
pub(crate) fn compile(tree: &Path, arguments: &[String]) -> Built {
    let output = Command::new("cargo")
        .args(["test", "--no-run", "--message-format=json"])
        .args(arguments)
        .current_dir(tree)
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo is on the path");
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let (mut executables, mut errors) = (BTreeSet::new(), Vec::new());
    for line in lines {
        executables.extend(line.executable);
        // The last error of each crate only counts the others.
        errors.extend(
            line.message
                .filter(|found| found.level.starts_with("error") && !found.spans.is_empty()),
        );
    }
    if output.status.success() {
        Built::Whole(executables.into_iter().collect())
    } else {
        Built::Errors(errors)
    }
}
