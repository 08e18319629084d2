//! What the controller is told at start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::controller::lease;
use crate::controller::watches::Gvk;
use crate::decide::{Budgets, Surroundings};

/// The controller's part of the configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of this process among the instances; unique per process.
    pub identity: String,
    /// The engine's own namespace: Lease and freeze lie there.
    pub namespace: String,
    /// The Lease.
    pub lease: lease::Options,
    /// Kinds that policies may target: (apiVersion, kind).
    pub target_kinds: Vec<Gvk>,
    /// What validation needs to know.
    pub surroundings: Arc<Surroundings>,
    /// The binary that tries rules which policies bring; none: they are tried in this process.
    pub trial_program: Option<PathBuf>,
    /// Where what outlives the process lies.
    pub state_dir: PathBuf,
    /// Who asks for repositories, by the name that sources give.
    pub git_credentials: BTreeMap<String, GitCredentials>,
    /// Limits over all policies.
    pub budgets: Budgets,
    /// Sinks that get every event, whether or not a policy has a notify action.
    pub default_sinks: BTreeSet<String>,
    /// `source` of events: `/tradeguard/<cluster>`.
    pub event_source: String,
    /// Non-Healthy status is written at most this often unless something changed.
    pub status_refresh: Duration,
    /// Seed of jitter and ids.
    pub seed: u64,
}

/// A user of a Git server. The file is read at each fetch, so that a rotated password needs no restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCredentials {
    /// The user.
    pub username: String,
    /// A file that holds the password or token.
    pub password_file: PathBuf,
}
