//! Who is before whom: the total order of claims, which depends on nothing but the claims themselves.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};

use crate::model::policy::{Origin, Policy};
use crate::model::tenant::{Class, Tenant};

/// A claim's place in the order; the smaller one wins. The fields decide in the order written, and the last ones
/// tell any two claims apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    class: Rank,
    priority: Reverse<i32>,
    /// For core alone: Git before the rest.
    origin: Option<Origin>,
    newest: Reverse<Option<DateTime<Utc>>>,
    namespace: String,
    name: String,
    kind: &'static str,
    action: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Core,
    Lab,
    /// Never claims anything; last, should it ever.
    Compliance,
}

impl Precedence {
    /// The place of the action at `action` of a policy. The policy's time of change is expected to lie in the past:
    /// whoever observes it leaves out times of the future.
    pub fn of(policy: &Policy, tenant: &Tenant, action: usize) -> Self {
        let class = match tenant.class {
            Class::Core => Rank::Core,
            Class::Lab => Rank::Lab,
            Class::Compliance => Rank::Compliance,
        };
        Self {
            class,
            priority: Reverse(tenant.priority),
            origin: (class == Rank::Core).then_some(policy.origin),
            newest: Reverse((class == Rank::Lab).then_some(policy.changed_at)),
            namespace: policy.key.namespace.clone(),
            name: policy.key.name.clone(),
            kind: policy.key.kind.as_str(),
            action,
        }
    }

    /// Whether the claim is one of a core tenant.
    pub fn is_core(&self) -> bool {
        self.class == Rank::Core
    }
}
