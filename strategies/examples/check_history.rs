//! Checks the history in some files of events, one JSON object a line:
//!
//! `cargo run -p gaggle-strategies --features testing --example check_history -- MODELS [--drift PPM] FILE...`
//!
//! `MODELS` is a comma-separated list of `owner`, `fenced`, `leased` and `queued`. The times in all
//! files are of one clock, deadlines included, so no drift is allowed for unless `--drift` asks for some, in
//! parts per million. `gaggle simulate --seed N --history FILE` writes such a file. Exits with 1 where a rule
//! is broken or a search is undecided, with 2 where the files hold no history, or none of any call: nothing was
//! judged then. One file of several may be empty: its process was killed before it called.

use std::{env, error::Error, fs::File, io::BufReader, iter, process::ExitCode};

use gaggle_strategies::{
    Drift,
    testing::history::{History, ModelKind, Recorder, Report, Settings, check},
};

fn main() -> ExitCode {
    match run(env::args().skip(1)) {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(u8::from(!report.passed()))
        }
        Err(error) => {
            eprintln!("{}", told(&*error));
            ExitCode::from(2)
        }
    }
}

/// The error with its causes.
fn told(error: &(dyn Error + 'static)) -> String {
    let causes = iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn run(arguments: impl Iterator<Item = String>) -> Result<Report, Box<dyn Error>> {
    const USAGE: &str = "usage: check_history MODELS [--drift PPM] FILE...";
    let mut arguments = arguments.peekable();
    let models = arguments.next().ok_or(USAGE)?;
    let models = models.split(',').map(model).collect::<Result<Vec<_>, _>>()?;
    let drift = match arguments.next_if(|argument| argument == "--drift") {
        Some(_) => arguments.next().ok_or(USAGE)?.parse()?,
        None => 0,
    };
    let files: Vec<String> = arguments.collect();
    if files.is_empty() {
        return Err(USAGE.into());
    }
    let settings = Settings { drift: Drift::from_ppm(drift)?, ..Settings::default() };
    Ok(check(&read(&files)?, &models, &settings))
}

/// The history in all the files; that of no call is refused, lest nothing looks like a pass.
fn read(files: &[String]) -> Result<History, Box<dyn Error>> {
    let mut recorder = Recorder::new();
    for file in files {
        let from = File::open(file).map_err(|error| format!("{file}: {error}"))?;
        let from = BufReader::new(from);
        if recorder.read(from).map_err(|error| format!("{file}: {}", told(&error)))? {
            eprintln!("{file}: its last line is unfinished, and left out");
        }
    }
    let history = recorder.finish()?;
    if history.operations().is_empty() {
        return Err(format!("no call to judge in {}", files.join(", ")).into());
    }
    Ok(history)
}

fn model(name: &str) -> Result<ModelKind, String> {
    match name {
        "owner" => Ok(ModelKind::Owner),
        "fenced" => Ok(ModelKind::Fenced),
        "leased" => Ok(ModelKind::Leased),
        "queued" => Ok(ModelKind::Queued),
        _ => Err(format!("no model is named {name:?}: owner, fenced, leased, queued")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const INVOKE: &str = "{\"event\":\"invoke\",\"client\":1,\"at\":0,\"key\":\"k\",\
        \"nonce\":\"00000000-0000-0000-0000-000000000001\",\"call\":\"unlock\"}";

    /// A file of the test's own, which goes with it.
    struct Written(PathBuf);

    impl Written {
        fn new(name: &str, text: &str) -> Self {
            let path = env::temp_dir().join(format!("gaggle-{}-{name}", std::process::id()));
            std::fs::write(&path, text).expect("a file can be written");
            Self(path)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// How many calls were judged, or what was said instead.
    fn judged(files: &[&Written]) -> Result<u64, String> {
        let files = files.iter().map(|file| file.0.display().to_string());
        let arguments = std::iter::once("leased".to_owned()).chain(files);
        run(arguments).map(|report| report.operations).map_err(|error| told(&*error))
    }

    #[test]
    fn a_file_without_a_call_is_no_pass() {
        for (name, text) in
            [("empty", ""), ("blank", "\n \n"), ("cut", &INVOKE[..INVOKE.len() / 2])]
        {
            let error = judged(&[&Written::new(name, text)]).unwrap_err();
            assert!(error.contains("no call to judge in") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_history_is_named() {
        let garbage = Written::new("garbage", "garbage");
        let error = judged(&[&garbage]).unwrap_err();
        assert!(error.contains("garbage: line 1 is no event: expected"), "{error}");
        let one_line = Written::new("one-line", &[INVOKE, INVOKE].concat());
        let error = judged(&[&one_line]).unwrap_err();
        assert!(error.contains("one-line: line 1 is no event: trailing"), "{error}");
    }

    #[test]
    fn a_file_of_a_process_that_was_killed_is_judged_with_the_others() {
        let whole = Written::new("whole", &format!("{INVOKE}\n"));
        let (empty, cut) = (Written::new("none", ""), Written::new("half", &INVOKE[..9]));
        assert_eq!(judged(&[&empty, &whole, &cut]), Ok(1));
    }
}
