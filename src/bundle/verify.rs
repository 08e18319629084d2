//! Whether a signature is by a trusted key and covers exactly the files that are there.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::algorithm::Algorithm;
use super::digest::{HashAlgorithm, hex};
use super::limits::Limits;
use super::parsed::ParsedFile;
use super::path;
use super::refusal::{Refusal, shown};
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
        let found = shown(&signature.algorithm);
        return Err(Refusal::Algorithm { key: id.to_owned(), found, expected });
    }
    if !key.verifies(signature.message.as_bytes(), &signature.bytes) {
        return Err(Refusal::Signature { key: id.to_owned() });
    }
    if signature.scope != trust.scope() {
        let found = shown(&signature.scope);
        return Err(Refusal::Scope { found, expected: trust.scope().to_owned() });
    }
    Ok(Signer { key_id: id.to_owned(), algorithm: expected })
}

/// What a signature covers. Exactly these files must be there, unchanged.
pub(super) struct Cover {
    left: BTreeMap<String, SignedFile>,
}

impl Cover {
    /// A name that the signature lists twice could mean two things.
    pub(super) fn of(signature: &Signature, limits: &Limits) -> Result<Self, Refusal> {
        let mut left = BTreeMap::new();
        for file in &signature.files {
            let name = path::of(file.name.as_bytes(), limits)?;
            if left.insert(name, file.clone()).is_some() {
                return Err(Refusal::Malformed {
                    field: "payload.files",
                    found: format!("`{}` more than once", shown(&file.name)),
                    expected: "every file once",
                });
            }
        }
        Ok(Self { left })
    }

    /// Whether the file is covered and what was signed.
    pub(super) fn check(&mut self, file: &ParsedFile<'_>) -> Result<(), Refusal> {
        let path = || file.path.to_owned();
        let Some(signed) = self.left.remove(file.path) else { return Err(Refusal::Extra { file: path() }) };
        let found = match HashAlgorithm::parse(&signed.algorithm) {
            None => return Err(Refusal::WeakHash { file: path(), found: shown(&signed.algorithm) }),
            Some(HashAlgorithm::Sha256) => hex(&file.sha256),
            Some(algorithm) => hex(&file.digest(algorithm)),
        };
        // Upper-case hex says the same.
        if found != signed.hash.to_ascii_lowercase() {
            return Err(Refusal::Changed { file: path(), found, expected: shown(&signed.hash) });
        }
        Ok(())
    }

    /// Once every file was checked: whether all that was signed was there.
    pub(super) fn end(self) -> Result<(), Refusal> {
        match self.left.into_keys().next() {
            Some(file) => Err(Refusal::Missing { file }),
            None => Ok(()),
        }
    }
}
