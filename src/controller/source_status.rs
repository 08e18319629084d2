//! What a source's status says: which revision of each part is in force, and what was refused and why.
//!
//! Written only when it changed; one write per source at a time.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tracing::debug;

use crate::api::conditions::{self, Condition, ConditionType};
use crate::api::marks::FIELD_MANAGER;
use crate::api::policy_source::{self, HISTORY, PartStatus, PolicySource, PolicySourceStatus};
use crate::api::{API_VERSION, any_policy};
use crate::controller::backoff::Backoff;
use crate::controller::definitions::{Part, PartId, count};
use crate::controller::engine::{Done, Engine};
use crate::controller::mirror;
use crate::model::reason::Reason;
use crate::telemetry::metrics::{ReconcileResult, Step};

/// Parts that status lists; those with something wrong come first.
const PARTS: usize = 64;
/// Policies that a part lists as held by others.
const OVERRIDDEN: usize = 20;
/// The longest message; the whole stands in the log.
const MESSAGE: usize = 2048;

/// The writing of sources' status.
#[derive(Debug, Default)]
pub(crate) struct SourceStatus {
    wanted: BTreeSet<String>,
    writing: BTreeSet<String>,
    written: BTreeMap<String, PolicySourceStatus>,
    backoff: BTreeMap<String, Backoff>,
}

/// What came of a write.
pub(crate) struct Written {
    source: String,
    status: PolicySourceStatus,
    result: Result<(), kube::Error>,
}

impl SourceStatus {
    /// Something that the status of this source must say happened.
    pub(crate) fn want(&mut self, source: &str) {
        self.wanted.insert(source.to_owned());
    }

    pub(crate) fn want_all(&mut self, sources: impl Iterator<Item = String>) {
        self.wanted.extend(sources);
    }
}

impl Engine {
    /// Starts the writes that are wanted.
    pub(crate) fn start_source_status(&mut self, now: DateTime<Utc>) {
        let free: Vec<String> = self.source_status.wanted.difference(&self.source_status.writing).cloned().collect();
        for name in free {
            self.source_status.wanted.remove(&name);
            let Some(source) = self.parts.caches.policy_sources.get("", &name) else {
                self.source_status.written.remove(&name);
                self.source_status.backoff.remove(&name);
                continue;
            };
            let before = self.source_status.written.get(&name).cloned().or_else(|| source.status.clone());
            let status = self.status_of(&source, before.as_ref(), now);
            if before.as_ref() == Some(&status) {
                continue;
            }
            self.source_status.writing.insert(name.clone());
            let (client, metrics) = (self.parts.client.clone(), std::sync::Arc::clone(&self.parts.metrics));
            self.tasks.spawn(async move {
                let running = metrics.reconcile_started(super::sourcing::SOURCE);
                let started = tokio::time::Instant::now();
                let body = json!({ "apiVersion": API_VERSION, "kind": "PolicySource", "status": status });
                let params = PatchParams::apply(FIELD_MANAGER).force();
                let api = Api::<PolicySource>::all(client);
                let result = api.patch_status(&name, &params, &Patch::Apply(&body)).await.map(drop);
                metrics.step(Step::Status, started.elapsed());
                running.finish(if result.is_ok() { ReconcileResult::Success } else { ReconcileResult::Error });
                Done::SourceStatus(Box::new(Written { source: name, status, result }))
            });
        }
    }

    /// Takes in what came of a write.
    pub(crate) fn source_status_written(&mut self, written: Written) {
        let Written { source, status, result } = written;
        self.source_status.writing.remove(&source);
        let backoff = self.source_status.backoff.entry(source.clone()).or_default();
        match result {
            Ok(()) => {
                backoff.reset();
                self.source_status.written.insert(source, status);
            }
            Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
            Err(error) => {
                let pause = backoff.after_failure(self.parts.random.f64());
                debug!(%error, source, ?pause, "the status of a source was not written");
                let clock = self.parts.clock;
                self.tasks.spawn(async move {
                    clock.sleep(pause).await;
                    Done::LookAtSource(source)
                });
            }
        }
    }

    fn status_of(
        &self,
        source: &PolicySource,
        before: Option<&PolicySourceStatus>,
        now: DateTime<Utc>,
    ) -> PolicySourceStatus {
        let name = source.name_any();
        let parts: Vec<(&PartId, &Part)> = self.definitions.parts().filter(|(id, _)| id.source == name).collect();
        let mut shown: Vec<PartStatus> = parts.iter().map(|(id, part)| self.part_status(id, part)).collect();
        let active = shown.iter().filter_map(|part| part.active.clone()).max_by_key(|active| active.since);
        let rejected = shown.iter().filter_map(|part| part.rejected.clone()).max_by_key(|rejected| rejected.at);
        shown.sort_by_key(|part| (part.rejected.is_none(), part.overridden.is_empty(), part.part.clone()));
        shown.truncate(PARTS);
        let refused = parts.iter().filter(|(_, part)| part.rejected.is_some()).count();
        let ready = match (self.tenancy.named(&source.spec.tenant), refused) {
            (None, _) => (false, Reason::TenantNotFound, format!("there is no Tenant {}", source.spec.tenant)),
            (Some(_), 0) if let Some(trouble) = self.fetches.trouble(&name) => {
                (false, trouble.reason, bounded(format!("{}; what is in force stays", trouble.message())))
            }
            (Some(_), 0) => (true, Reason::Accepted, format!("{} in force as written", counted(&parts))),
            (Some(_), some) => {
                let first = rejected.as_ref().and_then(|rejected| Reason::parse(&rejected.reason));
                let reason = first.unwrap_or(Reason::InvalidSource);
                (false, reason, format!("of {}, {some} not in force as written", counted(&parts)))
            }
        };
        let mut kept = before.map(|before| before.conditions.clone()).unwrap_or_default();
        let condition = Condition::new(ConditionType::Ready, ready.0, ready.1, ready.2, now);
        conditions::set(&mut kept, condition.of_generation(source.metadata.generation.unwrap_or_default()));
        PolicySourceStatus {
            observed_generation: source.metadata.generation,
            policies: parts.iter().filter_map(|(_, part)| part.active.as_ref()).map(|a| count(a.policies.len())).sum(),
            unprocessed: parts.iter().map(|(_, part)| part.unprocessed()).sum(),
            active,
            rejected,
            parts: shown,
            conditions: kept,
        }
    }

    fn part_status(&self, id: &PartId, part: &Part) -> PartStatus {
        let active = part.active.as_ref().map(|active| policy_source::Active {
            revision: active.texts.revision.clone(),
            since: any_policy::whole_seconds(active.since),
            policies: count(active.policies.len()),
        });
        let rejected = part.rejected.as_ref().map(|rejected| policy_source::Rejected {
            revision: rejected.revision.clone(),
            at: any_policy::whole_seconds(rejected.at),
            reason: rejected.reason.to_string(),
            message: bounded(rejected.message()),
            policies: rejected.policies,
        });
        let keys = part.active.iter().flat_map(|active| active.policies.keys());
        let overridden = keys.filter_map(|key| {
            let by_hand = self.object(key).is_some_and(|object| mirror::mirrored_part(&object).is_none());
            let holder = mirror::holder_in_words(self.definitions.winner(key), by_hand, id)?;
            Some(format!("{} {key}: held by {holder}", key.kind))
        });
        let history = match self.fetches.found(&id.source).filter(|_| id.is_repository()) {
            Some(found) => found.log.clone(),
            None => self.revisions_of(id).into_iter().map(|texts| texts.revision).take(HISTORY).collect(),
        };
        PartStatus { part: id.part(), active, rejected, overridden: overridden.take(OVERRIDDEN).collect(), history }
    }
}

/// What the source consists of.
fn counted(parts: &[(&PartId, &Part)]) -> String {
    match parts {
        [(id, _)] if id.is_repository() => "the repository".to_owned(),
        [_] => "1 ConfigMap".to_owned(),
        all => format!("{} ConfigMaps", all.len()),
    }
}

fn bounded(mut message: String) -> String {
    if message.len() > MESSAGE {
        let mut end = MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}
