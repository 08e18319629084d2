//! What a bundle's files say: the manifest read, data merged and held to the roots.
//!
//! Sources: OPA's bundle documentation; `getNormalizedPath` and `validateAndInjectDefaults` in `v1/bundle/bundle.go` of
//! OPA 1.22.4. The directory of a data file is the path of its data.

use super::archive::Files;
use super::data::{Clash, Tree};
use super::digest::ContentDigest;
use super::json::{DEEPEST, Json};
use super::kind::{FileKind, MANIFEST};
use super::limits::Limits;
use super::manifest::Manifest;
use super::parsed::{Parsed, ParsedFile};
use super::path;
use super::refusal::Refusal;
use super::roots::Root;

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
        Self::of_parsed(Parsed::of(files, limits, |_| Ok(()))?, limits)
    }

    /// The content, if it is whole and fits its manifest.
    pub(super) fn of_parsed(parsed: Parsed<'_>, limits: &Limits) -> Result<Self, Refusal> {
        let digest = parsed.content_digest();
        let mut manifest: Option<&ParsedFile<'_>> = None;
        for file in &parsed.files {
            match file.kind {
                FileKind::Unsupported(what) => return Err(Refusal::Unsupported { file: file.path.to_owned(), what }),
                FileKind::Module => check_text(file.path, file.bytes)?,
                FileKind::Manifest => {
                    if let Some(first) = manifest.replace(file) {
                        return Err(Refusal::Twice { first: first.path.to_owned(), second: file.path.to_owned() });
                    }
                }
                _ => {}
            }
        }
        let document = manifest.and_then(|file| file.document.as_ref());
        let manifest = Manifest::read(manifest.map_or(MANIFEST, |file| file.path), document, limits)?;
        let mut data = Tree::new();
        for ParsedFile { path, kind, document, .. } in parsed.files {
            if let (FileKind::JsonData | FileKind::YamlData, Some(document)) = (kind, document) {
                put(&mut data, path, document, manifest.roots())?;
            }
        }
        Ok(Self { manifest, data: data.canonical(), digest })
    }
}

/// Puts one data file into the whole.
fn put<'a>(data: &mut Tree<'a>, path: &'a str, document: Json<'a>, roots: &[Root]) -> Result<(), Refusal> {
    let keys = data_path(path);
    let unfit = |message| Err(Refusal::Document { file: path.to_owned(), at: None, message });
    if keys.is_empty() && document.as_object().is_none() {
        return unfit(format!("holds {} at the root of data; expected an object", document.shown()));
    }
    if keys.len() + document.depth() > DEEPEST {
        return unfit(format!("lies too deep in data; expected at most {DEEPEST} levels"));
    }
    check_roots(path, &mut keys.clone(), &document, roots)?;
    data.insert(&keys, document).map_err(|Clash(at)| Refusal::DataConflict { file: path.to_owned(), path: at })
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
