//! What of a part may come into force: whose it is, which of its revisions is meant, and what waits for a person.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::ResourceExt;

use crate::api::marks::SOURCE_LABEL;
use crate::api::policy_source::{Pin, PolicySource};
use crate::controller::definitions::{Active, PartId, Rejected};
use crate::controller::engine::Engine;
use crate::controller::fetching::Found;
use crate::controller::governed::Refusal;
use crate::controller::sourcing::reject;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::{Class, Tenant};
use crate::sources::snapshot::{Scope, Texts};

/// What a part may be made of now.
pub(crate) struct Candidate {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) texts: Texts,
    pub(crate) scope: Scope,
}

/// Why there is nothing to try.
pub(crate) enum Unusable {
    /// Nobody may define policies by it.
    WithoutRight(Refusal),
    /// This revision is not to be had, or waits for a person; what is in force stays.
    Held { tenant: Arc<Tenant>, revision: String, refusal: Refusal },
}

impl Engine {
    /// Whose a ConfigMap is and which of its revisions shall be in force.
    pub(crate) fn config_map_candidate(
        &self,
        id: &PartId,
        newest: Texts,
        now: DateTime<Utc>,
    ) -> Result<Candidate, Unusable> {
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
                kept.ok_or(Unusable::Held { tenant, revision, refusal })?
            }
        };
        Ok(Candidate { tenant, texts, scope: Scope::Own(id.namespace.clone()) })
    }

    /// Whose a repository is and which of its commits shall be in force.
    pub(crate) fn repository_candidate(
        &self,
        id: &PartId,
        found: &Found,
        now: DateTime<Utc>,
    ) -> Result<Candidate, Unusable> {
        let refusal = |reason, problem| Refusal { reason, problems: vec![problem] };
        let source = self.parts.caches.policy_sources.get("", &id.source).ok_or_else(|| {
            let problem = Problem::at("metadata.name", format!("the PolicySource {} does not exist", id.source));
            Unusable::WithoutRight(refusal(Reason::SourceNotFound, problem))
        })?;
        let tenant = self.tenancy.named(&source.spec.tenant).ok_or_else(|| {
            let found = format!("the Tenant {} of the PolicySource {} does not exist", source.spec.tenant, id.source);
            Unusable::WithoutRight(refusal(Reason::TenantNotFound, Problem::at("spec.tenant", found)))
        })?;
        let hold = |revision: &str, reason, problem| Unusable::Held {
            tenant: Arc::clone(&tenant),
            revision: revision.to_owned(),
            refusal: refusal(reason, problem),
        };
        let head = &found.head;
        let texts = match pin_of(&source, id, now) {
            None => head.clone(),
            Some(pin) => {
                // What was found for a pin of before says nothing; the next look brings this one.
                let of_this = found.pinned.as_ref().filter(|(commit, _)| *commit == pin.revision);
                let found = of_this.map(|(_, found)| found.clone());
                let found = found.unwrap_or_else(|| Err(format!("commit {} is not fetched yet", pin.revision)));
                found.map_err(|why| hold(&pin.revision, Reason::RevisionNotFound, Problem::at("spec.pins", why)))?
            }
        };
        let may_rewrite = source.spec.git.as_ref().is_some_and(|git| git.allow_rewrite);
        let is_head = texts.revision == head.revision;
        if is_head && found.is_rewritten && !may_rewrite && !is_accepted(&source, &head.revision) {
            let found = format!("the head {} does not descend from the commit in force", head.revision);
            let expected = "one that does, or `tradeguard source accept`, or allowRewrite";
            return Err(hold(
                &head.revision,
                Reason::NotDescendant,
                Problem::expected("spec.git.branch", found, expected),
            ));
        }
        let scope = match tenant.class {
            Class::Core => Scope::Cluster,
            Class::Lab | Class::Compliance => Scope::Among(self.tenancy.namespaces_of(&self.parts.caches, &tenant)),
        };
        Ok(Candidate { tenant, texts, scope })
    }

    /// A revision of a whole source that would remove most of its policies waits for a person. None: it may come.
    pub(crate) fn mass_removal(&mut self, id: &PartId, active: &Active, now: DateTime<Utc>) -> Option<Rejected> {
        let before = self.definitions.part_mut(id).active.clone().filter(|_| id.is_repository())?;
        let removed = before.policies.keys().filter(|key| !active.policies.contains_key(*key)).count();
        let revision = &active.texts.revision;
        // A person who pins a commit has decided, as one who accepts it.
        let is_meant = self.parts.caches.policy_sources.get("", &id.source).is_some_and(|source| {
            is_accepted(&source, revision) || pin_of(&source, id, now).is_some_and(|pin| pin.revision == *revision)
        });
        if removed * 2 <= before.policies.len() || is_meant {
            return None;
        }
        let found = format!("would remove {removed} of {} policies", before.policies.len());
        let problem = Problem::expected("spec.git", found, "at most half, or `tradeguard source accept`");
        let refusal = Refusal { reason: Reason::MassRemoval, problems: vec![problem] };
        Some(reject(&active.texts, Some(Arc::clone(&active.tenant)), refusal, now))
    }
}

pub(crate) fn pin_of<'a>(source: &'a PolicySource, id: &PartId, now: DateTime<Utc>) -> Option<&'a Pin> {
    let part = id.part();
    source.spec.pins.iter().find(|pin| pin.part == part && pin.until.is_none_or(|until| now < until))
}

/// Whether a person took this revision upon themselves.
pub(crate) fn is_accepted(source: &PolicySource, revision: &str) -> bool {
    source.spec.accept.as_ref().is_some_and(|accept| accept.revision == revision)
}
