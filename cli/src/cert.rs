//! `gaggle cert` and `gaggle secret`: keys for members that speak TLS.

use std::path::PathBuf;
#[cfg(not(feature = "tls"))]
use std::process::ExitCode;

use clap::{Subcommand, builder::TypedValueParser, value_parser};

#[cfg(feature = "tls")]
pub(crate) use self::with_tls::{run, run_secret};
#[cfg(not(feature = "tls"))]
use crate::failure::{BUILT_WITHOUT_TLS, Failure};

/// The days of a certificate, at most a century.
fn days() -> impl TypedValueParser<Value = u32> {
    value_parser!(u32).range(1..=36_500)
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make an authority: ca.pem for every member, and ca-key.pem, which stays at a safe place.
    Ca {
        /// The directory of the files.
        #[arg(long, value_name = "DIRECTORY", default_value = ".")]
        dir: PathBuf,
        /// How long it is valid.
        #[arg(long, default_value_t = 3_650, value_parser = days())]
        days: u32,
    },
    /// Make the certificates of members, NAME.pem and NAME-key.pem, by the authority in the
    /// directory.
    Member {
        /// The names of members, as in the option `name` of the URLs.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The name of the cluster, as in the option `cluster` of the URLs.
        #[arg(long)]
        cluster: String,
        /// The directory of the files.
        #[arg(long, value_name = "DIRECTORY", default_value = ".")]
        dir: PathBuf,
        /// How long they are valid [default: 365, and no longer than the authority].
        #[arg(long, value_parser = days())]
        days: Option<u32>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SecretArgs {
    /// The file to write; printed if there is none.
    file: Option<PathBuf>,
}

#[cfg(not(feature = "tls"))]
pub(crate) fn run(_: &Args) -> Result<ExitCode, Failure> {
    Err(Failure::new(BUILT_WITHOUT_TLS))
}

#[cfg(not(feature = "tls"))]
pub(crate) fn run_secret(_: &SecretArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(BUILT_WITHOUT_TLS))
}

#[cfg(feature = "tls")]
mod with_tls {
    use std::{
        collections::BTreeSet,
        fs::{self, OpenOptions},
        io::{self, ErrorKind, Write as _},
        os::unix::fs::OpenOptionsExt as _,
        path::Path,
        process::ExitCode,
    };

    use gaggle::channels::{
        ChannelError,
        tls::{Authority, IssuedCertificate, Validity, generate_secret, member_dns_name},
    };

    use super::{Args, SecretArgs, What};
    use crate::{failure::Failure, output};

    pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
        match &args.what {
            What::Ca { dir, days } => {
                // The key is the one of the certificate: both are new.
                let names = ["ca".to_owned()];
                check_new(dir, &names)?;
                write_pairs(dir, &names, &[Authority::generate(Validity::days(*days))])?;
            }
            What::Member { names, cluster, dir, days } => {
                // All are checked before the first is written.
                let dns_name = |name: &String| {
                    member_dns_name(name, cluster).map_err(|error| refused_name(name, &error))
                };
                let dns_names = names.iter().map(dns_name).collect::<Result<Vec<_>, _>>()?;
                check_new(dir, names)?;
                let authority = authority(dir)?;
                let validity = authority.validity(*days).map_err(|error| refused(&error))?;
                let issue = |name: &String| authority.issue(name, validity);
                let issued: Vec<_> = dns_names.iter().map(issue).collect();
                write_pairs(dir, names, &issued)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn files_of(name: &str) -> [String; 2] {
        [format!("{name}-key.pem"), format!("{name}.pem")]
    }

    /// No file is overwritten.
    fn check_new(dir: &Path, names: &[String]) -> Result<(), Failure> {
        let mut files = BTreeSet::new();
        for file in names.iter().flat_map(|name| files_of(name)) {
            if dir.join(&file).exists() {
                return Err(not_written(&dir.join(file), &ErrorKind::AlreadyExists.into()));
            }
            // Also of the names a and a-key.
            if let Some(file) = files.replace(file) {
                return Err(Failure::new(format!("two of the NAMEs make {file}: omit one")));
            }
        }
        Ok(())
    }

    fn authority(dir: &Path) -> Result<Authority, Failure> {
        let [ca, key] = ["ca.pem", "ca-key.pem"].map(|file| dir.join(file));
        if let Some(file) =
            [&ca, &key].into_iter().find(|file| matches!(file.try_exists(), Ok(false)))
        {
            let problem = "no such file: --dir names the directory of an authority, and gaggle \
                           cert ca makes one";
            return Err(Failure::new(format!("{}: {problem}", file.display())));
        }
        Authority::from_files(&ca, &key).map_err(|error| refused(&error))
    }

    pub(crate) fn run_secret(args: &SecretArgs) -> Result<ExitCode, Failure> {
        let secret = format!("{}\n", generate_secret());
        match &args.file {
            Some(file) if file.as_os_str() == "-" => {
                let cure = "omit FILE to print the secret, or write ./- for this file";
                return Err(Failure::new(format!("FILE is -: {cure}")));
            }
            Some(file) => write_new(file, &secret)?,
            None => output::written(io::stdout().write_all(secret.as_bytes()))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn refused_name(name: &String, error: &ChannelError) -> Failure {
        match error {
            ChannelError::InvalidOptions { field: "name", problem } => {
                Failure::new(format!("NAME {name:?}: {problem}"))
            }
            error => refused(error),
        }
    }

    /// The text without the options of URLs, which this command does not have.
    fn refused(error: &ChannelError) -> Failure {
        match error {
            ChannelError::InvalidOptions { field: "cluster", problem } => {
                Failure::new(format!("--cluster: {problem}"))
            }
            ChannelError::InvalidOptions { field: "days", problem } => {
                Failure::new(format!("--days: {problem}"))
            }
            // With the path of the file.
            ChannelError::InvalidOptions { problem, .. } => Failure::new(problem),
            error => Failure::of(error),
        }
    }

    /// Writes the key and the certificate of each name, or no file.
    fn write_pairs(
        dir: &Path,
        names: &[String],
        issued: &[IssuedCertificate],
    ) -> Result<(), Failure> {
        let files = names.iter().flat_map(|name| files_of(name)).map(|file| dir.join(file));
        let contents = issued.iter().flat_map(|it| [it.key_pem(), it.certificate_pem()]);
        let mut written = Vec::new();
        for (file, content) in files.zip(contents) {
            if let Err(failure) = write_new(&file, &content) {
                written.iter().for_each(remove);
                return Err(failure);
            }
            written.push(file);
        }
        Ok(())
    }

    /// Writes a file that is new, and readable by this user alone. A part of it would be in the way
    /// of the next attempt.
    fn write_new(path: &Path, content: &str) -> Result<(), Failure> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(|error| not_written(path, &error))?;
        file.write_all(content.as_bytes()).map_err(|error| {
            remove(path);
            not_written(path, &error)
        })
    }

    /// Removes a file of this command. One that stays is named by the next attempt.
    fn remove(path: impl AsRef<Path>) {
        let _ = fs::remove_file(path);
    }

    fn not_written(path: &Path, error: &io::Error) -> Failure {
        let path = path.display();
        if error.kind() == ErrorKind::AlreadyExists {
            let problem = "it exists, and none is overwritten: move it away";
            return Failure::new(format!("{path}: {problem}"));
        }
        Failure::new(path.to_string()).because(error)
    }
}
