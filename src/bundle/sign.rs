//! Signing files.

use super::archive::Files;
use super::digest::{HashAlgorithm, hex};
use super::key::{KeyError, PrivateKey};
use super::kind::{FileKind, SIGNATURES};
use super::limits::Limits;
use super::parsed::Parsed;
use super::refusal::Refusal;
use super::signature::{SignedFile, written};

/// How files are signed.
#[derive(Clone, Copy, Debug)]
pub struct Signing<'a> {
    /// By whom.
    pub key: &'a PrivateKey,
    /// Under which name those who verify know the key.
    pub key_id: Option<&'a str>,
    /// For what; empty for no scope.
    pub scope: &'a str,
}

/// Why files cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files are no good bundle.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The key does not sign.
    #[error("the key {0}")]
    Key(#[from] KeyError),
}

/// The SHA-256 digest of every file, as it is signed.
pub fn digests(files: &Files, limits: &Limits) -> Result<Vec<SignedFile>, Refusal> {
    let parsed = Parsed::of(files, limits, |_| Ok(()))?;
    let signed = parsed.files.iter().map(|file| SignedFile {
        name: file.path.to_owned(),
        hash: hex(&file.sha256),
        algorithm: HashAlgorithm::Sha256.as_str().to_owned(),
    });
    Ok(signed.collect())
}

/// Puts a signature over every file beside the files; one that was there is replaced.
pub fn sign(files: &mut Files, signing: Signing<'_>, limits: &Limits) -> Result<(), Error> {
    files.retain(|path, _| FileKind::of(path) != FileKind::Signatures);
    let signed = digests(files, limits)?;
    let text = written(signing.key, signing.key_id, signing.scope, &signed)?;
    files.insert(SIGNATURES.to_owned(), text);
    Ok(())
}
