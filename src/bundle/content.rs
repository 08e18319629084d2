//! What a bundle's files say: every structured file parsed once, the manifest read, data merged and held to the roots.
//!
//! Sources: OPA's bundle documentation; `insertData`, `getNormalizedPath`, `validateAndInjectDefaults` in
//! `v1/bundle/bundle.go` and `internal/merge/merge.go` of OPA 1.22.4. The directory of a data file is the path of its
//! data; objects merge; a clash in which either side is no object is an error even where the values are equal.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::archive::Files;
use super::digest::{self, ContentDigest, HashAlgorithm};
use super::json::{self, Fault, Fields, Json};
use super::kind::{FileKind, MANIFEST};
use super::limits::Limits;
use super::manifest::Manifest;
use super::path;
use super::refusal::Refusal;
use super::roots::Root;
use super::signature::SignedFile;
use super::yaml;

/// Files with their structured ones parsed; the signature file is no part of it.
pub(super) struct Parsed<'a> {
    files: &'a Files,
    documents: BTreeMap<&'a str, Json<'a>>,
}

impl<'a> Parsed<'a> {
    /// Parses what is structured. Whether anything of it can be believed is another question.
    pub(super) fn of(files: &'a Files, limits: &Limits) -> Result<Self, Refusal> {
        let mut documents = BTreeMap::new();
        for (path, bytes) in files {
            let parsed = match FileKind::of(path) {
                FileKind::Manifest | FileKind::JsonData => json::parse(bytes, limits.values),
                FileKind::YamlData => yaml::parse(bytes, limits.values),
                _ => continue,
            };
            documents.insert(path.as_str(), parsed.map_err(|fault| unread(path, fault))?);
        }
        Ok(Self { files, documents })
    }

    /// A file's digest, as it is signed.
    pub(super) fn digest(&self, path: &str, algorithm: HashAlgorithm) -> Option<Vec<u8>> {
        let bytes = self.files.get(path)?;
        let structured = self.documents.get(path).filter(|_| FileKind::of(path).is_structured(path));
        Some(digest::of_file(bytes, structured, algorithm))
    }

    /// The paths of all files, in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'a str> {
        self.files.keys().map(String::as_str)
    }

    /// The digest of the whole content.
    fn content_digest(&self) -> ContentDigest {
        let digests: Vec<_> =
            self.paths().map(|path| (path, self.digest(path, HashAlgorithm::Sha256).unwrap_or_default())).collect();
        ContentDigest::of(digests.iter().map(|(path, digest)| (*path, digest.as_slice())))
    }

    /// The SHA-256 digest of every file, as it is signed.
    pub(super) fn digests(&self) -> Vec<SignedFile> {
        let algorithm = HashAlgorithm::Sha256;
        let file = |path: &'a str| SignedFile {
            name: path.to_owned(),
            hash: digest::hex(&self.digest(path, algorithm).unwrap_or_default()),
            algorithm: algorithm.as_str().to_owned(),
        };
        self.paths().map(file).collect()
    }

    /// The content, if it is whole and fits its manifest.
    pub(super) fn content(self, limits: &Limits) -> Result<Content, Refusal> {
        let digest = self.content_digest();
        let mut manifest = None;
        for (file, bytes) in self.files {
            match FileKind::of(file) {
                FileKind::Unsupported(what) => return Err(Refusal::Unsupported { file: file.clone(), what }),
                FileKind::Module => check_text(file, bytes)?,
                FileKind::Manifest => {
                    if let Some(first) = manifest.replace(file) {
                        return Err(Refusal::Twice { first: first.clone(), second: file.clone() });
                    }
                }
                _ => {}
            }
        }
        let manifest_path = manifest.map_or(MANIFEST, String::as_str);
        let written = self.documents.get(manifest_path);
        let manifest = Manifest::read(manifest_path, written, limits)?;
        let mut merged = Json::Object(Fields::default());
        for (file, document) in self.documents.into_iter().filter(|(file, _)| *file != manifest_path) {
            let keys: Vec<&str> = data_path(file);
            check_roots(file, &mut keys.clone(), &document, manifest.roots())?;
            let nested = keys
                .iter()
                .rev()
                .fold(document, |inner, key| Json::Object(Fields::of(vec![(Cow::Borrowed(*key), inner)])));
            if nested.as_object().is_none() {
                let message = format!("holds {} at the root of data; expected an object", nested.shown());
                return Err(Refusal::Document { file: file.to_owned(), at: None, message });
            }
            merged = merge(merged, nested, &mut Vec::new())
                .map_err(|path| Refusal::DataConflict { file: file.to_owned(), path })?;
        }
        Ok(Content { manifest, data: merged.canonical(), digest })
    }
}

/// What a bundle's files say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// The manifest; the default one where there is none.
    pub manifest: Manifest,
    /// All data, merged: one JSON object.
    pub data: String,
    /// What all files hold together.
    pub digest: ContentDigest,
}

impl Content {
    /// The content of files that need no trust, since they are about to be signed.
    pub fn of(files: &Files, limits: &Limits) -> Result<Self, Refusal> {
        Parsed::of(files, limits)?.content(limits)
    }
}

fn unread(file: &str, fault: Fault) -> Refusal {
    Refusal::Document { file: file.to_owned(), at: fault.at, message: fault.message }
}

fn check_text(file: &str, bytes: &[u8]) -> Result<(), Refusal> {
    str::from_utf8(bytes).map(|_| ()).map_err(|_| Refusal::Document {
        file: file.to_owned(),
        at: None,
        message: "is not UTF-8; expected Rego in UTF-8".into(),
    })
}

/// The directory without leading slashes and dots, by segments.
fn data_path(file: &str) -> Vec<&str> {
    let directory = path::directory(file).trim_start_matches(['/', '.']);
    if directory.is_empty() { Vec::new() } else { directory.split('/').collect() }
}

/// Every value lies within a root, or is an object on the way to one.
fn check_roots<'k>(file: &str, keys: &mut Vec<&'k str>, value: &'k Json<'_>, roots: &[Root]) -> Result<(), Refusal> {
    if roots.iter().any(|root| root.contains(keys)) {
        return Ok(());
    }
    match value {
        Json::Object(fields) if roots.iter().any(|root| root.is_below(keys)) || keys.is_empty() => {
            for (key, value) in fields.iter() {
                keys.push(key);
                check_roots(file, keys, value, roots)?;
                keys.pop();
            }
            Ok(())
        }
        _ => Err(Refusal::OutsideRoots { file: file.to_owned(), path: keys.join("."), roots: roots.to_vec() }),
    }
}

/// Both together; the path where they clash.
fn merge<'a>(one: Json<'a>, other: Json<'a>, keys: &mut Vec<String>) -> Result<Json<'a>, String> {
    let (Json::Object(one), Json::Object(other)) = (one, other) else { return Err(keys.join(".")) };
    let mut merged = one.into_sorted();
    for (key, value) in other.into_sorted() {
        match merged.binary_search_by(|(name, _)| name.cmp(&key)) {
            Ok(place) => {
                keys.push(key.into_owned());
                if let Some((_, held)) = merged.get_mut(place) {
                    let taken = std::mem::replace(held, Json::Null);
                    *held = merge(taken, value, keys)?;
                }
                keys.pop();
            }
            Err(place) => merged.insert(place, (key, value)),
        }
    }
    Ok(Json::Object(Fields::of(merged)))
}
