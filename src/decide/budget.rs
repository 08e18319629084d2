//! The limits that stand above any policy: how many effects may begin in a minute, how much may be isolated, and
//! what a freeze stops. Undoing is free.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use crate::model::effect::Records;
use crate::model::policy::{IsolationLimits, PolicyKey};
use crate::model::quantity::Percent;
use crate::model::reason::Reason;

use super::claims::Claim;

/// The engine's limits, from its configuration and the freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// New and growing effects a minute in the whole cluster.
    pub effects_per_minute: u32,
    /// How much of these lab tenants may use, all together.
    pub lab_share: Percent,
    /// What no policy may go beyond in a workload.
    pub workload: IsolationLimits,
    /// How many of a namespace's governed Pods may be isolated, rounded down.
    pub namespace_percent: Percent,
    /// How many of all governed Pods may be isolated, rounded down.
    pub cluster_percent: Percent,
    /// Whether people have stopped the engine.
    pub freeze: Freeze,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            effects_per_minute: 10,
            lab_share: Percent::HALF,
            workload: IsolationLimits { max_percent: Percent::ALL, min_healthy: 1 },
            namespace_percent: Percent::HALF,
            cluster_percent: Percent::HALF,
            freeze: Freeze::None,
        }
    }
}

/// What people have stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freeze {
    /// Nothing.
    #[default]
    None,
    /// New and growing effects.
    New,
    /// Every write: what stands, stands, and nothing is undone either.
    All,
}

/// A refusal: why, and in words.
pub(super) type Refusal = (Reason, String);

/// How many effects may still begin. Asked in the order of precedence.
pub(super) struct Account {
    freeze: Freeze,
    cluster: Allowance,
    lab: Allowance,
    tenants: BTreeMap<String, u64>,
}

#[derive(Clone, Copy)]
struct Allowance {
    limit: u64,
    used: u64,
}

impl Allowance {
    fn is_used_up(self) -> bool {
        self.used >= self.limit
    }
}

impl Account {
    /// What the last minute has left. Records whose holder claims nothing any more count as the lab's: it is not
    /// known whose they were, and a core tenant's limit is not touched by that.
    pub(super) fn at(budgets: &Budgets, records: &Records, claims: &[Claim], now: DateTime<Utc>) -> Self {
        let core: BTreeSet<&PolicyKey> =
            claims.iter().filter(|claim| claim.precedence.is_core()).map(|claim| &claim.holder.policy).collect();
        let limit = u64::from(budgets.effects_per_minute);
        let lab_limit = budgets.lab_share.of(usize::try_from(limit).unwrap_or(usize::MAX)) as u64;
        let mut account = Self {
            freeze: budgets.freeze,
            cluster: Allowance { limit, used: 0 },
            lab: Allowance { limit: lab_limit, used: 0 },
            tenants: BTreeMap::new(),
        };
        for record in records.values() {
            let starts = record.starts_at(now) as u64;
            account.charge(&record.holder.tenant, core.contains(&record.holder.policy), starts);
        }
        account
    }

    /// Charges one new or growing effect of `claim`, or says why it may not begin now.
    pub(super) fn admit(&mut self, claim: &Claim) -> Result<(), Refusal> {
        let is_core = claim.precedence.is_core();
        let tenant = &claim.holder.tenant;
        if self.freeze != Freeze::None {
            return Err((Reason::Frozen, "a freeze stops new and growing effects".to_owned()));
        }
        if self.cluster.is_used_up() {
            let message = format!("the cluster's {} effects a minute are used up", self.cluster.limit);
            return Err((Reason::EffectBudget, message));
        }
        if !is_core && self.lab.is_used_up() {
            let message = format!("the {} effects a minute of all lab tenants are used up", self.lab.limit);
            return Err((Reason::EffectBudget, message));
        }
        let used = self.tenants.get(tenant).copied().unwrap_or(0);
        if let Some(limit) = claim.budgets.effects_per_minute.filter(|limit| used >= u64::from(*limit)) {
            let message = format!("the {limit} effects a minute of tenant `{tenant}` are used up");
            return Err((Reason::EffectBudget, message));
        }
        self.charge(tenant, is_core, 1);
        Ok(())
    }

    fn charge(&mut self, tenant: &str, is_core: bool, effects: u64) {
        self.cluster.used = self.cluster.used.saturating_add(effects);
        if !is_core {
            self.lab.used = self.lab.used.saturating_add(effects);
        }
        let used = self.tenants.entry(tenant.to_owned()).or_default();
        *used = used.saturating_add(effects);
    }
}
