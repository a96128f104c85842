//! The shared secret of the members of one run.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use gaggle::Nonce;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use crate::{failure::Failure, utf8::temporary_directory};

/// A secret in a file of the temporary directory, which is removed at the end.
pub(super) struct Secret(PathBuf);

impl Secret {
    pub(super) fn new(run: &str) -> Result<Self, Failure> {
        // Twice the 74 random bits of a nonce.
        let secret = [Nonce::random(), Nonce::random()].map(|nonce| nonce.to_string()).concat();
        let path = temporary_directory()?.join(format!("gaggle-secret-{run}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(secret.as_bytes()))
            .map_err(|error| Failure::new(path.display().to_string()).because(&error))?;
        Ok(Self(path))
    }

    /// The option of a URL that names the file.
    pub(super) fn option(&self) -> String {
        let path = percent_encode(self.0.as_os_str().as_encoded_bytes(), NON_ALPHANUMERIC);
        format!("&secret_file={path}")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
