//! Whether a signature is by a trusted key and covers exactly the files that are there.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::algorithm::Algorithm;
use super::content::Parsed;
use super::digest::{HashAlgorithm, hex};
use super::limits::Limits;
use super::path;
use super::refusal::Refusal;
use super::signature::{Signature, SignedFile};
use super::trust::Trust;

/// Who signed a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Id of the trusted key.
    pub key_id: String,
    /// Its algorithm.
    pub algorithm: Algorithm,
}

/// Whether the signature itself is good at `now`. What it covers is not looked at.
pub(super) fn signer_at(signature: &Signature, trust: &Trust, now: DateTime<Utc>) -> Result<Signer, Refusal> {
    let (id, key) = trust.key_at(signature.key_id.as_deref(), now)?;
    let expected = key.algorithm();
    // The key's algorithm decides, never the header's; a header that says otherwise was not written by its owner.
    if Algorithm::parse(&signature.algorithm) != Some(expected) {
        let found = signature.algorithm.chars().take(40).collect();
        return Err(Refusal::Algorithm { key: id.to_owned(), found, expected });
    }
    if !key.verifies(signature.message.as_bytes(), &signature.bytes) {
        return Err(Refusal::Signature { key: id.to_owned() });
    }
    if signature.scope != trust.scope() {
        let found = signature.scope.chars().take(200).collect();
        return Err(Refusal::Scope { found, expected: trust.scope().to_owned() });
    }
    Ok(Signer { key_id: id.to_owned(), algorithm: expected })
}

/// The signed digests by path. A name that comes twice could mean two things.
pub(super) fn signed_files(signature: &Signature, limits: &Limits) -> Result<BTreeMap<String, SignedFile>, Refusal> {
    let mut files = BTreeMap::new();
    for file in &signature.files {
        let name = path::of(file.name.as_bytes(), limits)?;
        if files.insert(name, file.clone()).is_some() {
            return Err(Refusal::Malformed {
                field: "payload.files",
                found: format!("`{}` more than once", file.name),
                expected: "every file once",
            });
        }
    }
    Ok(files)
}

/// Whether exactly the signed files are there, unchanged.
pub(super) fn check_files(parsed: &Parsed<'_>, mut signed: BTreeMap<String, SignedFile>) -> Result<(), Refusal> {
    for path in parsed.paths() {
        let Some(file) = signed.remove(path) else { return Err(Refusal::Extra { file: path.to_owned() }) };
        let Some(algorithm) = HashAlgorithm::parse(&file.algorithm) else {
            let found = file.algorithm.chars().take(40).collect();
            return Err(Refusal::WeakHash { file: path.to_owned(), found });
        };
        let found = hex(&parsed.digest(path, algorithm).unwrap_or_default());
        let expected = file.hash.to_ascii_lowercase();
        if found != expected {
            let expected = expected.chars().take(128).collect();
            return Err(Refusal::Changed { file: path.to_owned(), found, expected });
        }
    }
    match signed.into_keys().next() {
        Some(file) => Err(Refusal::Missing { file }),
        None => Ok(()),
    }
}
