//! Checks the history in some files of events, one JSON object a line:
//!
//! `cargo run -p gaggle-strategies --features testing --example check_history -- MODELS [--drift PPM] FILE...`
//!
//! `MODELS` is a comma-separated list of `owner`, `fenced`, `leased` and `queued`. The times in all
//! files are of one clock, deadlines included, so no drift is allowed for unless `--drift` asks for some, in
//! parts per million. `gaggle simulate --seed N --history FILE` writes such a file. Exits with 1 where a rule
//! is broken or a search is undecided, with 2 where the files hold no history.

use std::{env, error::Error, fs::File, io::BufReader, process::ExitCode};

use gaggle_strategies::{
    Drift,
    testing::history::{ModelKind, Recorder, Report, Settings, check},
};

fn main() -> ExitCode {
    match run() {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(u8::from(!report.passed()))
        }
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<Report, Box<dyn Error>> {
    const USAGE: &str = "usage: check_history MODELS [--drift PPM] FILE...";
    let mut arguments = env::args().skip(1).peekable();
    let models = arguments.next().ok_or(USAGE)?;
    let models = models.split(',').map(model).collect::<Result<Vec<_>, _>>()?;
    let drift = match arguments.next_if(|argument| argument == "--drift") {
        Some(_) => arguments.next().ok_or(USAGE)?.parse()?,
        None => 0,
    };
    arguments.peek().ok_or(USAGE)?;
    let mut recorder = Recorder::new();
    for file in arguments {
        recorder.read(BufReader::new(File::open(&file).map_err(|e| format!("{file}: {e}"))?))?;
    }
    let settings = Settings { drift: Drift::from_ppm(drift)?, ..Settings::default() };
    Ok(check(&recorder.finish()?, &models, &settings))
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
