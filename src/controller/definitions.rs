//! What sources define: the parts that are known, the revision of each that is in force, and which of several texts of one
//! policy wins.
//!
//! Pure bookkeeping; `sourcing` fills it, `review` asks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::api::AnyPolicy;
use crate::controller::governed::Refusal;
use crate::decide::{Entry, Precedence};
use crate::model::policy::PolicyKey;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::{Class, Tenant};
use crate::sources::snapshot::Texts;

/// One part of a source: a ConfigMap, or a repository as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartId {
    /// Name of the PolicySource.
    pub(crate) source: String,
    /// Namespace of the ConfigMap, in which all its policies lie; empty for a repository.
    pub(crate) namespace: String,
    /// Name of the ConfigMap; `git` for a repository.
    pub(crate) name: String,
}

const REPOSITORY: &str = "git";

impl PartId {
    /// The one part of a source that is a repository.
    pub(crate) fn repository(source: &str) -> Self {
        Self { source: source.to_owned(), namespace: String::new(), name: REPOSITORY.to_owned() }
    }

    pub(crate) fn is_repository(&self) -> bool {
        self.namespace.is_empty()
    }

    /// As status and pins name it within its source.
    pub(crate) fn part(&self) -> String {
        if self.is_repository() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

/// A part as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// What is in force.
    pub(crate) active: Option<Arc<Active>>,
    /// What was refused, while nothing newer came into force.
    pub(crate) rejected: Option<Rejected>,
    /// The attempt that is under way; the answer to any other comes too late.
    pub(crate) trying: Option<Attempt>,
}

/// What is tried: this content on behalf of this tenant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) revision: String,
    pub(crate) tenant: Arc<Tenant>,
}

/// A revision in force: every text valid and compiled.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) texts: Texts,
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) since: DateTime<Utc>,
    pub(crate) policies: BTreeMap<PolicyKey, Definition>,
}

/// One policy of a snapshot.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The text with defaults filled in.
    pub(crate) object: AnyPolicy,
    /// Compiled; its uid is empty until an object mirrors it.
    pub(crate) entry: Arc<Entry>,
}

/// A revision that was refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rejected {
    pub(crate) revision: String,
    /// On whose behalf it was tried; none where it is not clear whose it would be.
    pub(crate) tenant: Option<Arc<Tenant>>,
    pub(crate) at: DateTime<Utc>,
    pub(crate) reason: Reason,
    pub(crate) problems: Vec<Problem>,
    /// How many policies it means to hold.
    pub(crate) policies: u32,
}

impl Part {
    /// Whether this content was judged already for this tenant, or is being judged.
    pub(crate) fn knows(&self, revision: &str, tenant: &Arc<Tenant>) -> bool {
        let active =
            self.active.as_ref().is_some_and(|active| active.texts.revision == revision && active.tenant == *tenant);
        let rejected = self
            .rejected
            .as_ref()
            .is_some_and(|rejected| rejected.revision == revision && rejected.tenant.as_ref() == Some(tenant));
        let trying = self.trying.as_ref().is_some_and(|trying| trying.revision == revision && trying.tenant == *tenant);
        trying || (self.trying.is_none() && (rejected || (active && self.rejected.is_none())))
    }

    /// How many policies are not in force as their newest text has them.
    pub(crate) fn unprocessed(&self) -> u32 {
        let active = self.active.as_ref().map_or(0, |active| count(active.policies.len()));
        self.rejected.as_ref().map_or(0, |rejected| rejected.policies.max(active))
    }
}

pub(crate) fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// All parts of all sources.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    parts: BTreeMap<PartId, Part>,
    names: BTreeMap<PolicyKey, BTreeSet<PartId>>,
}

impl Definitions {
    pub(crate) fn part(&self, id: &PartId) -> Option<&Part> {
        self.parts.get(id)
    }

    pub(crate) fn part_mut(&mut self, id: &PartId) -> &mut Part {
        self.parts.entry(id.clone()).or_default()
    }

    /// Every part.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&PartId, &Part)> {
        self.parts.iter()
    }

    /// Every policy that some part defines.
    pub(crate) fn keys(&self) -> Vec<PolicyKey> {
        self.names.keys().cloned().collect()
    }

    /// Puts a revision in force, whole. Returns the policies whose text may be another one now.
    pub(crate) fn swap(&mut self, id: &PartId, active: Arc<Active>) -> BTreeSet<PolicyKey> {
        let mut touched: BTreeSet<PolicyKey> = active.policies.keys().cloned().collect();
        let part = self.parts.entry(id.clone()).or_default();
        let before = part.active.replace(active);
        touched.extend(before.iter().flat_map(|before| before.policies.keys().cloned()));
        for key in &touched {
            self.index(id, key);
        }
        touched
    }

    /// Forgets a part. Returns the policies that it defined.
    pub(crate) fn remove(&mut self, id: &PartId) -> BTreeSet<PolicyKey> {
        let before = self.parts.remove(id).and_then(|part| part.active);
        let touched: BTreeSet<PolicyKey> = before.iter().flat_map(|before| before.policies.keys().cloned()).collect();
        for key in &touched {
            self.index(id, key);
        }
        touched
    }

    fn index(&mut self, id: &PartId, key: &PolicyKey) {
        let defines =
            self.parts.get(id).and_then(|part| part.active.as_ref()).is_some_and(|a| a.policies.contains_key(key));
        if defines {
            self.names.entry(key.clone()).or_default().insert(id.clone());
        } else if let Some(parts) = self.names.get_mut(key) {
            parts.remove(id);
            if parts.is_empty() {
                self.names.remove(key);
            }
        }
    }

    /// The text of a policy that wins among all parts: by the order of its tenants' claims, then by the part's name. It
    /// depends on nothing else, such as who came first.
    pub(crate) fn winner(&self, key: &PolicyKey) -> Option<InForce<'_>> {
        let texts = self.names.get(key)?.iter().filter_map(|id| {
            let active = self.parts.get(id)?.active.as_deref()?;
            let definition = active.policies.get(key)?;
            Some(InForce { id, active, definition })
        });
        texts.min_by(|a, b| (a.precedence(), a.id).cmp(&(b.precedence(), b.id)))
    }

    /// Why the newest text of a part is not in force, if it is not.
    pub(crate) fn refusal_of(&self, id: &PartId) -> Option<Refusal> {
        let rejected = self.parts.get(id)?.rejected.as_ref()?;
        Some(Refusal { reason: rejected.reason, problems: rejected.problems.clone() })
    }

    /// How many policies some tenant wrote that are nowhere to be seen, since no text of them was ever good: by tenant and
    /// reason.
    pub(crate) fn unmade(&self) -> BTreeMap<(String, Reason), u32> {
        let mut unmade = BTreeMap::new();
        for part in self.parts.values() {
            let Some(Rejected { tenant: Some(tenant), reason, policies, .. }) = &part.rejected else { continue };
            let seen = part.active.as_ref().map_or(0, |active| count(active.policies.len()));
            let missing = policies.saturating_sub(seen);
            if missing > 0 {
                *unmade.entry((tenant.name.clone(), *reason)).or_default() += missing;
            }
        }
        unmade
    }

    /// Whether a policy that the part does not define is one that it will not define either: the part is gone, or has no
    /// right to anything, or is known. Of a part that is being read, or that has nothing good, nobody can say.
    pub(crate) fn is_over(&self, id: &PartId) -> bool {
        let Some(part) = self.parts.get(id) else { return true };
        let has_no_right = part.rejected.as_ref().is_some_and(|rejected| rejected.tenant.is_none());
        part.active.is_some() || (part.trying.is_none() && has_no_right)
    }
}

/// A text that a source puts in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce<'a> {
    pub(crate) id: &'a PartId,
    pub(crate) active: &'a Active,
    pub(crate) definition: &'a Definition,
}

impl InForce<'_> {
    fn precedence(&self) -> Precedence {
        Precedence::of(&self.definition.entry.policy, &self.active.tenant, 0)
    }

    /// Whether it takes the place of an object that was applied by hand under its name. Others leave such an object alone.
    pub(crate) fn adopts(&self) -> bool {
        self.active.tenant.class == Class::Core
    }
}

#[cfg(test)]
mod tests;
