//! What can go wrong between a remote repository and the files of a commit; each says what was found and what is expected.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::model::problem::Problem;
use crate::model::reason::Reason;

/// Why there is no commit. No message holds a password or an address with a user name in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field of the source is wrong: whoever wrote the source must change it.
    #[error("{0}")]
    Invalid(Problem),
    /// The remote could not be reached, or failed: tried again later.
    #[error("{url}: {found}; expected a Git server that answers")]
    Unreachable {
        /// The remote.
        url: String,
        /// What it did instead.
        found: String,
    },
    /// The remote refused who asks (status 401 or 403): the next call with other credentials asks anew.
    #[error("{url}: {found}; expected credentials that may read the repository")]
    Unauthorized {
        /// The remote.
        url: String,
        /// How it refused.
        found: String,
    },
    /// The remote did not answer in full within the time of one call: tried again later.
    #[error("{url}: no complete answer within {after:?}; expected one by then")]
    Timeout {
        /// The remote.
        url: String,
        /// The time of one call.
        after: Duration,
    },
    /// There is something else than a Git repository at the address.
    #[error("{url}: {found}; expected a Git repository")]
    NotARepository {
        /// The remote.
        url: String,
        /// What is there.
        found: String,
    },
    /// The repository does not have the branch.
    #[error("{url} has no branch `{branch}`; expected one of its branches: {}", list(existing, *more))]
    BranchNotFound {
        /// The remote.
        url: String,
        /// The branch of the source.
        branch: String,
        /// Branches that there are, at most five.
        existing: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// The commit does not have the source's folder.
    #[error("`{path}` {found} in commit {commit}; expected a folder")]
    PathNotFound {
        /// The folder of the source.
        path: String,
        /// What is there.
        found: &'static str,
        /// The commit.
        commit: String,
    },
    /// A link, submodule or other thing lies where only files and folders may.
    #[error("{path}: {found}; expected only files and folders")]
    NotAFile {
        /// Where, from the root of the repository.
        path: String,
        /// What it is.
        found: &'static str,
    },
    /// Something is larger than it may be.
    #[error("{what}: {found}; expected at most {limit}")]
    TooLarge {
        /// What: a file's path, a folder or the transfer.
        what: String,
        /// How large.
        found: String,
        /// How large it may be.
        limit: String,
    },
    /// The cache does not hold the commit.
    #[error("commit {commit} is not in the engine's copy of the repository; expected one that was fetched before")]
    CommitNotFound {
        /// The commit.
        commit: String,
    },
    /// The cache is damaged. The next [`super::fetch`] replaces it.
    #[error("the engine's copy of the repository is damaged: {found}; expected what was fetched; it is fetched anew")]
    Damaged {
        /// How it shows.
        found: String,
    },
    /// The cache could not be written or moved: the engine's disk needs somebody.
    #[error("{}: {source}; expected a directory that the engine can write", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// As conditions and metrics have it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid(_) => Reason::InvalidSource,
            Self::Unreachable { .. } | Self::Timeout { .. } => Reason::SourceUnreachable,
            Self::Unauthorized { .. } => Reason::SourceUnauthorized,
            Self::NotARepository { .. } => Reason::NotARepository,
            Self::BranchNotFound { .. } => Reason::BranchNotFound,
            Self::PathNotFound { .. } => Reason::PathNotFound,
            Self::NotAFile { .. } => Reason::NotAFile,
            Self::TooLarge { .. } => Reason::SourceTooLarge,
            Self::CommitNotFound { .. } => Reason::RevisionNotFound,
            Self::Damaged { .. } | Self::Disk { .. } => Reason::SourceCacheFailed,
        }
    }
}

fn list(existing: &[String], more: usize) -> String {
    match (existing.is_empty(), more) {
        (true, _) => String::from("it has none yet"),
        (false, 0) => existing.join(", "),
        (false, more) => format!("{} and {more} more", existing.join(", ")),
    }
}
