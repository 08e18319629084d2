//! One branch of a Git repository: which commit is its head, how that follows from the one that was accepted, and the
//! policy files of a commit.
//!
//! A source has a bare repository of its own on disk, the cache. It holds the branch with all of its history, so whether
//! a head descends from an earlier commit is decided without asking anybody, merges included. Everything here blocks; one
//! call at a time for each cache. Refuses to know what is in the files, and whether a head that was rewritten comes into
//! force.

mod ancestry;
mod cache;
mod error;
mod failure;
mod remote;
mod tree;
mod update;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use gix::ObjectId;

pub use error::Error;
use remote::Checked;
use update::Update;

use crate::model::problem::Problem;

/// The most files that one commit may bring below the source's folder.
pub const MOST_FILES: usize = 10_000;
/// The most bytes that these files may have together.
pub const LARGEST_SUM: u64 = 32 << 20;
/// The most bytes that one answer of the remote may have, packed. More is no repository of policies.
pub const LARGEST_TRANSFER: u64 = 256 << 20;

/// Where a source's commits come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// `https://…`, `http://…` or `file:///…`, without a user name or password in it.
    pub url: String,
    /// The branch by its short name: `prod`.
    pub branch: String,
    /// The folder of the repository that holds the policies: `policies/prod`; empty for all of it.
    pub path: String,
    /// Who asks; sent with the first request already. Over `http` to this machine only.
    pub credentials: Option<Credentials>,
    /// How long one call may take altogether.
    pub timeout: Duration,
}

/// A user name and a password or token. Neither `Debug` nor any error shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: String,
    password: String,
}

impl Credentials {
    /// As they were read from a Secret.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: username.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// One commit, and what it holds below the source's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// 40 hexadecimal digits.
    pub id: String,
    /// As the committer wrote it: nothing keeps it from lying in the future.
    pub committed_at: DateTime<Utc>,
    /// Path below the source's folder to content; only names that end with .yaml, .yml, .json or .rego.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// How a head relates to the commit that was accepted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestry {
    /// Nothing was accepted yet.
    First,
    /// It is the accepted commit.
    Same,
    /// The accepted commit is in its history.
    Descends,
    /// The accepted commit is not in its history: the branch was reset or its history rewritten.
    Rewritten,
}

/// One line of a branch's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// 40 hexadecimal digits.
    pub id: String,
    /// As the committer wrote it.
    pub committed_at: DateTime<Utc>,
    /// The first line of its message, at most 200 characters.
    pub subject: String,
}

/// The head of the branch now, and how it follows from `accepted`.
///
/// An unchanged head costs one look at the remote's branches and no transfer of objects. A damaged cache is replaced by a
/// fresh one and lies beside it as `<cache>.damaged` until the next one.
pub fn fetch(cache: &Path, remote: &Remote, accepted: Option<&str>) -> Result<(Commit, Ancestry), Error> {
    let remote = Checked::new(remote)?;
    let accepted = accepted.map(id_of).transpose()?;
    cache::recover(cache)?;
    cache::tidy(cache)?;
    let renewed = || cache::renew(cache, &remote, accepted, cache::Old::SetAside);
    let head = match head(cache, &remote, accepted) {
        Err(Error::Damaged { .. }) => renewed()?,
        head => head?,
    };
    match look(cache, &remote, accepted, head) {
        Err(Error::Damaged { .. }) => look(cache, &remote, accepted, renewed()?),
        found => found,
    }
}

/// Brings the cache to where the branch is.
fn head(cache: &Path, remote: &Checked, accepted: Option<ObjectId>) -> Result<ObjectId, Error> {
    let Some(repository) = cache::open(cache)? else {
        return cache::renew(cache, remote, accepted, cache::Old::Absent);
    };
    match update::update(&repository, remote, cache::worn(cache))? {
        Update::Head(head) => Ok(head),
        Update::Declined => cache::renew(cache, remote, accepted, cache::Old::Replaced),
    }
}

/// What the cache says about the head.
fn look(
    cache: &Path,
    remote: &Checked,
    accepted: Option<ObjectId>,
    head: ObjectId,
) -> Result<(Commit, Ancestry), Error> {
    let repository = cache::open_existing(cache)?;
    let ancestry = ancestry::of(&repository, accepted, head)?;
    Ok((tree::read(&repository, head, &remote.folder)?, ancestry))
}

/// A commit that was fetched before, from the cache alone: one that a person pinned, or the accepted one while the remote
/// is away.
pub fn read(cache: &Path, remote: &Remote, commit: &str) -> Result<Commit, Error> {
    let folder = remote::folder(&remote.path)?;
    let id = id_of(commit)?;
    cache::recover(cache)?;
    let repository = cache::open(cache)?.ok_or_else(|| Error::CommitNotFound { commit: commit.to_owned() })?;
    tree::read(&repository, id, &folder)
}

/// The commits that lead to `from`, itself first, by time, at most `limit`; from the cache alone.
pub fn history(cache: &Path, from: &str, limit: usize) -> Result<Vec<Logged>, Error> {
    let id = id_of(from)?;
    cache::recover(cache)?;
    let repository = cache::open(cache)?.ok_or_else(|| Error::CommitNotFound { commit: from.to_owned() })?;
    ancestry::history(&repository, id, limit)
}

fn id_of(text: &str) -> Result<ObjectId, Error> {
    let id = if text.len() == 40 { ObjectId::from_hex(text.as_bytes()).ok() } else { None };
    id.ok_or_else(|| Error::Invalid(Problem::expected("commit", format!("`{text}`"), "40 hexadecimal digits")))
}

#[cfg(test)]
mod tests;
