//! Signing files.

use super::archive::Files;
use super::content::Parsed;
use super::digest::{HashAlgorithm, hex};
use super::key::{KeyError, PrivateKey};
use super::kind::{FileKind, SIGNATURES};
use super::limits::Limits;
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

/// Puts a signature over every file beside the files; one that was there is replaced.
pub fn sign(files: &mut Files, signing: Signing<'_>, limits: &Limits) -> Result<(), Error> {
    files.retain(|path, _| FileKind::of(path) != FileKind::Signatures);
    let parsed = Parsed::of(files, limits)?;
    let signed: Vec<SignedFile> = parsed
        .paths()
        .map(|path| SignedFile {
            name: path.to_owned(),
            hash: hex(&parsed.digest(path, HashAlgorithm::Sha256).unwrap_or_default()),
            algorithm: HashAlgorithm::Sha256.as_str().to_owned(),
        })
        .collect();
    let text = written(signing.key, signing.key_id, signing.scope, &signed)?;
    files.insert(SIGNATURES.to_owned(), text);
    Ok(())
}
