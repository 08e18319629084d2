//! The bare repository that a source keeps on disk: made as a whole or not at all, replaced when it is damaged or worn.
//!
//! A fresh one is fetched beside it as `<cache>.new` and takes its place by a rename. What bounds it: every fetch adds at
//! most one pack of at most [`LARGEST_TRANSFER`]; after [`MOST_PACKS`] of them, or [`LARGEST_CACHE`] bytes, the next change
//! replaces it. Beside it lies at most one damaged one.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use gix::objs::tree::EntryKind;
use gix::objs::{CommitRef, Kind, TreeRefIter, Write};
use gix::{ObjectId, Repository};

use super::remote::Checked;
use super::update::{self, HEAD, LARGEST_OBJECT, Update};
use super::watch::{files_of, size_of};
use super::{Error, LARGEST_TRANSFER, tree};

/// After so many fetches that brought something.
const MOST_PACKS: usize = 50;
/// After so many bytes.
const LARGEST_CACHE: u64 = 2 * LARGEST_TRANSFER;
/// The most objects of one commit that are carried over.
const MOST_CARRIED: usize = 100_000;

/// What becomes of the cache that is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Old {
    /// There is none.
    Absent,
    /// It is whole: the accepted commit is taken from it, and then it goes.
    Replaced,
    /// It is damaged, and kept for whoever wants to know how.
    SetAside,
}

/// Opens the cache, if there is one.
pub(super) fn open(cache: &Path) -> Result<Option<Repository>, Error> {
    if !cache.exists() {
        return Ok(None);
    }
    let repository =
        open_options().open(cache).map_err(|error| Error::Damaged { found: error.probable_cause().to_string() })?;
    match update::head_of(&repository)? {
        Some(head) if repository.has_object(head) => Ok(Some(repository)),
        _ => Err(Error::Damaged { found: String::from("its head is missing") }),
    }
}

/// Opens a cache that must be there.
pub(super) fn open_existing(cache: &Path) -> Result<Repository, Error> {
    open(cache)?.ok_or_else(|| Error::Damaged { found: String::from("it is gone") })
}

/// Neither the machine's nor the user's configuration, nor the environment, has a say in a cache.
fn open_options() -> gix::open::Options {
    gix::open::Options::isolated().open_path_as_is(true).with_enforced_trust(gix::sec::Trust::Full).config_overrides([
        format!("gitoxide.objects.allocLimit={LARGEST_OBJECT}"),
        // The engine has other things to do with its processors.
        String::from("pack.threads=1"),
        // Without its whole history nobody can say what descends from what.
        String::from("clone.rejectShallow=true"),
        String::from("core.logAllRefUpdates=false"),
    ])
}

/// Whether it has grown so much that it is to be replaced.
pub(super) fn worn(cache: &Path) -> bool {
    let packs = cache.join("objects/pack");
    let count = files_of(&packs).iter().filter(|path| path.extension().is_some_and(|ending| ending == "pack")).count();
    count >= MOST_PACKS || size_of(&packs) > LARGEST_CACHE
}

/// Finishes a replacement that was cut short between its two renames.
pub(super) fn recover(cache: &Path) -> Result<(), Error> {
    let fresh = beside(cache, "new");
    if !cache.exists() && fresh.exists() && matches!(open(&fresh), Ok(Some(_))) {
        return rename(&fresh, cache);
    }
    Ok(())
}

/// Removes what a fetch that was killed left behind: half a cache, half a pack, and locks that nobody holds any more.
pub(super) fn tidy(cache: &Path) -> Result<(), Error> {
    remove(&beside(cache, "new"))?;
    remove(&beside(cache, "old"))?;
    let packs = files_of(&cache.join("objects/pack"));
    let is_part = |path: &&PathBuf| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pack-"));
    let locks = [cache.join(format!("{HEAD}.lock")), cache.join("packed-refs.lock"), cache.join("shallow.lock")];
    for path in packs.iter().filter(is_part).chain(&locks) {
        // What stays is in the way of the next fetch, which says so.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Fetches a fresh cache and puts it in place of the old one; until it is complete, the old one stays. Returns the head.
pub(super) fn renew(cache: &Path, remote: &Checked, accepted: Option<ObjectId>, old: Old) -> Result<ObjectId, Error> {
    let fresh = beside(cache, "new");
    remove(&fresh)?;
    let head = fill(&fresh, cache, remote, accepted, old);
    let head = match head {
        Ok(head) => head,
        Err(error) => {
            let _ = remove(&fresh);
            return Err(error);
        }
    };
    let aside = beside(cache, if old == Old::SetAside { "damaged" } else { "old" });
    if cache.exists() {
        remove(&aside)?;
        rename(cache, &aside)?;
    }
    rename(&fresh, cache)?;
    if old != Old::SetAside {
        remove(&aside)?;
    }
    Ok(head)
}

fn fill(fresh: &Path, cache: &Path, remote: &Checked, accepted: Option<ObjectId>, old: Old) -> Result<ObjectId, Error> {
    let on_disk = |source| Error::Disk { path: fresh.to_owned(), source };
    // Policies are not for everybody on the machine.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(fresh).map_err(on_disk)?;
    let bare = gix::create::Options { object_hash: Some(gix::hash::Kind::Sha1), ..gix::create::Options::default() };
    gix::ThreadSafeRepository::init_opts(fresh, gix::create::Kind::Bare, bare, open_options())
        .map_err(|error| on_disk(io::Error::other(error.probable_cause().to_string())))?;
    let repository =
        open_options().open(fresh).map_err(|error| on_disk(io::Error::other(error.probable_cause().to_string())))?;
    let head = match update::update(&repository, remote, false) {
        Ok(Update::Head(head)) => head,
        // Nothing was here before: what is damaged came so.
        Ok(Update::Declined) | Err(Error::Damaged { .. }) => {
            let found = String::from("it sends objects that cannot be read");
            return Err(Error::Unreachable { url: remote.url.clone(), found });
        }
        Err(error) => return Err(error),
    };
    if let (Some(accepted), Old::Replaced | Old::SetAside) = (accepted, old)
        && !repository.has_object(accepted)
        && let Ok(Some(old)) = open(cache)
        && old.has_object(accepted)
    {
        // What of it can be had; from a damaged cache maybe nothing.
        let _ = carry_over(&old, &repository, accepted);
    }
    Ok(head)
}

/// Copies one commit and its files, without its history: what is needed to go on with it while the remote has another.
fn carry_over(from: &Repository, to: &Repository, commit: ObjectId) -> Result<(), Error> {
    let bytes = tree::object(from, commit, Kind::Commit, "the commit", LARGEST_OBJECT)?;
    let root = CommitRef::from_bytes(&bytes, commit.kind())
        .map_err(|error| Error::Damaged { found: error.to_string() })?
        .tree();
    let mut open = vec![(root, Kind::Tree)];
    let mut carried = 0;
    while let Some((id, kind)) = open.pop() {
        carried += 1;
        if carried > MOST_CARRIED {
            let (found, limit) = (String::from("has more"), format!("{MOST_CARRIED} files and folders"));
            return Err(Error::TooLarge { what: format!("commit {commit}"), found, limit });
        }
        let bytes = tree::object(from, id, kind, "an object", LARGEST_OBJECT)?;
        if kind == Kind::Tree {
            let entries = TreeRefIter::from_bytes(&bytes, id.kind()).filter_map(Result::ok);
            open.extend(entries.filter_map(|entry| match entry.mode.kind() {
                EntryKind::Tree => Some((entry.oid.to_owned(), Kind::Tree)),
                EntryKind::Commit => None,
                _ => Some((entry.oid.to_owned(), Kind::Blob)),
            }));
        }
        if !to.has_object(id) {
            write(to, kind, &bytes)?;
        }
    }
    // The commit last: where it is, all of it is.
    write(to, Kind::Commit, &bytes)
}

fn write(to: &Repository, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
    to.objects.write_buf(kind, bytes).map(|_| ()).map_err(|error| Error::Disk {
        path: to.path().to_owned(),
        source: io::Error::other(error.probable_cause().to_string()),
    })
}

fn beside(cache: &Path, ending: &str) -> PathBuf {
    let mut name = cache.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{ending}"));
    cache.with_file_name(name)
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(|source| Error::Disk { path: from.to_owned(), source })
}

fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| Error::Disk { path: directory.to_owned(), source }),
    }
}
