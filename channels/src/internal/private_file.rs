//! Small files of text with a secret, which other users of the machine must not read.

use std::{fs, io::Read as _, path::Path};

/// Reads a text, which may be that of a pipe or of a device without an end.
///
/// # Errors
///
/// Why it cannot be read, or that it has more than `bytes_max` bytes; no text of the file.
pub fn read(path: &Path, bytes_max: u64) -> Result<String, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    match read.map_err(|error| error.to_string())? {
        bytes if bytes as u64 > bytes_max => Err(format!("it has more than {bytes_max} bytes")),
        _ => Ok(text),
    }
}

/// Checks that other users cannot use the file.
///
/// # Errors
///
/// The mode of the file, and the command that closes it to others.
pub fn check(path: &Path) -> Result<(), String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o777);
        if mode & 0o007 != 0 {
            let path = path.display();
            return Err(format!("every user can use it (mode {mode:04o}): chmod 600 {path}"));
        }
    }
    let _ = path;
    Ok(())
}
