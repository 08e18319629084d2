//! Which Pods of which workload go out of service: claims add up by precedence until a limit is reached.
//!
//! Silent points of the design, decided here:
//! - What counts against the percentage for one Pod more: Pods that are isolated or not ready (work in flight counts
//!   as unhealthy). What stands is measured by isolated Pods alone, so that a crash elsewhere does not bring a bad
//!   Pod back; only `minHealthy` does.
//! - Within a claim the Pods that are out already come first, then new ones, worst first. Claims go by precedence, so
//!   that a core claim finds its budget whatever lab has isolated.
//! - Nothing new is isolated while its policy is recovering, nor in a storm; what is out stays.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::effect::{Desired, Record, Records};
use crate::model::facts::{self, Pod};
use crate::model::phase::Stage;
use crate::model::policy::{IsolationLimits, PolicyKey};
use crate::model::quantity::Percent;
use crate::model::reading::PodName;
use crate::model::reason::Reason;
use crate::model::slot::{Slot, WorkloadKey};

use super::budget::{Account, Budgets, Refusal};
use super::claims::Claim;

/// What a claim asks for.
pub(super) struct Wish<'a> {
    pub(super) suspects: &'a [PodName],
    pub(super) returned: &'a [PodName],
    pub(super) limits: IsolationLimits,
    pub(super) stage: Option<Stage>,
}

/// All governed workloads, and who of them is out of service in this plan.
pub(super) struct Wards {
    limits: Budgets,
    wards: BTreeMap<WorkloadKey, Ward>,
}

/// One workload.
#[derive(Default)]
pub(super) struct Ward {
    /// Its Pods, without those being deleted; none where they cannot be told now.
    pods: Option<BTreeMap<PodName, Pod>>,
    /// Out of service by the record.
    before: BTreeSet<PodName>,
    /// Out of service by this plan.
    pub(super) chosen: BTreeSet<PodName>,
    /// Whether this plan adds to what was out.
    pub(super) grows: bool,
    /// Whose claims put Pods here, in order of precedence.
    pub(super) contributors: Vec<PolicyKey>,
}

impl Wards {
    /// The workloads of all facts and records; nothing is chosen yet but what `stays`.
    pub(super) fn new<'a>(
        budgets: &Budgets,
        facts: impl Iterator<Item = &'a facts::Target>,
        records: &Records,
        stays: impl Fn(&Record) -> bool,
    ) -> Self {
        let mut wards: BTreeMap<WorkloadKey, Ward> = BTreeMap::new();
        for workload in facts.filter_map(|target| target.workload.as_ref().ok()) {
            let ward = wards.entry(workload.key.clone()).or_default();
            let pods = ward.pods.get_or_insert_default();
            let there = workload.pods.iter().filter(|(_, pod)| !pod.terminating);
            pods.extend(there.map(|(name, pod)| (name.clone(), pod.clone())));
        }
        for record in records.values().filter(|record| record.stands()) {
            if let (Slot::Isolation { workload }, Desired::Isolated(pods)) = (&record.slot, &record.desired) {
                let ward = wards.entry(workload.clone()).or_default();
                ward.before.extend(pods.iter().cloned());
                if stays(record) {
                    ward.chosen.extend(pods.iter().cloned());
                }
            }
        }
        Self { limits: *budgets, wards }
    }

    pub(super) fn into_wards(self) -> BTreeMap<WorkloadKey, Ward> {
        self.wards
    }

    /// Chooses for one claim. What it does not get comes back as refusals, each reason once.
    pub(super) fn choose(
        &mut self,
        workload: &WorkloadKey,
        claim: &Claim,
        wish: &Wish<'_>,
        account: &mut Account,
    ) -> Vec<Refusal> {
        let mut refusals: BTreeMap<Reason, String> = BTreeMap::new();
        let ward = self.wards.entry(workload.clone()).or_default();
        let before = ward.before.clone();
        if ward.pods.is_none() {
            let stays = wish.suspects.iter().filter(|pod| before.contains(*pod)).cloned();
            let stays: Vec<PodName> = stays.collect();
            if !stays.is_empty() {
                ward.contribute(&claim.holder.policy);
            }
            ward.chosen.extend(stays);
            return vec![(Reason::NoWorkload, "the Pods cannot be told now: what is isolated stays so".to_owned())];
        }
        let storm = ward.storm(wish);
        for pod in wish.suspects.iter().filter(|pod| before.contains(*pod)) {
            if let Err((reason, message)) = self.keep(workload, pod, wish.limits) {
                refusals.entry(reason).or_insert(message);
            }
        }
        let fresh = wish.suspects.iter().filter(|pod| !before.contains(*pod) && wish.stage.is_none());
        for pod in fresh {
            let added = match &storm {
                Some(message) => Err((Reason::Storm, message.clone())),
                None => self.add(workload, pod, claim, wish.limits, account),
            };
            if let Err((reason, message)) = added {
                refusals.entry(reason).or_insert(message);
            }
        }
        if let Some(ward) = self.wards.get_mut(workload)
            && wish.suspects.iter().any(|pod| ward.chosen.contains(pod))
        {
            ward.contribute(&claim.holder.policy);
        }
        refusals.into_iter().collect()
    }

    /// A Pod that is out stays out, as long as the limits allow it.
    fn keep(&mut self, workload: &WorkloadKey, pod: &PodName, limits: IsolationLimits) -> Result<(), Refusal> {
        let engine = self.limits.workload;
        let Some(ward) = self.wards.get_mut(workload) else { return Ok(()) };
        if ward.chosen.contains(pod) || !ward.has(pod) {
            return Ok(());
        }
        ward.percentage(limits.max_percent.min(engine.max_percent), ward.chosen.len())?;
        ward.min_healthy(pod, limits.min_healthy.max(engine.min_healthy))?;
        self.spread(workload)?;
        self.put(workload, pod);
        Ok(())
    }

    fn add(
        &mut self,
        workload: &WorkloadKey,
        pod: &PodName,
        claim: &Claim,
        limits: IsolationLimits,
        account: &mut Account,
    ) -> Result<(), Refusal> {
        let engine = self.limits.workload;
        let Some(ward) = self.wards.get_mut(workload) else { return Ok(()) };
        if ward.chosen.contains(pod) {
            return Ok(());
        }
        let Some(found) = ward.pods.as_ref().and_then(|pods| pods.get(pod)) else { return Ok(()) };
        if let Err(reason) = found.isolable
            && reason != Reason::WillBeReplaced
        {
            return Err((reason, format!("nothing can take Pod `{pod}` out of service without harm")));
        }
        ward.percentage(limits.max_percent.min(engine.max_percent), ward.out_without(pod))?;
        ward.min_healthy(pod, limits.min_healthy.max(engine.min_healthy))?;
        let grows = ward.grows;
        self.spread(workload)?;
        if !grows {
            account.admit(claim)?;
        }
        self.put(workload, pod);
        if let Some(ward) = self.wards.get_mut(workload) {
            ward.grows = true;
        }
        Ok(())
    }

    fn put(&mut self, workload: &WorkloadKey, pod: &PodName) {
        if let Some(ward) = self.wards.get_mut(workload) {
            ward.chosen.insert(pod.clone());
        }
    }

    /// Whether namespace and cluster have room for one isolated Pod more.
    fn spread(&self, workload: &WorkloadKey) -> Result<(), Refusal> {
        let namespace = self.wards.iter().filter(|(key, _)| key.namespace == workload.namespace);
        let what = format!("governed Pods of namespace {}", workload.namespace);
        room(&what, self.limits.namespace_percent, namespace.map(|(_, ward)| ward))?;
        room("governed Pods of the cluster", self.limits.cluster_percent, self.wards.values())
    }
}

fn room<'a>(what: &str, percent: Percent, wards: impl Iterator<Item = &'a Ward>) -> Result<(), Refusal> {
    let (pods, out) = wards.fold((0_usize, 0_usize), |(pods, out), ward| {
        let of_ward = ward.pods.as_ref().map_or(ward.chosen.len(), BTreeMap::len);
        (pods.saturating_add(of_ward), out.saturating_add(ward.chosen.len()))
    });
    let allowed = percent.of(pods);
    if out < allowed { Ok(()) } else { Err((Reason::IsolationBudget, share(percent, pods, what, allowed, out, ""))) }
}

/// `34 % of 2 Pods is none`, `34 % of 3 Pods is 1, and 1 is isolated already`.
fn share(percent: Percent, pods: usize, what: &str, allowed: usize, out: usize, or: &str) -> String {
    let what = if pods == 1 { what.replacen("Pods", "Pod", 1) } else { what.to_owned() };
    let whole = format!("{} % of {pods} {what}", percent.get());
    match (allowed, out) {
        (0, _) => format!("{whole} is none"),
        (allowed, 1) => format!("{whole} is {allowed}, and 1 is isolated{or} already"),
        (allowed, out) => format!("{whole} is {allowed}, and {out} are isolated{or} already"),
    }
}

impl Ward {
    fn has(&self, pod: &str) -> bool {
        self.pods.as_ref().is_some_and(|pods| pods.contains_key(pod))
    }

    fn there(&self) -> impl Iterator<Item = (&PodName, &Pod)> {
        self.pods.iter().flatten()
    }

    fn contribute(&mut self, policy: &PolicyKey) {
        if !self.contributors.contains(policy) {
            self.contributors.push(policy.clone());
        }
    }

    /// Said when every Pod is held responsible. A sole Pod is not: what keeps it in service is the percentage.
    fn storm(&self, wish: &Wish<'_>) -> Option<String> {
        let count = self.there().count();
        let bad = |pod: &PodName| wish.suspects.contains(pod) || wish.returned.contains(pod);
        (count >= 2 && self.there().all(|(pod, _)| bad(pod)))
            .then(|| format!("all {count} Pods are suspect: isolating some would only load the others"))
    }

    fn percentage(&self, percent: Percent, out: usize) -> Result<(), Refusal> {
        let pods = self.there().count();
        let allowed = percent.of(pods);
        let words = || share(percent, pods, "Pods", allowed, out, " or not ready");
        if out < allowed { Ok(()) } else { Err((Reason::IsolationBudget, words())) }
    }

    /// Pods that are out of service in this plan or not ready, but for this one.
    fn out_without(&self, pod: &str) -> usize {
        self.there().filter(|(name, found)| *name != pod && (!found.ready || self.chosen.contains(*name))).count()
    }

    fn min_healthy(&self, pod: &str, least: usize) -> Result<(), Refusal> {
        let serving = |name: &PodName, found: &Pod| found.ready && !self.chosen.contains(name);
        let left = self.there().filter(|(name, found)| *name != pod && serving(name, found)).count();
        let changes = self.there().any(|(name, found)| name == pod && serving(name, found));
        if left >= least || !changes {
            return Ok(());
        }
        let message = format!("only {left} ready Pods would stay in service; expected at least {least}");
        Err((Reason::IsolationBudget, message))
    }
}
