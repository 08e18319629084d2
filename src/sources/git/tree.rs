//! The policy files of a commit, within limits. Every object is hashed again as it is read.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gix::bstr::{BStr, ByteSlice};
use gix::objs::tree::EntryKind;
use gix::objs::{CommitRef, Kind, TreeRefIter};
use gix::{ObjectId, Repository};

use super::{Commit, Error, LARGEST_SUM, MOST_FILES};
use crate::api::documents;

/// Which files are read.
const ENDINGS: [&str; 4] = [".yaml", ".yml", ".json", ".rego"];
/// The most bytes of a commit, or of a list of one folder.
const LARGEST_LIST: u64 = 8 << 20;
/// How many folders may lie in one another.
const DEEPEST: usize = 32;
/// The most files and folders that are looked at. A tree may name one subtree a thousand times, and that another.
const MOST_ENTRIES: usize = 100_000;

/// Reads the files of commit `id` below `folder`.
pub(super) fn read(repository: &Repository, id: ObjectId, folder: &[String]) -> Result<Commit, Error> {
    let bytes = object(repository, id, Kind::Commit, "the commit", LARGEST_LIST)?;
    let commit = CommitRef::from_bytes(&bytes, id.kind()).map_err(|error| damaged(id, &error))?;
    let committed_at = committed_at(&commit).ok_or_else(|| Error::Damaged { found: format!("{id} has no time") })?;
    let root = folder_in(repository, id, commit.tree(), folder)?;
    let mut reading = Reading { repository, files: BTreeMap::new(), sum: 0, entries: 0 };
    let path = folder.iter().map(|part| format!("{part}/")).collect::<String>();
    reading.collect(root, &path, path.len(), 0)?;
    Ok(Commit { id: id.to_string(), committed_at, files: reading.files })
}

/// When it was committed, if that is a time at all.
pub(super) fn committed_at(commit: &CommitRef<'_>) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(commit.committer().ok()?.time().ok()?.seconds, 0)
}

/// The content of an object, if it is what it is called and no larger than `limit`; `what` names it to people.
pub(super) fn object(
    repository: &Repository,
    id: ObjectId,
    kind: Kind,
    what: &str,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    // The size comes first: to read something is to have it in memory.
    let header = repository.try_find_header(id).map_err(|error| damaged(id, &error))?;
    let header = match header {
        Some(header) => header,
        None if kind == Kind::Commit => return Err(Error::CommitNotFound { commit: id.to_string() }),
        None => return Err(Error::Damaged { found: format!("{kind} {id} is missing") }),
    };
    if header.kind() != kind {
        return Err(match kind {
            Kind::Commit => Error::CommitNotFound { commit: id.to_string() },
            _ => Error::Damaged { found: format!("{id} is a {} and not a {kind}", header.kind()) },
        });
    }
    if header.size() > limit {
        let (found, limit) = (format!("has {} bytes", header.size()), limit.to_string());
        return Err(Error::TooLarge { what: what.to_owned(), found, limit });
    }
    let mut object = repository.find_object(id).map_err(|error| damaged(id, &error))?;
    let actual = gix::objs::compute_hash(id.kind(), kind, &object.data).map_err(|error| damaged(id, &error))?;
    if actual != id {
        return Err(Error::Damaged { found: format!("{kind} {id} has another content") });
    }
    Ok(std::mem::take(&mut object.data))
}

fn damaged(id: ObjectId, error: &gix::Error) -> Error {
    Error::Damaged { found: format!("{id}: {}", error.probable_cause()) }
}

fn folder_in(repository: &Repository, commit: ObjectId, root: ObjectId, folder: &[String]) -> Result<ObjectId, Error> {
    let mut tree = root;
    let mut path = String::new();
    for part in folder {
        path = if path.is_empty() { part.clone() } else { format!("{path}/{part}") };
        let not_found = |found| Error::PathNotFound { path: path.clone(), found, commit: commit.to_string() };
        let bytes = object(repository, tree, Kind::Tree, &path, LARGEST_LIST)?;
        let mut entries = TreeRefIter::from_bytes(&bytes, tree.kind());
        let found = entries.find(|entry| entry.as_ref().map_or(true, |entry| entry.filename == part.as_str()));
        let entry = found.ok_or_else(|| not_found("is not there"))?.map_err(|error| damaged(tree, &error))?;
        tree = match entry.mode.kind() {
            EntryKind::Tree => entry.oid.to_owned(),
            EntryKind::Blob | EntryKind::BlobExecutable => return Err(not_found("is a file")),
            other => return Err(not_a_file(path, other)),
        };
    }
    Ok(tree)
}

fn not_a_file(path: String, kind: EntryKind) -> Error {
    let found = match kind {
        EntryKind::Link => "is a symbolic link",
        EntryKind::Commit => "is a submodule",
        _ => "is neither file nor folder",
    };
    Error::NotAFile { path, found }
}

struct Reading<'a> {
    repository: &'a Repository,
    files: BTreeMap<String, Vec<u8>>,
    sum: u64,
    entries: usize,
}

impl Reading<'_> {
    /// Adds what lies in `tree`, which is `path` from the root of the repository; names begin after `skip` bytes of it.
    fn collect(&mut self, tree: ObjectId, path: &str, skip: usize, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(too_large(path, "lies too deep", format!("{DEEPEST} folders in one another")));
        }
        let shown = if path.is_empty() { "the root folder" } else { path };
        let bytes = object(self.repository, tree, Kind::Tree, shown, LARGEST_LIST)?;
        for entry in TreeRefIter::from_bytes(&bytes, tree.kind()) {
            let entry = entry.map_err(|error| damaged(tree, &error))?;
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(too_large(shown, "there are more", format!("{MOST_ENTRIES} files and folders")));
            }
            let path = format!("{path}{}", name(path, entry.filename)?);
            match entry.mode.kind() {
                EntryKind::Tree => self.collect(entry.oid.to_owned(), &format!("{path}/"), skip, depth + 1)?,
                EntryKind::Blob | EntryKind::BlobExecutable => self.add(entry.oid.to_owned(), &path, skip)?,
                other => return Err(not_a_file(path, other)),
            }
        }
        Ok(())
    }

    fn add(&mut self, blob: ObjectId, path: &str, skip: usize) -> Result<(), Error> {
        if !ENDINGS.iter().any(|ending| path.ends_with(ending)) {
            return Ok(());
        }
        if self.files.len() >= MOST_FILES {
            return Err(too_large(path, "there are more", format!("{MOST_FILES} files")));
        }
        let content = object(self.repository, blob, Kind::Blob, path, documents::LARGEST as u64)?;
        self.sum += content.len() as u64;
        if self.sum > LARGEST_SUM {
            return Err(too_large(path, "the files before it have more", format!("{LARGEST_SUM} bytes together")));
        }
        self.files.insert(path.get(skip..).unwrap_or(path).to_owned(), content);
        Ok(())
    }
}

fn too_large(path: &str, found: &str, limit: String) -> Error {
    Error::TooLarge { what: path.trim_end_matches('/').to_owned(), found: found.to_owned(), limit }
}

/// The name of an entry, if it stays where it is. Git's own checks keep these out; a hostile server does not run them.
fn name<'a>(folder: &str, name: &'a BStr) -> Result<&'a str, Error> {
    let refuse = |found| Error::NotAFile { path: format!("{folder}{name}"), found };
    let text = name.to_str().map_err(|_| refuse("has a name that is not UTF-8"))?;
    if matches!(text, "" | "." | "..") || text.contains(|c: char| c == '/' || c == '\\' || c.is_control()) {
        return Err(refuse("has a name that leads elsewhere"));
    }
    Ok(text)
}
