//! `--token-file`: where the fencing token is written before the command starts.

use std::{
    ffi::OsString,
    fmt::Display,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use gaggle::Nonce;
use nix::libc::{ENXIO, O_NONBLOCK};

use crate::failure::Failure;

/// The standard streams, which are the command's.
const STREAMS: u32 = 3;
/// The bits of a descriptor's flags that allow writing: `O_WRONLY` and `O_RDWR`.
const WRITABLE: u32 = 0o3;

/// A descriptor or a path to which a token can be written.
#[derive(Debug)]
pub(super) enum TokenFile {
    /// The number, and what it is open for.
    Descriptor(u32, File),
    Path(PathBuf),
}

impl TokenFile {
    /// Checks whether it can be written, before any request. A whole number is a descriptor.
    pub(super) fn check(argument: OsString) -> Result<Self, Failure> {
        let is_number =
            |text: &&str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let target = argument.display().to_string();
        let checked = match argument.to_str().filter(is_number) {
            // No process has more descriptors.
            Some(number) => {
                let number = number.parse().unwrap_or(u32::MAX);
                open_descriptor(number).map(|file| Self::Descriptor(number, file))
            }
            None => check_path(Path::new(&argument)).map(|()| Self::Path(argument.into())),
        };
        checked.map_err(|problem| failure(&target, &problem))
    }

    /// Writes a line. A file at a path has either its former content or this line.
    pub(super) fn write(&self, token: u64) -> Result<(), Failure> {
        let line = format!("{token}\n");
        match self {
            Self::Descriptor(number, file) => {
                { file }.write_all(line.as_bytes()).map_err(|error| failure(number, &error))
            }
            Self::Path(path) => {
                write_whole(path, &line).map_err(|error| failure(&path.display(), &error))
            }
        }
    }
}

fn failure(target: &dyn Display, problem: &dyn Display) -> Failure {
    Failure::new(format!("--token-file {target}: {problem}"))
}

/// Opens it again by its name, because no safe call uses a number. A file is appended to, and a
/// pipe that is full is an error.
fn open_descriptor(number: u32) -> Result<File, String> {
    if number < STREAMS {
        let problem = "0, 1 and 2 are the streams of the command: give 3 or more, or a path as ./1";
        return Err(problem.into());
    }
    // Opened by its name, the other end of a pipe would be writable.
    if cfg!(target_os = "linux") {
        let cure = format!("open it by `{number}>FILE`");
        let Ok(info) = fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else {
            return Err(format!("no such descriptor is open: {cure}, or give a path"));
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        if flags.is_none_or(|flags| flags & WRITABLE == 0) {
            return Err(format!("the descriptor cannot be written: {cure}"));
        }
    }
    let mut options = File::options();
    let opened = options.append(true).custom_flags(O_NONBLOCK).open(format!("/dev/fd/{number}"));
    opened.map_err(|error| match error.raw_os_error() {
        // A pipe without a reader, or a socket.
        Some(ENXIO) => {
            "nothing reads this pipe, or it is a socket: give a pipe, a file or a path".into()
        }
        _ => error.to_string(),
    })
}

/// Creates a file beside it, and removes it again.
fn check_path(path: &Path) -> Result<(), String> {
    let is_other = fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
    if is_other || path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
    {
        return Err("it is no regular file, which would be replaced: give another path".into());
    }
    let created = create_beside(path).and_then(|(temporary, _)| fs::remove_file(temporary));
    created.map_err(|error| format!("no file can be created in its folder: {error}"))
}

fn write_whole(path: &Path, line: &str) -> io::Result<()> {
    let (temporary, mut file) = create_beside(path)?;
    let renamed = file.write_all(line.as_bytes()).and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

/// A new file of the same folder, with the permissions of the umask. Processes of two containers
/// may have one number.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let temporary = path.with_file_name(format!(".gaggle-token-{}", Nonce::random()));
    let file = File::create_new(&temporary)?;
    Ok((temporary, file))
}
