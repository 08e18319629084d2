//! From a ConfigMap that somebody edited to a revision in force.
//!
//! Every text of a revision is read, validated, tried and compiled aside; then the whole is swapped in, or nothing of
//! it. What was in force stays in force until then, and whatever fails is told in the source's status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use tracing::{info, warn};

use crate::api::marks::SOURCE_LABEL;
use crate::api::policy_source::{Pin, PolicySource};
use crate::controller::definitions::{Active, Attempt, Definition, PartId, Rejected};
use crate::controller::engine::{Done, Engine};
use crate::controller::governed::Refusal;
use crate::controller::review::{Rules, prepare};
use crate::model::policy::PolicyKey;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::sources::config_map;
use crate::sources::snapshot::{self, Texts};

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

/// What a part may be made of now.
struct Candidate {
    tenant: Arc<Tenant>,
    texts: Texts,
}

/// Why there is nothing to try.
enum Unusable {
    /// Nobody may define policies by it.
    WithoutRight(Refusal),
    /// The revision that a person asks for is not kept.
    NotKept { tenant: Arc<Tenant>, revision: String, refusal: Refusal },
}

impl Engine {
    /// Looks at one ConfigMap again, whoever it belonged to before.
    pub(crate) fn look_at_config_map(&mut self, namespace: &str, name: &str, now: DateTime<Utc>) {
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
            self.look_at_part(&id, &config_map, now);
        }
    }

    /// Looks at every part again: sources, tenants, or the labels of namespaces changed.
    pub(crate) fn look_at_all_parts(&mut self, now: DateTime<Utc>) {
        let there = self
            .parts
            .caches
            .policy_maps
            .all()
            .into_iter()
            .map(|map| (map.namespace().unwrap_or_default(), map.name_any()));
        let known = self.definitions.parts().map(|(id, _)| (id.namespace.clone(), id.name.clone()));
        let all: BTreeSet<(String, String)> = there.chain(known).collect();
        for (namespace, name) in all {
            self.look_at_config_map(&namespace, &name, now);
        }
        self.source_status.want_all(self.parts.caches.policy_sources.all().iter().map(|source| source.name_any()));
        self.pin_end = self.next_pin_end(now);
    }

    fn look_at_part(&mut self, id: &PartId, config_map: &ConfigMap, now: DateTime<Utc>) {
        let newest = config_map::texts(config_map, now);
        self.source_status.want(&id.source);
        let candidate = match self.candidate(id, newest.clone(), now) {
            Ok(candidate) => candidate,
            Err(Unusable::WithoutRight(refusal)) => {
                // A decision about its rights and no mistake in its text: what it brought goes.
                let gone = self.definitions.remove(id);
                self.definitions.part_mut(id).rejected = Some(reject(&newest, None, refusal, now));
                return self.review_each(gone, now);
            }
            Err(Unusable::NotKept { tenant, revision, refusal }) => {
                let part = self.definitions.part_mut(id);
                part.trying = None;
                part.rejected = Some(Rejected { revision, ..reject(&newest, Some(tenant), refusal, now) });
                return;
            }
        };
        let Candidate { tenant, texts } = candidate;
        let part = self.definitions.part_mut(id);
        if part.knows(&texts.revision, &tenant) {
            return;
        }
        let attempt = Attempt { revision: texts.revision.clone(), tenant: Arc::clone(&tenant) };
        part.trying = Some(attempt.clone());
        let earlier = if part.active.is_none() { self.revisions_of(id) } else { Vec::new() };
        let (id, rules) = (id.clone(), self.rules());
        self.tasks.spawn(async move {
            let result = activate(&id, texts, &tenant, &rules, now).await;
            let mut fallback = None;
            if result.is_err() {
                for texts in earlier.into_iter().filter(|texts| texts.revision != attempt.revision) {
                    fallback = activate(&id, texts, &tenant, &rules, now).await.ok();
                    if fallback.is_some() {
                        break;
                    }
                }
            }
            Done::Tried(Box::new(Tried { id, attempt, result, fallback }))
        });
    }

    /// Whose the part is and which of its revisions shall be in force.
    fn candidate(&self, id: &PartId, newest: Texts, now: DateTime<Utc>) -> Result<Candidate, Unusable> {
        let refusal = |reason, problem| Unusable::WithoutRight(Refusal { reason, problems: vec![problem] });
        let source = self.parts.caches.policy_sources.get("", &id.source).ok_or_else(|| {
            let found = format!("names the PolicySource {}, which does not exist", id.source);
            refusal(Reason::SourceNotFound, Problem::at(format!("metadata.labels.{SOURCE_LABEL}"), found))
        })?;
        let Some(config_maps) = &source.spec.config_map else {
            let found = format!("names the PolicySource {}, which takes no ConfigMaps", id.source);
            return Err(refusal(Reason::SourceNotFound, Problem::at(format!("metadata.labels.{SOURCE_LABEL}"), found)));
        };
        let labels = self.parts.caches.policy_maps.get(&id.namespace, &id.name);
        let labels = labels.map(|object| object.labels().clone()).unwrap_or_default();
        if let Some((label, value)) =
            config_maps.match_labels.iter().find(|(label, value)| labels.get(*label) != Some(*value))
        {
            let found = format!("lacks the label {label}: {value} that the PolicySource {} expects", id.source);
            return Err(refusal(Reason::OutOfScope, Problem::at("metadata.labels", found)));
        }
        let tenant = self.tenancy.named(&source.spec.tenant).ok_or_else(|| {
            let found = format!("the Tenant {} of the PolicySource {} does not exist", source.spec.tenant, id.source);
            refusal(Reason::TenantNotFound, Problem::at("spec.tenant", found))
        })?;
        let owner = self.tenancy.of(&self.parts.caches, &id.namespace);
        if owner.as_ref().ok() != Some(&tenant) {
            let owner = owner.map_or_else(|several| several.0.join(" and "), |owner| owner.name.clone());
            let found = format!("belongs to the tenant {owner}; expected a namespace of {}", tenant.name);
            return Err(refusal(Reason::OutOfScope, Problem::at(format!("namespace {}", id.namespace), found)));
        }
        let texts = match pin_of(&source, id, now) {
            None => newest,
            Some(pin) if pin.revision == newest.revision => newest,
            Some(pin) => {
                let kept = self.revisions_of(id).into_iter().find(|texts| texts.revision == pin.revision);
                let found = format!("revision {} of {} is not kept", pin.revision, pin.part);
                let problem = Problem::expected("spec.pins", found, "one that `tradeguard source history` lists");
                let refusal = Refusal { reason: Reason::RevisionNotFound, problems: vec![problem] };
                let (tenant, revision) = (Arc::clone(&tenant), pin.revision.clone());
                kept.ok_or(Unusable::NotKept { tenant, revision, refusal })?
            }
        };
        Ok(Candidate { tenant, texts })
    }

    /// Takes in what came of trying a revision, unless something newer is being tried.
    pub(crate) fn tried(&mut self, tried: Tried, now: DateTime<Utc>) {
        let Tried { id, attempt, result, fallback } = tried;
        let part = self.definitions.part_mut(&id);
        if part.trying.as_ref() != Some(&attempt) {
            return;
        }
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
        let touched = self.definitions.swap(&id, Arc::clone(&active));
        self.keep_revision(&id, &active.texts);
        self.review_each(touched, now);
    }

    /// The ConfigMap is gone, or belongs to another source: what it brought goes.
    fn drop_part(&mut self, id: &PartId, now: DateTime<Utc>) {
        let gone = self.definitions.remove(id);
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

fn pin_of<'a>(source: &'a PolicySource, id: &PartId, now: DateTime<Utc>) -> Option<&'a Pin> {
    let part = id.part();
    source.spec.pins.iter().find(|pin| pin.part == part && pin.until.is_none_or(|until| now < until))
}

fn reject(texts: &Texts, tenant: Option<Arc<Tenant>>, refusal: Refusal, now: DateTime<Utc>) -> Rejected {
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
    id: &PartId,
    texts: Texts,
    tenant: &Arc<Tenant>,
    rules: &Rules,
    now: DateTime<Utc>,
) -> Result<Active, Rejected> {
    let refuse = |refusal| reject(&texts, Some(Arc::clone(tenant)), refusal, now);
    let read = snapshot::read(&texts, &id.namespace);
    let snapshot = read.map_err(|problems| refuse(Refusal { reason: Reason::InvalidSource, problems }))?;
    let mut policies = BTreeMap::new();
    let mut refusals: Vec<Refusal> = Vec::new();
    for (key, text) in snapshot.policies {
        let mut draft = text.object.draft(now);
        draft.changed_at = texts.changed_at;
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
    /// All problems in one line.
    pub(crate) fn message(&self) -> String {
        self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}
