//! How commits follow from one another.

use gix::bstr::ByteSlice;
use gix::objs::{CommitRef, Kind};
use gix::revision::walk::Sorting;
use gix::{ObjectId, Repository};

use super::{Ancestry, Error, Logged, tree};

/// The most bytes of one commit.
const LARGEST_COMMIT: u64 = 1 << 20;
const SUBJECT: usize = 200;

/// How `head` relates to `accepted`. All of the head's history is here, so a commit that is not is not in it.
pub(super) fn of(repository: &Repository, accepted: Option<ObjectId>, head: ObjectId) -> Result<Ancestry, Error> {
    let Some(accepted) = accepted else { return Ok(Ancestry::First) };
    if accepted == head {
        return Ok(Ancestry::Same);
    }
    let found = repository.try_find_header(accepted).map_err(|error| damaged(&error))?;
    if found.is_none_or(|header| header.kind() != Kind::Commit) {
        return Ok(Ancestry::Rewritten);
    }
    let descends = repository.is_ancestor(accepted, head).map_err(|error| damaged(&error))?;
    Ok(if descends { Ancestry::Descends } else { Ancestry::Rewritten })
}

/// The commits that lead to `from`, the newest first.
pub(super) fn history(repository: &Repository, from: ObjectId, limit: usize) -> Result<Vec<Logged>, Error> {
    // That it is a commit, and here.
    tree::object(repository, from, Kind::Commit, "the commit", LARGEST_COMMIT)?;
    let newest_first = Sorting::ByCommitTime(gix::traverse::commit::simple::CommitTimeOrder::NewestFirst);
    let walk = repository.rev_walk([from]).sorting(newest_first).all().map_err(|error| damaged(&error))?;
    let mut logged = Vec::new();
    for step in walk.take(limit) {
        // A commit that was carried over without its history ends the walk.
        let Ok(step) = step else { break };
        let bytes = tree::object(repository, step.id, Kind::Commit, "the commit", LARGEST_COMMIT)?;
        let commit = CommitRef::from_bytes(&bytes, step.id.kind()).map_err(|error| damaged(&error))?;
        logged.push(Logged {
            id: step.id.to_string(),
            committed_at: tree::committed_at(&commit).unwrap_or_default(),
            subject: subject(commit.message),
        });
    }
    Ok(logged)
}

fn subject(message: &[u8]) -> String {
    let line = message.trim().lines().next().unwrap_or_default().to_str_lossy().into_owned();
    line.chars().filter(|c| !c.is_control()).take(SUBJECT).collect()
}

fn damaged(error: &gix::Error) -> Error {
    Error::Damaged { found: error.probable_cause().to_string() }
}
