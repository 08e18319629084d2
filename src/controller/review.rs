//! From a changed object to what is in force: whose it is, whether it is valid, and its compiled rule.
//!
//! A text that is not valid changes nothing but the conditions: the last good one stays in force.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tracing::{info, warn};

use crate::api::AnyPolicy;
use crate::controller::definitions::PartId;
use crate::controller::engine::{Done, Engine, LOOP};
use crate::controller::governed::{Governed, Refusal, Report, TextId};
use crate::controller::mirror::mirrored_part;
use crate::controller::tenancy::Ambiguous;
use crate::decide::{self, Entry, Invalid, Surroundings};
use crate::model::phase::State;
use crate::model::policy::{Draft, PolicyKey, PolicyKind, RuleRef};
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::rego::Rule;
use crate::sources::trial;
use crate::telemetry::metrics::ReconcileResult;

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
            let Some(governed) = self.registry.get(&key) else { continue };
            let tenant = Arc::clone(&governed.tenant);
            match &governed.text {
                TextId::ByHand(_) => self.validate(&key, &tenant, now),
                TextId::Defined { .. } | TextId::Unknown => {
                    let Some(mut entry) = governed.entry.as_deref().cloned() else { continue };
                    entry.rule = self.parts.latency_rule.borrow().clone();
                    self.put_in_force(&key, entry, now);
                }
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
            self.reconcile(&key, now);
        }
    }

    /// Looks at one policy again, and counts that.
    pub(crate) fn reconcile(&mut self, key: &PolicyKey, now: DateTime<Utc>) {
        let running = self.parts.metrics.reconcile_started(LOOP);
        self.review(key, now);
        let refused = self.registry.get(key).is_some_and(|governed| governed.refusal.is_some());
        running.finish(if refused { ReconcileResult::Error } else { ReconcileResult::Success });
        if refused {
            // Nothing but another text helps: it is not tried again.
            self.parts.metrics.terminal_error(LOOP);
        }
    }

    /// Looks at one policy again: its object, and what sources define under its name.
    fn review(&mut self, key: &PolicyKey, now: DateTime<Utc>) {
        let Some(object) = self.object(key) else {
            if self.registry.remove(key).is_some() {
                self.show(key);
                self.replan = true;
            }
            return self.keep_mirror(key, now);
        };
        match (self.definitions.winner(key), mirrored_part(&object)) {
            (Some(in_force), mirrors) if in_force.adopts() || mirrors.is_some() => {
                self.review_defined(key, object, now);
            }
            (None, Some(part)) => self.review_orphan(key, object, &part, now),
            _ => self.review_by_hand(key, object, now),
        }
    }

    /// A policy whose text is the object's own.
    fn review_by_hand(&mut self, key: &PolicyKey, object: AnyPolicy, now: DateTime<Utc>) {
        let (tenant, ambiguous) = match self.tenancy.of(&self.parts.caches, &key.namespace) {
            Ok(tenant) => (tenant, None),
            Err(ambiguous) => (self.tenancy.built_in(), Some(ambiguous)),
        };
        let text = TextId::ByHand(object.generation());
        let settled = self.take_object(key, object, &tenant, text, now) && ambiguous.is_none();
        if settled {
            return;
        }
        match ambiguous {
            Some(Ambiguous(names)) => {
                let message = format!("the namespace is selected by the Tenants {}; expected one", names.join(", "));
                let problem = Problem::at("metadata.namespace", message);
                self.refuse(key, Refusal { reason: Reason::TenantAmbiguous, problems: vec![problem] });
            }
            None => self.validate(key, &tenant, now),
        }
    }

    /// A policy whose text is a source's; the object only shows it.
    fn review_defined(&mut self, key: &PolicyKey, object: AnyPolicy, now: DateTime<Utc>) {
        self.keep_mirror(key, now);
        let Some(in_force) = self.definitions.winner(key) else { return };
        let tenant = Arc::clone(&in_force.active.tenant);
        let text = TextId::Defined { part: in_force.id.clone(), revision: in_force.active.texts.revision.clone() };
        let mut entry = in_force.definition.entry.for_object(object.uid(), object.generation());
        let refusal = self.definitions.refusal_of(in_force.id);
        if !self.take_object(key, object, &tenant, text, now) {
            // A rule that was replaced since the snapshot was compiled.
            if entry.policy.rule == RuleRef::LatencyBudget {
                entry.rule = self.parts.latency_rule.borrow().clone();
            }
            self.put_in_force(key, entry, now);
        }
        // A newer text that was refused is told on every policy whose last good text stays in force because of it.
        match refusal {
            Some(refusal) => self.refuse(key, refusal),
            None => self.forget_refusal(key),
        }
    }

    /// A mirror without a text: of a source that has said nothing yet, or that no longer defines it.
    fn review_orphan(&mut self, key: &PolicyKey, object: AnyPolicy, part: &PartId, now: DateTime<Utc>) {
        // A repository that was not read yet may still define it.
        let is_unread = self.fetches.follows(part) && self.definitions.part(part).is_none();
        if !is_unread && self.definitions.is_over(part) {
            self.drop_mirror(key, &object, now);
        }
        let known = self.registry.get(key).filter(|governed| governed.object.uid() == object.uid());
        let (tenant, text) = match known {
            // What was in force stays so until its effects are undone.
            Some(governed) => (Arc::clone(&governed.tenant), governed.text.clone()),
            None => (self.tenancy.built_in(), TextId::Unknown),
        };
        self.take_object(key, object, &tenant, text, now);
    }

    /// Takes in the object as it is now. False where its text is not the one in force, so that something is to be done
    /// about it.
    fn take_object(
        &mut self,
        key: &PolicyKey,
        object: AnyPolicy,
        tenant: &Arc<Tenant>,
        text: TextId,
        now: DateTime<Utc>,
    ) -> bool {
        match self.registry.get_mut(key) {
            // A policy that was deleted and made anew is another one, though its name is the same.
            Some(governed) if governed.object.uid() == object.uid() => {
                let is_defined = matches!(text, TextId::Defined { .. });
                let same = governed.text == text && governed.tenant == *tenant;
                let settled = same && (is_defined || governed.refusal.is_none());
                let deletion_began = governed.object.is_being_deleted() != object.is_being_deleted();
                if governed.object.core().target_ref != object.core().target_ref {
                    governed.target = Arc::new((&object.core().target_ref).into());
                }
                governed.object = object;
                governed.text = text;
                if governed.tenant != *tenant {
                    // What is measured may depend on it.
                    governed.resolved = None;
                }
                governed.tenant = Arc::clone(tenant);
                if deletion_began {
                    self.replan = true;
                    self.registry.want_report(key);
                }
                if settled {
                    return true;
                }
            }
            _ => {
                let governed = Governed::new(object, Arc::clone(tenant), text, now);
                self.registry.insert(key.clone(), governed);
            }
        }
        self.replan = true;
        false
    }

    pub(crate) fn object(&self, key: &PolicyKey) -> Option<AnyPolicy> {
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
        let (uid, generation) = (draft.uid.clone(), draft.generation);
        let (key, tenant, rules) = (key.clone(), Arc::clone(tenant), self.rules());
        // Most texts need nobody's help, and take force without a turn through the tasks.
        let mut preparing = Box::pin(async move { prepare(&draft, spec, &tenant, &rules).await });
        match futures::FutureExt::now_or_never(&mut preparing) {
            Some(entry) => self.compiled(Compiled { key, uid, generation, entry }, now),
            None => {
                self.tasks.spawn(async move {
                    let entry = preparing.await;
                    Done::Compiled(Box::new(Compiled { key, uid, generation, entry }))
                });
            }
        }
    }

    /// What texts are compiled with now.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            surroundings: Arc::clone(&self.parts.options.surroundings),
            latency: self.parts.latency_rule.borrow().clone(),
            trial_program: self.parts.options.trial_program.clone(),
        }
    }

    /// Puts a valid text in force, unless the object has changed meanwhile.
    pub(crate) fn compiled(&mut self, compiled: Compiled, now: DateTime<Utc>) {
        let Compiled { key, uid, generation, entry } = compiled;
        let Some(governed) = self.registry.get_mut(&key) else { return };
        if governed.object.uid() != uid || governed.text != TextId::ByHand(generation) {
            return;
        }
        match entry {
            Ok(entry) => self.put_in_force(&key, entry, now),
            Err(refusal) => self.refuse(&key, refusal),
        }
    }

    fn put_in_force(&mut self, key: &PolicyKey, entry: Entry, now: DateTime<Utc>) {
        let Some(governed) = self.registry.get_mut(key) else { return };
        if let Some(old) = &governed.entry {
            governed.state = decide::carry_over(&old.policy, &entry.policy, &governed.state, now);
        }
        governed.entry = Some(Arc::new(entry));
        governed.refusal = None;
        governed.resolved = None;
        info!(
            reconciler = LOOP,
            request = %key,
            tenant = %governed.tenant.name,
            policy = key.name,
            revision = governed.revision(),
            "policy in force"
        );
        self.registry.want_report(key);
        // At once, on the newest text: a change takes effect in about a second, not in an interval.
        self.registry.schedule(key, now);
        self.show(key);
        self.replan = true;
    }

    fn forget_refusal(&mut self, key: &PolicyKey) {
        let refused = self.registry.get_mut(key).and_then(|governed| governed.refusal.take());
        if refused.is_some() {
            self.registry.want_report(key);
            self.show(key);
        }
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

/// What texts are compiled with.
#[derive(Clone)]
pub(crate) struct Rules {
    surroundings: Arc<Surroundings>,
    latency: Rule,
    trial_program: Option<PathBuf>,
}

#[cfg(test)]
impl Rules {
    /// For policies over one kind of target.
    pub(crate) fn for_kind(api_version: &str, kind: &str) -> Self {
        let target_kinds = [(api_version.to_owned(), kind.to_owned())].into();
        let surroundings = Arc::new(Surroundings { target_kinds, ..Surroundings::default() });
        Self { surroundings, latency: Rule::shipped_latency_budget(), trial_program: None }
    }
}

/// From a text to a policy that can be judged: validated, its own rule tried in a child process first. `spec` is the
/// text's, with defaults.
pub(crate) async fn prepare(draft: &Draft, spec: Value, tenant: &Arc<Tenant>, rules: &Rules) -> Result<Entry, Refusal> {
    let surroundings = Arc::clone(&rules.surroundings);
    let policy = Arc::new(decide::validate(draft, &surroundings, tenant)?);
    let tenant = Arc::clone(tenant);
    let RuleRef::Own(own) = policy.rule.clone() else {
        return Ok(Entry::with_rule(policy, tenant, surroundings, &spec, rules.latency.clone()));
    };
    trial::run(rules.trial_program.as_deref(), &own)
        .await
        .map_err(|error| refusal(Problem::at("spec.rule.module", error.to_string())))?;
    let compile = move || Entry::compile(policy, tenant, surroundings, &spec).map_err(Refusal::from);
    let compiled = tokio::task::spawn_blocking(compile).await;
    compiled.unwrap_or_else(|_| Err(refusal(Problem::at("spec.rule.module", "could not be compiled"))))
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
    fn new(object: AnyPolicy, tenant: Arc<Tenant>, text: TextId, now: DateTime<Utc>) -> Self {
        // What status says is where it stood: an engine that starts goes on from there.
        let status = object.status();
        let persisted = status.state();
        let report = Report { conditions: status.conditions, ..Report::default() };
        Self {
            state: persisted.clone().unwrap_or_else(|| State::new(now)),
            persisted,
            history: status.history,
            target: Arc::new((&object.core().target_ref).into()),
            object,
            tenant,
            text,
            entry: None,
            refusal: None,
            resolved: None,
            ask: None,
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
