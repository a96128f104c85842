//! Checks a history in a file, one operation a line, as `gaggle simulate --history` writes it:
//!
//! `cargo run -p gaggle-strategies --features testing --example check_history -- MODELS [--drift
//! PPM] FILE`
//!
//! `MODELS` is a comma-separated list of `fenced`, `leased` and `queued`. The default drift is
//! none. Exits with 1 if a rule is broken or a search is undecided, with 2 if the file holds no
//! call.

use std::{env, error::Error, fs::File, io::BufReader, iter, process::ExitCode};

use gaggle_strategies::{
    Drift,
    testing::history::{History, ModelKind, Report, Settings, check},
};

fn main() -> ExitCode {
    match run(env::args().skip(1)) {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(u8::from(!report.passed()))
        }
        Err(error) => {
            let causes = iter::successors(Some(&*error), |&error| error.source());
            eprintln!("{}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
            ExitCode::from(2)
        }
    }
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<Report, Box<dyn Error>> {
    const USAGE: &str = "usage: check_history MODELS [--drift PPM] FILE";
    let models = arguments.next().ok_or(USAGE)?;
    let models = models.split(',').map(model).collect::<Result<Vec<_>, _>>()?;
    let mut file = arguments.next().ok_or(USAGE)?;
    let mut drift = 0;
    if file == "--drift" {
        drift = arguments.next().ok_or(USAGE)?.parse()?;
        file = arguments.next().ok_or(USAGE)?;
    }
    let history = History::read(BufReader::new(File::open(&file)?))?;
    if history.operations().is_empty() {
        return Err(format!("no call in {file}").into());
    }
    let settings = Settings { drift: Drift::from_ppm(drift)?, ..Settings::default() };
    Ok(check(&history, &models, &settings))
}

fn model(name: &str) -> Result<ModelKind, String> {
    match name {
        "fenced" => Ok(ModelKind::Fenced),
        "leased" => Ok(ModelKind::Leased),
        "queued" => Ok(ModelKind::Queued),
        _ => Err(format!("no model is named {name:?}: fenced, leased, queued")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_a_call_is_no_pass() {
        let path = env::temp_dir().join(format!("gaggle-{}-empty", std::process::id()));
        std::fs::write(&path, "\n").expect("a file can be written");
        let arguments = ["leased".to_owned(), path.display().to_string()];
        let error = run(arguments.into_iter()).expect_err("nothing was checked");
        assert!(error.to_string().starts_with("no call in"), "{error}");
        let _ = std::fs::remove_file(&path);
    }
}
