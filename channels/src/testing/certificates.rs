//! A directory with an authority and the certificates that it signs, for tests of TLS.
#![allow(clippy::unwrap_used, reason = "a part of tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::tls::TlsKeys;
use crate::tls::{Authority, Issued, Validity};

/// How long a certificate of a test is valid.
const DAYS: u32 = 7;

static DIRECTORIES: AtomicU32 = AtomicU32::new(0);

/// An authority and what it has signed, in a directory that is removed at the end.
pub struct Certificates {
    directory: PathBuf,
    authority: Authority,
}

impl Certificates {
    /// A new authority in a new directory.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("gaggle-tls-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let issued = Authority::generate(Validity::days(DAYS));
        write(&directory, "ca", &issued);
        let [ca, key] = ["ca.pem", "ca-key.pem"].map(|file| directory.join(file));
        let authority = Authority::from_files(&ca, &key).unwrap();
        Self { directory, authority }
    }

    /// A file of the directory: `ca.pem`, `ca-key.pem`, and of each that was issued as `a`, `a.pem`
    /// and `a-key.pem`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a certificate for a DNS name and its key.
    pub fn issue(&self, file: &str, dns_name: &str) {
        self.issue_for(file, dns_name, Validity::days(DAYS));
    }

    /// As [`issue`](Self::issue), valid at another time.
    pub fn issue_for(&self, file: &str, dns_name: &str, validity: Validity) {
        write(&self.directory, file, &self.authority.issue(dns_name, validity));
    }

    /// Writes the certificates of members of a cluster, under their names.
    ///
    /// # Panics
    ///
    /// If a name cannot be in a certificate.
    pub fn issue_members(&self, cluster: &str, names: &[&str]) {
        for name in names {
            self.issue(name, &crate::tls::member_dns_name(name, cluster).unwrap());
        }
    }

    /// The keys that were issued as `file`.
    #[must_use]
    pub fn keys(&self, file: &str) -> TlsKeys {
        let [ca, cert, key] = self.paths(file);
        TlsKeys::files(ca, cert, key)
    }

    /// The same as options of a URL.
    #[must_use]
    pub fn url_options(&self, file: &str) -> String {
        let [ca, cert, key] = self.paths(file).map(|path| path.display().to_string());
        format!("tls_ca={ca}&tls_cert={cert}&tls_key={key}")
    }

    fn paths(&self, file: &str) -> [PathBuf; 3] {
        ["ca.pem".into(), format!("{file}.pem"), format!("{file}-key.pem")]
            .map(|name: String| self.path(&name))
    }

    /// Replaces the file of this name by that of another directory at once, as `mv` does.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn replace(&self, name: &str, by: &Self) {
        let beside = self.path(&format!("{name}.new"));
        fs::copy(by.path(name), &beside).unwrap();
        fs::rename(beside, self.path(name)).unwrap();
    }

    /// Writes a file that only this user can read.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        write_private(&path, content);
        path
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn write(directory: &Path, name: &str, issued: &Issued) {
    write_private(&directory.join(format!("{name}.pem")), &issued.certificate_pem());
    write_private(&directory.join(format!("{name}-key.pem")), &issued.key_pem());
}

fn write_private(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}
