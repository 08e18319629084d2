//! A policy, its tenant and its rule, compiled together: all that judging needs, made once per change.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::model::phase::State;
use crate::model::policy::{Action, Enforcement, Policy, RuleRef};
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::rego::{Document, Limits, Module, Rule};

use super::validate::{self, Invalid, Surroundings};

/// A policy that can be judged. A clone copies pointers.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is asked for.
    pub policy: Arc<Policy>,
    /// Who asks.
    pub tenant: Arc<Tenant>,
    /// Who judges.
    pub rule: Rule,
    pub(super) policy_document: Document,
    pub(super) tenant_document: Document,
    surroundings: Arc<Surroundings>,
}

impl Entry {
    /// Compiles the policy's rule. `spec` is the object's spec as written, which rules see as `input.policy.spec`.
    /// A rule that the gate refuses is [`Reason::InvalidRule`] at `spec.rule.module`, with file, line and column.
    pub fn compile(
        policy: Arc<Policy>,
        tenant: Arc<Tenant>,
        surroundings: Arc<Surroundings>,
        spec: &Value,
    ) -> Result<Self, Invalid> {
        let rule = match &policy.rule {
            RuleRef::LatencyBudget => Rule::shipped_latency_budget(),
            RuleRef::Own(own) => {
                let module = Module::new("spec.rule.module", own.module.as_str());
                Rule::compile(&[module], &own.entrypoint, &Limits::default()).map_err(|error| Invalid {
                    reason: Reason::InvalidRule,
                    problems: vec![Problem::at("spec.rule", error.to_string())],
                })?
            }
        };
        Ok(Self::with_rule(policy, tenant, surroundings, spec, rule))
    }

    /// The policy under another rule than the one it names: a shipped rule that a user edited.
    pub fn with_rule(
        policy: Arc<Policy>,
        tenant: Arc<Tenant>,
        surroundings: Arc<Surroundings>,
        spec: &Value,
        rule: Rule,
    ) -> Self {
        let policy_document = Document::from_json(&json!({
            "kind": policy.key.kind.as_str(),
            "namespace": policy.key.namespace,
            "name": policy.key.name,
            "spec": spec,
        }));
        let tenant_document = Document::from_json(&json!({
            "name": tenant.name,
            "class": tenant.class.as_str(),
            "priority": tenant.priority,
        }));
        Self { policy, tenant, rule, policy_document, tenant_document, surroundings }
    }

    /// The same policy as this object has it in a cluster: its uid, and the generation that status is about.
    pub(crate) fn for_object(&self, uid: &str, generation: i64) -> Self {
        let policy = Policy { uid: uid.to_owned(), generation, ..(*self.policy).clone() };
        Self { policy: Arc::new(policy), ..self.clone() }
    }

    /// Whether the policy acts: its own word, or the tenant's if that is milder.
    pub fn enforcement(&self) -> Enforcement {
        self.policy.enforcement.min(self.tenant.enforcement)
    }

    /// The actions in force: those that the rule asked for when the breach was confirmed, for as long as the episode
    /// lasts, else the written ones.
    pub fn actions(&self, state: &State) -> Cow<'_, [Action]> {
        let replaced = state.replacement.as_ref().and_then(|written| self.replacement(written).ok());
        replaced.map_or(Cow::Borrowed(self.policy.actions.as_slice()), Cow::Owned)
    }

    /// Whether this is the very same compilation as `other`, so that all that a rule sees of policy and tenant is the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
            && Arc::ptr_eq(&self.tenant, &other.tenant)
            && self.rule.is(&other.rule)
    }

    /// The checks that written actions pass, for actions that a rule asks for.
    pub(super) fn replacement(&self, written: &Value) -> Result<Vec<Action>, Invalid> {
        validate::replacement("actions", written, &self.surroundings, &self.tenant)
    }
}
