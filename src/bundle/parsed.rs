//! Files one after the other: structured ones parsed, each digested once.

use super::archive::Files;
use super::digest::{self, ContentDigest, HashAlgorithm};
use super::json::{self, Json};
use super::kind::FileKind;
use super::limits::Limits;
use super::refusal::Refusal;
use super::yaml;

/// All files of a bundle but the signature, in order of path.
pub(super) struct Parsed<'a> {
    pub(super) files: Vec<ParsedFile<'a>>,
}

/// One file.
pub(super) struct ParsedFile<'a> {
    pub(super) path: &'a str,
    pub(super) kind: FileKind,
    pub(super) bytes: &'a [u8],
    /// Where the file is JSON or YAML that means something.
    pub(super) document: Option<Json<'a>>,
    /// The SHA-256 digest, as it is signed.
    pub(super) sha256: Vec<u8>,
}

impl ParsedFile<'_> {
    /// The digest by another function.
    pub(super) fn digest(&self, algorithm: HashAlgorithm) -> Vec<u8> {
        digest::of_file(self.bytes, structured(self.kind, self.path, self.document.as_ref()), algorithm)
    }
}

fn structured<'d, 'a>(kind: FileKind, path: &str, document: Option<&'d Json<'a>>) -> Option<&'d Json<'a>> {
    document.filter(|_| kind.is_structured(path))
}

impl<'a> Parsed<'a> {
    /// Parses what is structured and asks `check` of every file before the next is looked at, so that a forged bundle
    /// gets no further than its first forged file.
    pub(super) fn of(
        files: &'a Files,
        limits: &Limits,
        mut check: impl FnMut(&ParsedFile<'a>) -> Result<(), Refusal>,
    ) -> Result<Self, Refusal> {
        let mut parsed = Vec::with_capacity(files.len());
        let mut left = limits.values;
        for (path, bytes) in files {
            let kind = FileKind::of(path);
            let document = match kind {
                FileKind::Manifest | FileKind::JsonData => Some(json::parse(bytes, left)),
                FileKind::YamlData => Some(yaml::parse(bytes, left)),
                _ => None,
            };
            let document = document.transpose().map_err(|fault| Refusal::Document {
                file: path.clone(),
                at: fault.at,
                message: fault.message,
            })?;
            left = left.saturating_sub(document.as_ref().map_or(0, Json::count));
            let sha256 = digest::of_file(bytes, structured(kind, path, document.as_ref()), HashAlgorithm::Sha256);
            let file = ParsedFile { path, kind, bytes, document, sha256 };
            check(&file)?;
            parsed.push(file);
        }
        Ok(Self { files: parsed })
    }

    /// The digest of the whole content.
    pub(super) fn content_digest(&self) -> ContentDigest {
        ContentDigest::of(self.files.iter().map(|file| (file.path, file.sha256.as_slice())))
    }
}
