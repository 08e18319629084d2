//! Looking at repositories: when, what was found, and what a head must be to be tried.
//!
//! Every instance looks by itself, so that each is warm; fetching runs beside the loop. What was fetched goes the way of
//! every other text (`sourcing`).

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::ResourceExt;
use tracing::{info, warn};

use crate::api::policy_source::{GitSource, HISTORY, PolicySource};
use crate::controller::backoff::Backoff;
use crate::controller::candidate;
use crate::controller::definitions::PartId;
use crate::controller::engine::{Done, Engine};
use crate::controller::governed::Refusal;
use crate::controller::options::GitCredentials;
use crate::controller::sourcing::SOURCE;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::time;
use crate::sources::git::{self, Ancestry, Commit, Credentials, Remote};
use crate::sources::snapshot::Texts;

/// How long one look at a repository may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The repositories of all sources.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    by_source: BTreeMap<String, Fetch>,
}

#[derive(Debug)]
struct Fetch {
    asked: Asked,
    running: bool,
    due: DateTime<Utc>,
    backoff: Backoff,
    found: Option<Found>,
    trouble: Option<Refusal>,
    /// The newest head that came into force.
    accepted: Option<String>,
}

/// What a look depends on; another question makes the answer worthless.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    git: GitSource,
    pinned: Option<String>,
}

/// What a look found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The head of the branch.
    pub(crate) head: Texts,
    /// The head does not descend from the commit that was accepted.
    pub(crate) is_rewritten: bool,
    /// The commit that a person pinned: its name, and its texts or why they are not to be had.
    pub(crate) pinned: Option<(String, Result<Texts, String>)>,
    /// The newest commits.
    pub(crate) log: Vec<String>,
}

/// What came of a look.
pub(crate) struct Fetched {
    source: String,
    asked: Asked,
    found: Option<Found>,
    trouble: Option<Refusal>,
}

impl Fetches {
    /// What is known of a source's repository.
    pub(crate) fn found(&self, source: &str) -> Option<&Found> {
        self.by_source.get(source)?.found.as_ref()
    }

    /// Why the last look failed, if it did.
    pub(crate) fn trouble(&self, source: &str) -> Option<&Refusal> {
        self.by_source.get(source)?.trouble.as_ref()
    }

    /// Whether the part is a repository that is looked at.
    pub(crate) fn follows(&self, id: &PartId) -> bool {
        id.is_repository() && self.by_source.contains_key(&id.source)
    }

    /// A head came into force.
    pub(crate) fn accept(&mut self, source: &str, revision: &str) {
        if let Some(fetch) = self.by_source.get_mut(source)
            && fetch.found.as_ref().is_some_and(|found| found.head.revision == revision)
        {
            fetch.accepted = Some(revision.to_owned());
        }
    }

    /// When the next look is due.
    pub(crate) fn next_due(&self) -> Option<DateTime<Utc>> {
        self.by_source.values().filter(|fetch| !fetch.running).map(|fetch| fetch.due).min()
    }
}

impl Engine {
    /// Takes in which sources are repositories now. One whose question changed is asked at once.
    pub(crate) fn follow_repositories(&mut self, now: DateTime<Utc>) {
        let sources = self.parts.caches.policy_sources.all();
        let wanted: BTreeMap<String, (Asked, Option<String>)> =
            sources.iter().filter_map(|source| Some((source.name_any(), asked(source, now)?))).collect();
        self.fetches.by_source.retain(|source, _| wanted.contains_key(source));
        for (source, (asked, in_force)) in wanted {
            let fetch = self.fetches.by_source.entry(source).or_insert_with(|| Fetch {
                asked: asked.clone(),
                running: false,
                due: now,
                backoff: Backoff::default(),
                found: None,
                trouble: None,
                // What status says was in force is what the next head must descend from, also after a restart.
                accepted: in_force,
            });
            if fetch.asked != asked {
                fetch.asked = asked;
                fetch.due = now;
                fetch.backoff.reset();
            }
        }
        let gone: Vec<PartId> = self
            .definitions
            .parts()
            .map(|(id, _)| id)
            .filter(|id| id.is_repository() && !self.fetches.by_source.contains_key(&id.source))
            .cloned()
            .collect();
        for id in gone {
            self.drop_part(&id, now);
        }
        for source in self.fetches.by_source.keys().cloned().collect::<Vec<_>>() {
            self.look_at_repository(&source, now);
        }
    }

    /// Starts the looks that are due.
    pub(crate) fn start_fetches(&mut self, now: DateTime<Utc>) {
        for (source, fetch) in &mut self.fetches.by_source {
            if fetch.running || now < fetch.due {
                continue;
            }
            fetch.running = true;
            let (asked, accepted) = (fetch.asked.clone(), fetch.accepted.clone());
            let cache = self.parts.options.state_dir.join("sources").join(source);
            let credentials = asked.git.credentials.as_ref().map(|name| {
                let known = self.parts.options.git_credentials.get(name).cloned();
                known.ok_or_else(|| format!("`{name}`; expected a name under gitCredentials of the configuration"))
            });
            // Without anything in force, the commit that was is the best there is while the remote is away.
            let has_nothing = fetch.found.is_none();
            let (source, clock) = (source.clone(), self.parts.clock);
            self.tasks.spawn(async move {
                let question = asked.clone();
                let looked = tokio::task::spawn_blocking(move || {
                    look(&cache, &question, credentials, accepted.as_deref(), has_nothing, clock.now())
                });
                let (found, trouble) = looked.await.unwrap_or_else(|_| {
                    let problem = Problem::at("spec.git", "the repository could not be looked at");
                    (None, Some(Refusal { reason: Reason::SourceCacheFailed, problems: vec![problem] }))
                });
                Done::Fetched(Box::new(Fetched { source, asked, found, trouble }))
            });
        }
    }

    /// Takes in what a look found.
    pub(crate) fn fetched(&mut self, fetched: Fetched, now: DateTime<Utc>) {
        let Fetched { source, asked, found, trouble } = fetched;
        let jitter = self.parts.random.f64();
        let Some(fetch) = self.fetches.by_source.get_mut(&source) else { return };
        fetch.running = false;
        if fetch.asked != asked {
            fetch.due = now;
            return;
        }
        // Validated at admission; a source from before that is looked at as by default.
        let interval = time::parse_duration(&asked.git.interval).unwrap_or(Duration::from_secs(30));
        fetch.due = match &trouble {
            None => {
                fetch.backoff.reset();
                now + interval
            }
            Some(refusal) => {
                warn!(reconciler = SOURCE, request = source, reason = %refusal.reason, problems = %refusal.message(), "the repository could not be fetched");
                now + fetch.backoff.after_failure(jitter).min(interval)
            }
        };
        let was_troubled = std::mem::replace(&mut fetch.trouble, trouble).is_some();
        let new_head = found
            .as_ref()
            .is_some_and(|found| fetch.found.as_ref().is_none_or(|before| before.head.revision != found.head.revision));
        if let Some(found) = found {
            if new_head {
                info!(
                    reconciler = SOURCE,
                    request = source,
                    commit = found.head.revision,
                    rewritten = found.is_rewritten,
                    "a new head"
                );
            }
            fetch.found = Some(found);
        }
        if was_troubled || fetch.trouble.is_some() || new_head {
            self.source_status.want(&source);
        }
        self.look_at_repository(&source, now);
    }
}

/// None for a source that is no repository. With it, the commit that status says is in force.
fn asked(source: &PolicySource, now: DateTime<Utc>) -> Option<(Asked, Option<String>)> {
    let git = source.spec.git.clone()?;
    let id = PartId::repository(&source.name_any());
    let pinned = candidate::pin_of(source, &id, now).map(|pin| pin.revision.clone());
    let parts = source.status.iter().flat_map(|status| &status.parts);
    let active = parts.filter(|part| part.part == id.part()).find_map(|part| part.active.as_ref());
    Some((Asked { git, pinned }, active.map(|active| active.revision.clone())))
}

/// Blocks. Both a finding and a trouble: what is known from before, and why there is nothing newer.
fn look(
    cache: &std::path::Path,
    asked: &Asked,
    credentials: Option<Result<GitCredentials, String>>,
    accepted: Option<&str>,
    has_nothing: bool,
    now: DateTime<Utc>,
) -> (Option<Found>, Option<Refusal>) {
    let refusal = |reason, problem| Refusal { reason, problems: vec![problem] };
    let credentials = match credentials.map(|known| known.and_then(|known| read_credentials(&known))).transpose() {
        Ok(credentials) => credentials,
        Err(found) => {
            return (None, Some(refusal(Reason::SourceUnauthorized, Problem::at("spec.git.credentials", found))));
        }
    };
    let git = &asked.git;
    let remote = Remote {
        url: git.url.clone(),
        branch: git.branch.clone(),
        path: git.path.clone(),
        credentials,
        timeout: TIMEOUT,
    };
    let texts =
        |commit: Commit| Texts { revision: commit.id, changed_at: commit.committed_at.min(now), files: commit.files };
    let with = |commit: Commit, is_rewritten| {
        let log = git::history(cache, &commit.id, HISTORY).unwrap_or_default();
        let pinned = asked.pinned.as_ref().map(|pin| {
            let read = git::read(cache, &remote, pin).map(texts).map_err(|error| error.to_string());
            (pin.clone(), read)
        });
        Found { head: texts(commit), is_rewritten, pinned, log: log.into_iter().map(|logged| logged.id).collect() }
    };
    match git::fetch(cache, &remote, accepted) {
        Ok((commit, ancestry)) => (Some(with(commit, ancestry == Ancestry::Rewritten)), None),
        Err(error) => {
            let trouble = refusal(error.reason(), Problem::at("spec.git", error.to_string()));
            let last_good = accepted.filter(|_| has_nothing).and_then(|commit| git::read(cache, &remote, commit).ok());
            (last_good.map(|commit| with(commit, false)), Some(trouble))
        }
    }
}

/// Read at each look, so that a rotated password needs no restart.
fn read_credentials(known: &GitCredentials) -> Result<Credentials, String> {
    let file = &known.password_file;
    let password =
        std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    Ok(Credentials::new(known.username.clone(), password.trim_end_matches(['\n', '\r'])))
}
