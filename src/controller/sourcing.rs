//! From a ConfigMap that somebody edited, or a commit that somebody pushed, to a revision in force.
//!
//! Every text of a revision is read, validated, tried and compiled aside; then the whole is swapped in, or nothing of
//! it. What was in force stays in force until then, and whatever fails is told in the source's status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::ResourceExt;
use tracing::{info, warn};

use crate::api::marks::SOURCE_LABEL;
use crate::controller::candidate::{Candidate, Unusable, is_accepted};
use crate::controller::definitions::{Active, Attempt, Definition, PartId, Rejected};
use crate::controller::engine::{Done, Engine};
use crate::controller::governed::Refusal;
use crate::controller::review::{Rules, prepare};
use crate::model::policy::{Origin, PolicyKey};
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::sources::config_map;
use crate::sources::snapshot::{self, Scope, Texts};

/// What reconciles sources, in metrics and logs.
pub(crate) const SOURCE: &str = "source";

/// What came of trying a revision.
pub(crate) struct Tried {
    id: PartId,
    attempt: Attempt,
    result: Result<Active, Rejected>,
    /// What was in force before this process began, where the newest text cannot be.
    fallback: Option<Active>,
}

impl Engine {
    /// Looks at one ConfigMap again, whoever it belonged to before.
    pub(crate) fn look_at_config_map(&mut self, namespace: &str, name: &str, now: DateTime<Utc>) {
        if !self.parts.caches.are_synced() {
            self.sources_wait = true;
            return;
        }
        let config_map = self.parts.caches.policy_maps.get(namespace, name);
        let source = config_map.as_ref().and_then(|object| object.labels().get(SOURCE_LABEL).cloned());
        let id = |source: String| PartId { source, namespace: namespace.to_owned(), name: name.to_owned() };
        let owner = source.map(id);
        let known = self.definitions.parts().map(|(id, _)| id);
        let others: Vec<PartId> = known
            .filter(|known| known.namespace == namespace && known.name == name && Some(*known) != owner.as_ref())
            .cloned()
            .collect();
        for other in others {
            self.drop_part(&other, now);
        }
        if let (Some(id), Some(config_map)) = (owner, config_map) {
            let newest = config_map::texts(&config_map, now);
            let candidate = self.config_map_candidate(&id, newest.clone(), now);
            self.take_candidate(&id, &newest, candidate, now);
        }
    }

    /// Looks at what is known of a source's repository again.
    pub(crate) fn look_at_repository(&mut self, source: &str, now: DateTime<Utc>) {
        let id = PartId::repository(source);
        let Some(found) = self.fetches.found(source).cloned() else { return };
        let candidate = self.repository_candidate(&id, &found, now);
        self.take_candidate(&id, &found.head, candidate, now);
    }

    /// Looks at every part again: sources, tenants, or the labels of namespaces changed.
    pub(crate) fn look_at_all_parts(&mut self, now: DateTime<Utc>) {
        if !self.parts.caches.are_synced() {
            self.sources_wait = true;
            return;
        }
        let there = self
            .parts
            .caches
            .policy_maps
            .all()
            .into_iter()
            .map(|map| (map.namespace().unwrap_or_default(), map.name_any()));
        let known = self.definitions.parts().map(|(id, _)| id).filter(|id| !id.is_repository());
        let known = known.map(|id| (id.namespace.clone(), id.name.clone()));
        let all: BTreeSet<(String, String)> = there.chain(known).collect();
        for (namespace, name) in all {
            self.look_at_config_map(&namespace, &name, now);
        }
        self.source_status.want_all(self.parts.caches.policy_sources.all().iter().map(|source| source.name_any()));
        self.pin_end = self.next_pin_end(now);
        self.follow_repositories(now);
    }

    /// Tries the text that shall be in force, unless it was tried before; or tells why there is none.
    fn take_candidate(
        &mut self,
        id: &PartId,
        newest: &Texts,
        candidate: Result<Candidate, Unusable>,
        now: DateTime<Utc>,
    ) {
        let Candidate { tenant, texts, scope } = match candidate {
            Ok(candidate) => candidate,
            Err(Unusable::WithoutRight(refusal)) => {
                // A decision about its rights and no mistake in its text: what it brought goes.
                let mut gone = self.definitions.remove(id);
                gone.extend(self.mirrors_of(id));
                self.definitions.part_mut(id).rejected = Some(reject(newest, None, refusal, now));
                self.source_status.want(&id.source);
                return self.review_each(gone, now);
            }
            Err(Unusable::Held { tenant, revision, refusal }) => {
                let part = self.definitions.part_mut(id);
                part.trying = None;
                let rejected = Rejected { revision, ..reject(newest, Some(tenant), refusal, now) };
                if part.rejected.as_ref().is_none_or(|before| !before.says_the_same(&rejected)) {
                    part.rejected = Some(rejected);
                    self.source_status.want(&id.source);
                }
                return;
            }
        };
        let source = self.parts.caches.policy_sources.get("", &id.source);
        let accepted = source.is_some_and(|source| is_accepted(&source, &texts.revision));
        let part = self.definitions.part_mut(id);
        // What waited for somebody's decision waits no more, or it would not be a candidate.
        let decided = part.rejected.as_ref().is_some_and(|rejected| match rejected.reason {
            Reason::NotDescendant | Reason::RevisionNotFound => true,
            Reason::MassRemoval => accepted,
            _ => false,
        });
        if decided {
            part.rejected = None;
            self.source_status.want(&id.source);
        }
        let part = self.definitions.part_mut(id);
        if part.knows(&texts.revision, &tenant) {
            return;
        }
        self.source_status.want(&id.source);
        let attempt = Attempt { revision: texts.revision.clone(), tenant: Arc::clone(&tenant) };
        part.trying = Some(attempt.clone());
        let earlier = if part.active.is_none() { self.revisions_of(id) } else { Vec::new() };
        let origin = if id.is_repository() { Origin::Git } else { Origin::Cluster };
        let (id, rules) = (id.clone(), self.rules());
        self.tasks.spawn(async move {
            let result = activate(texts, origin, &scope, &tenant, &rules, now).await;
            let mut fallback = None;
            if result.is_err() {
                for texts in earlier.into_iter().filter(|texts| texts.revision != attempt.revision) {
                    fallback = activate(texts, origin, &scope, &tenant, &rules, now).await.ok();
                    if fallback.is_some() {
                        break;
                    }
                }
            }
            Done::Tried(Box::new(Tried { id, attempt, result, fallback }))
        });
    }

    /// Takes in what came of trying a revision, unless something newer is being tried.
    pub(crate) fn tried(&mut self, tried: Tried, now: DateTime<Utc>) {
        let Tried { id, attempt, result, fallback } = tried;
        if self.definitions.part_mut(&id).trying.as_ref() != Some(&attempt) {
            return;
        }
        let result = result.and_then(|active| match self.mass_removal(&id, &active, now) {
            Some(rejected) => Err(rejected),
            None => Ok(active),
        });
        let part = self.definitions.part_mut(&id);
        part.trying = None;
        let active = match result {
            Ok(active) => {
                part.rejected = None;
                Some(active)
            }
            Err(rejected) => {
                warn!(
                    reconciler = SOURCE, request = %id.part(), tenant = %attempt.tenant.name, source = id.source,
                    revision = rejected.revision, reason = %rejected.reason, problems = %rejected.message(), "revision refused"
                );
                part.rejected = Some(rejected);
                fallback.filter(|_| part.active.is_none())
            }
        };
        self.source_status.want(&id.source);
        self.show_rest();
        let Some(active) = active else {
            let kept = self.definitions.part_mut(&id).active.iter().flat_map(|active| active.policies.keys().cloned());
            let kept = kept.collect();
            return self.review_each(kept, now);
        };
        info!(
            reconciler = SOURCE, request = %id.part(), tenant = %active.tenant.name, source = id.source,
            revision = active.texts.revision, policies = active.policies.len(), "revision in force"
        );
        let active = Arc::new(active);
        let mut touched = self.definitions.swap(&id, Arc::clone(&active));
        touched.extend(self.mirrors_of(&id));
        if id.is_repository() {
            self.fetches.accept(&id.source, &active.texts.revision);
        } else {
            self.keep_revision(&id, &active.texts);
        }
        self.review_each(touched, now);
    }

    /// The ConfigMap is gone, or belongs to another source: what it brought goes.
    pub(crate) fn drop_part(&mut self, id: &PartId, now: DateTime<Utc>) {
        let mut gone = self.definitions.remove(id);
        gone.extend(self.mirrors_of(id));
        info!(reconciler = SOURCE, request = %id.part(), source = id.source, policies = gone.len(), "part gone");
        self.source_status.want(&id.source);
        self.review_each(gone, now);
    }

    fn review_each(&mut self, keys: BTreeSet<PolicyKey>, now: DateTime<Utc>) {
        for key in keys {
            self.reconcile(&key, now);
        }
    }

    fn next_pin_end(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let sources = self.parts.caches.policy_sources.all();
        sources
            .iter()
            .flat_map(|source| source.spec.pins.iter().filter_map(|pin| pin.until))
            .filter(|end| *end > now)
            .min()
    }
}

pub(crate) fn reject(texts: &Texts, tenant: Option<Arc<Tenant>>, refusal: Refusal, now: DateTime<Utc>) -> Rejected {
    Rejected {
        revision: texts.revision.clone(),
        tenant,
        at: now,
        reason: refusal.reason,
        problems: refusal.problems,
        policies: snapshot::meant_policies(texts),
    }
}

/// Reads, validates, tries and compiles every text of a revision.
async fn activate(
    texts: Texts,
    origin: Origin,
    scope: &Scope,
    tenant: &Arc<Tenant>,
    rules: &Rules,
    now: DateTime<Utc>,
) -> Result<Active, Rejected> {
    let refuse = |refusal| reject(&texts, Some(Arc::clone(tenant)), refusal, now);
    let read = snapshot::read(&texts, scope);
    let snapshot = read.map_err(|problems| refuse(Refusal { reason: Reason::InvalidSource, problems }))?;
    let mut policies = BTreeMap::new();
    let mut refusals: Vec<Refusal> = Vec::new();
    for (key, text) in snapshot.policies {
        let mut draft = text.object.draft(now);
        draft.changed_at = texts.changed_at;
        draft.origin = origin;
        match prepare(&draft, text.object.spec_json(), tenant, rules).await {
            Ok(entry) => {
                policies.insert(key, Definition { object: text.object, entry: Arc::new(entry) });
            }
            Err(refusal) => {
                let problems = snapshot::in_file(&texts, &text.file, text.document, &refusal.problems);
                refusals.push(Refusal { reason: refusal.reason, problems });
            }
        }
    }
    let mut refusals = refusals.into_iter();
    match refusals.next() {
        None => Ok(Active { texts, tenant: Arc::clone(tenant), since: now, policies }),
        Some(mut first) => {
            first.problems.extend(refusals.flat_map(|refusal| refusal.problems));
            Err(refuse(first))
        }
    }
}

impl Rejected {
    /// Whether another one is the same but for its time.
    fn says_the_same(&self, other: &Self) -> bool {
        self.revision == other.revision && self.reason == other.reason && self.problems == other.problems
    }

    /// All problems in one line.
    pub(crate) fn message(&self) -> String {
        self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}
