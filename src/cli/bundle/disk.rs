//! Files that the subcommands read and write: archives and keys within limits, writes that happen whole or not at all.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::bundle::{Algorithm, KeyError, Limits, PrivateKey, PublicKey};
use crate::model::problem::Problem;

/// Keys are a few kilobytes at most.
const LARGEST_KEY: u64 = 64 << 10;

/// Rights of a file that anybody may read, and of one that only its owner may.
pub(super) const PUBLIC: u32 = 0o644;
pub(super) const PRIVATE: u32 = 0o600;

/// A problem with a file, by its name.
pub(super) fn problem(path: &Path, message: impl fmt::Display) -> Problem {
    Problem::at(path.display().to_string(), format!("{message}"))
}

/// A bundle's bytes, as far as a bundle may be long.
pub(super) fn archive(path: &Path, limits: &Limits) -> Result<Vec<u8>, Problem> {
    read(path, limits.archive_bytes as u64)
}

/// A file of at most `largest` bytes.
pub(super) fn read(path: &Path, largest: u64) -> Result<Vec<u8>, Problem> {
    let unread = |error: io::Error| problem(path, format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    File::open(path).map_err(unread)?.take(largest + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > largest {
        return Err(problem(path, format!("has more than {largest} bytes; expected at most that")));
    }
    Ok(bytes)
}

/// A public key, for this algorithm where one is named.
pub(super) fn public_key(path: &Path, algorithm: Option<Algorithm>) -> Result<PublicKey, Problem> {
    let key = PublicKey::from_pem(&pem(path)?).map_err(|error| problem(path, error))?;
    fits(key.algorithm(), algorithm).map_err(|error| problem(path, error))?;
    Ok(key)
}

/// A private key, for this algorithm where one is named.
pub(super) fn private_key(path: &Path, algorithm: Option<Algorithm>) -> Result<PrivateKey, Problem> {
    let key = PrivateKey::from_pem(&pem(path)?).map_err(|error| problem(path, error))?;
    fits(key.algorithm(), algorithm).map_err(|error| problem(path, error))?;
    Ok(key)
}

fn pem(path: &Path) -> Result<String, Problem> {
    String::from_utf8(read(path, LARGEST_KEY)?).map_err(|_| problem(path, "is not text; expected a key in PEM"))
}

fn fits(found: Algorithm, expected: Option<Algorithm>) -> Result<(), KeyError> {
    match expected {
        Some(expected) if expected != found => Err(KeyError::Algorithm { found, expected }),
        _ => Ok(()),
    }
}

/// An algorithm as it is named on the command line: those that have a key pair.
pub(super) fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::parse(name)
        .filter(|algorithm| Algorithm::ASYMMETRIC.contains(algorithm))
        .ok_or_else(|| "expected EdDSA, RS256 or ES256".to_owned())
}

/// Writes a file whole, in place of one that may be there: whoever reads sees the old or the new, also after a crash.
pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Problem> {
    let unwritten = |error: io::Error| problem(path, format!("cannot be written: {error}"));
    let aside = aside(path, bytes, mode).map_err(unwritten)?;
    fs::rename(&aside, path).inspect_err(|_| remove(&aside)).map_err(unwritten)?;
    settle(path);
    Ok(())
}

/// Writes a file whole, where there is none yet.
pub(super) fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Problem> {
    let aside = aside(path, bytes, mode).map_err(|error| problem(path, format!("cannot be written: {error}")))?;
    // A link, unlike a rename, fails where something is.
    let linked = fs::hard_link(&aside, path);
    remove(&aside);
    settle(path);
    linked.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => problem(path, "exists already and is not overwritten"),
        _ => problem(path, format!("cannot be written: {error}")),
    })
}

/// The bytes, safely on disk under a name beside the one that is meant.
fn aside(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is no file name"))?;
    let aside = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    // What an earlier process of this number left behind.
    remove(&aside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| remove(&aside))?;
    Ok(aside)
}

/// Nothing follows from its failing: the name is ours alone and hidden.
fn remove(aside: &Path) {
    let _ = fs::remove_file(aside);
}

/// Makes the new name outlive a crash; where the directory cannot be opened, the name itself was still written whole.
fn settle(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(directory) = File::open(directory) {
        let _ = directory.sync_all();
    }
}
