//! From a changed object to what is in force: whose it is, whether it is valid, and its compiled rule.
//!
//! A text that is not valid changes nothing but the conditions: the last good one stays in force.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tracing::{info, warn};

use crate::api::AnyPolicy;
use crate::controller::engine::{Done, Engine, LOOP};
use crate::controller::governed::{Governed, Refusal, Report};
use crate::controller::tenancy::Ambiguous;
use crate::decide::{self, Entry, Invalid};
use crate::model::phase::State;
use crate::model::policy::{PolicyKey, PolicyKind, RuleRef};
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::sources::trial;

/// A policy's own rule after its trial.
pub(crate) struct Compiled {
    key: PolicyKey,
    uid: String,
    generation: i64,
    entry: Result<Entry, Refusal>,
}

impl Engine {
    /// The latency rule itself was replaced: every policy that it judges is compiled anew.
    pub(crate) fn rule_replaced(&mut self, now: DateTime<Utc>) {
        let keys: Vec<PolicyKey> = self.registry.iter().map(|(key, _)| key.clone()).collect();
        for key in keys.into_iter().filter(|key| key.kind == PolicyKind::LatencyBudgetPolicy) {
            if let Some(tenant) = self.registry.get(&key).map(|governed| Arc::clone(&governed.tenant)) {
                self.validate(&key, &tenant, now);
            }
        }
    }

    /// Looks at every policy that is known or in the caches.
    pub(crate) fn review_all(&mut self, now: DateTime<Utc>) {
        let mut keys: Vec<PolicyKey> = self.registry.iter().map(|(key, _)| key.clone()).collect();
        keys.extend(self.parts.caches.latency_policies.all().into_iter().map(|policy| AnyPolicy::from(policy).key()));
        keys.extend(
            self.parts.caches.governance_policies.all().into_iter().map(|policy| AnyPolicy::from(policy).key()),
        );
        keys.sort();
        keys.dedup();
        for key in keys {
            self.review(&key, now);
        }
    }

    /// Looks at one policy's object again.
    pub(crate) fn review(&mut self, key: &PolicyKey, now: DateTime<Utc>) {
        let Some(object) = self.object(key) else {
            if self.registry.remove(key).is_some() {
                self.show(key);
                self.replan = true;
            }
            return;
        };
        let (tenant, ambiguous) = match self.tenancy.of(&self.parts.caches, &key.namespace) {
            Ok(tenant) => (tenant, None),
            Err(ambiguous) => (self.tenancy.built_in(), Some(ambiguous)),
        };
        match self.registry.get_mut(key) {
            // A policy that was deleted and made anew is another one, though its name is the same.
            Some(governed) if governed.object.uid() == object.uid() => {
                let same_text = governed.object.generation() == object.generation();
                let same_tenant = governed.tenant == tenant && ambiguous.is_none();
                let was_deleted = governed.object.is_being_deleted();
                governed.object = object;
                let deletion_began = was_deleted != governed.object.is_being_deleted();
                if deletion_began {
                    self.replan = true;
                }
                let settled = same_text && same_tenant && governed.refusal.is_none();
                governed.tenant = Arc::clone(&tenant);
                if deletion_began {
                    self.registry.want_report(key);
                }
                if settled {
                    return;
                }
            }
            _ => {
                let governed = Governed::new(object, Arc::clone(&tenant), now);
                self.registry.insert(key.clone(), governed);
            }
        }
        self.replan = true;
        match ambiguous {
            Some(Ambiguous(names)) => {
                let message = format!("the namespace is selected by the Tenants {}; expected one", names.join(", "));
                let problem = Problem::at("metadata.namespace", message);
                self.refuse(key, Refusal { reason: Reason::TenantAmbiguous, problems: vec![problem] });
            }
            None => self.validate(key, &tenant, now),
        }
    }

    fn object(&self, key: &PolicyKey) -> Option<AnyPolicy> {
        let (namespace, name) = (&key.namespace, &key.name);
        match key.kind {
            PolicyKind::LatencyBudgetPolicy => {
                self.parts.caches.latency_policies.get(namespace, name).map(AnyPolicy::from)
            }
            PolicyKind::GovernancePolicy => {
                self.parts.caches.governance_policies.get(namespace, name).map(AnyPolicy::from)
            }
        }
    }

    fn validate(&mut self, key: &PolicyKey, tenant: &Arc<Tenant>, now: DateTime<Utc>) {
        let Some(governed) = self.registry.get(key) else { return };
        let draft = governed.object.draft(now);
        let spec = governed.object.spec_json();
        let surroundings = Arc::clone(&self.parts.options.surroundings);
        let policy = match decide::validate(&draft, &surroundings, tenant) {
            Ok(policy) => policy,
            Err(invalid) => return self.refuse(key, invalid.into()),
        };
        let (uid, generation) = (policy.uid.clone(), policy.generation);
        let (key, tenant) = (key.clone(), Arc::clone(tenant));
        let RuleRef::Own(own) = policy.rule.clone() else {
            let rule = self.parts.latency_rule.borrow().clone();
            let entry = Entry::with_rule(Arc::new(policy), tenant, surroundings, &spec, rule);
            return self.compiled(Compiled { key, uid, generation, entry: Ok(entry) }, now);
        };
        let program = self.parts.options.trial_program.clone();
        self.tasks.spawn(async move {
            let compile = move || Entry::compile(Arc::new(policy), tenant, surroundings, &spec).map_err(Refusal::from);
            let entry = match trial::run(program.as_deref(), &own).await {
                Ok(()) => tokio::task::spawn_blocking(compile)
                    .await
                    .unwrap_or_else(|_| Err(refusal(Problem::at("spec.rule.module", "could not be compiled")))),
                Err(error) => Err(refusal(Problem::at("spec.rule.module", error.to_string()))),
            };
            Done::Compiled(Box::new(Compiled { key, uid, generation, entry }))
        });
    }

    /// Puts a valid text in force, unless the object has changed meanwhile.
    pub(crate) fn compiled(&mut self, compiled: Compiled, now: DateTime<Utc>) {
        let Compiled { key, uid, generation, entry } = compiled;
        let Some(governed) = self.registry.get_mut(&key) else { return };
        if governed.object.uid() != uid || governed.object.generation() != generation {
            return;
        }
        let entry = match entry {
            Ok(entry) => Arc::new(entry),
            Err(refusal) => return self.refuse(&key, refusal),
        };
        if let Some(old) = &governed.entry {
            governed.state = decide::carry_over(&old.policy, &entry.policy, &governed.state, now);
        }
        info!(
            reconciler = LOOP,
            request = %key,
            tenant = %governed.tenant.name,
            policy = key.name,
            generation,
            "policy in force"
        );
        governed.entry = Some(entry);
        governed.refusal = None;
        governed.resolved = None;
        self.registry.want_report(&key);
        // At once, on the newest text: a change takes effect in about a second, not in an interval.
        self.registry.schedule(&key, now);
        self.show(&key);
        self.replan = true;
    }

    fn refuse(&mut self, key: &PolicyKey, refusal: Refusal) {
        let Some(governed) = self.registry.get_mut(key) else { return };
        if governed.refusal.as_ref() == Some(&refusal) {
            return;
        }
        let kept = governed.entry.is_some();
        warn!(reconciler = LOOP, request = %key, tenant = %governed.tenant.name, policy = key.name, reason = %refusal.reason, problems = %refusal.message(), kept, "policy refused");
        governed.refusal = Some(refusal);
        self.registry.want_report(key);
        self.show(key);
    }
}

fn refusal(problem: Problem) -> Refusal {
    Refusal { reason: Reason::InvalidRule, problems: vec![problem] }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self { reason: invalid.reason, problems: invalid.problems }
    }
}

impl Governed {
    fn new(object: AnyPolicy, tenant: Arc<Tenant>, now: DateTime<Utc>) -> Self {
        // What status says is where it stood: an engine that starts goes on from there.
        let status = object.status();
        let persisted = status.state();
        let report = Report { conditions: status.conditions, ..Report::default() };
        Self {
            state: persisted.clone().unwrap_or_else(|| State::new(now)),
            persisted,
            history: status.history,
            object,
            tenant,
            entry: None,
            refusal: None,
            resolved: None,
            refused_before: None,
            target_document: None,
            scale: None,
            last: None,
            due: now,
            in_round: false,
            report,
        }
    }

    /// Its newest text is not valid and no good one is known (after a restart), so nothing can be said about what
    /// it wants: what stands, stands.
    pub(crate) fn keeps_what_stands(&self) -> bool {
        self.entry.is_none() && !self.object.is_being_deleted()
    }
}
