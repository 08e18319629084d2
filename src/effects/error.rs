//! What can go wrong when an effect is made or undone.

use crate::model::{problem::Problem, reason::Reason, slot::Slot};

use super::weights::route::Mismatch;

/// Result of this room.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What whoever called should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A person must change an object; trying again before that is of no use.
    Invalid,
    /// It may well work next time: retry with backoff.
    Transient,
    /// We are wrong: count it, say so, retry rarely.
    Bug,
}

/// Why an effect was not brought to where it should be. What was done before the error stays valid: the next
/// [`drive`](super::Effects::drive) finds it and goes on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The record was written by a later actor: we have lost, and must stop acting.
    #[error("intervention {record} was written by {by} in epoch {theirs}, ours is {ours}")]
    Fenced {
        /// The record.
        record: String,
        /// Who wrote it.
        by: String,
        /// That actor's epoch.
        theirs: i64,
        /// Ours.
        ours: i64,
    },
    /// Somebody else wrote in between, several times in a row.
    #[error("{object} was changed by somebody else in between")]
    Conflict {
        /// What was to be written.
        object: String,
    },
    /// The object does not hold what the slot names, so that nothing was written.
    #[error("{slot}: {source}")]
    NothingMatched {
        /// The slot.
        slot: Box<Slot>,
        /// What does not match.
        #[source]
        source: Mismatch,
    },
    /// The API server answered that it will not do this.
    #[error("the API server refused to change {object}: {message} (HTTP {code})")]
    Refused {
        /// What was to be written.
        object: String,
        /// HTTP status.
        code: u16,
        /// What the server says.
        message: String,
    },
    /// The cluster does not serve this kind.
    #[error("the cluster does not serve {kind} in {api_version}")]
    NotServed {
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// The API server failed or could not be reached.
    #[error("could not reach the API server for {object}: {source}")]
    Unreachable {
        /// What was asked for.
        object: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("the API server did not answer in time for {object}")]
    Timeout {
        /// What was asked for.
        object: String,
    },
    /// A foreign hand broke a record.
    #[error("Intervention {record} cannot be read: {problem}")]
    Unreadable {
        /// `namespace/name`.
        record: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A record, or what was asked for, is not of the kind that its slot holds.
    #[error("{what} does not fit {slot}")]
    Misfit {
        /// The slot.
        slot: Box<Slot>,
        /// What does not fit.
        what: &'static str,
    },
}

impl Error {
    /// The reason that conditions, Events and metrics show.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Refused { .. } | Self::NothingMatched { .. } => Reason::EffectRefused,
            Self::NotServed { .. } => Reason::TargetKindNotServed,
            Self::Fenced { .. }
            | Self::Conflict { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Unreadable { .. }
            | Self::Misfit { .. } => Reason::EffectFailed,
        }
    }

    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            // Rights are granted without any change of the object.
            Self::Refused { code: 401 | 403, .. }
            | Self::Fenced { .. }
            | Self::Conflict { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. } => Class::Transient,
            Self::Refused { .. } | Self::NothingMatched { .. } | Self::NotServed { .. } | Self::Unreadable { .. } => {
                Class::Invalid
            }
            Self::Misfit { .. } => Class::Bug,
        }
    }
}
