//! Gauges of state, computed at scrape from the published view: only what is, never a state that is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounter, IntGaugeVec, Opts};

use super::{Described, Options, VALID};
use crate::model::policy::PolicyKey;
use crate::model::view::{PolicyView, Processing, View};

pub(super) struct StateCollector {
    view: Box<dyn Fn() -> Arc<View> + Send + Sync>,
    options: Options,
    /// Only described, never filled: each scrape fills fresh ones.
    shapes: Gauges,
    dropped: IntCounter,
}

#[derive(Clone)]
struct Gauges {
    policies: IntGaugeVec,
    phases: IntGaugeVec,
    interventions: IntGaugeVec,
    policy_phase: IntGaugeVec,
    policy_reading: GaugeVec,
    policy_threshold: GaugeVec,
}

fn int_gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID)
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels).expect(VALID)
}

impl Gauges {
    fn new() -> Self {
        let signal = &["tenant", "policy_namespace", "policy_kind", "policy", "signal", "unit"];
        Self {
            policies: int_gauges(
                "tradeguard_policies",
                "Policies by what became of them.",
                &["tenant", "state", "reason"],
            ),
            phases: int_gauges("tradeguard_phases", "Policies by phase.", &["tenant", "phase"]),
            interventions: int_gauges(
                "tradeguard_interventions",
                "Interventions by kind of slot and phase.",
                &["slot", "phase"],
            ),
            policy_phase: int_gauges(
                "tradeguard_policy_phase",
                "1, with the phase that the policy is in.",
                &["tenant", "policy_namespace", "policy_kind", "policy", "phase"],
            ),
            policy_reading: gauges("tradeguard_policy_reading", "The last reading, in base units.", signal),
            policy_threshold: gauges("tradeguard_policy_threshold", "The threshold, in base units.", signal),
        }
    }

    fn collectors(&self) -> [&dyn Collector; 6] {
        [
            &self.policies,
            &self.phases,
            &self.interventions,
            &self.policy_phase,
            &self.policy_reading,
            &self.policy_threshold,
        ]
    }
}

fn dropped() -> IntCounter {
    let name = "tradeguard_metrics_series_dropped_total";
    IntCounter::new(name, "Series with a policy's name that were left out of a scrape because of the cap.")
        .expect(VALID)
}

/// The state gauges for the catalogue.
pub(super) fn catalogue() -> Vec<Described> {
    let gauges = Gauges::new();
    let dropped = dropped();
    let described = |kind, desc: &Desc| Described {
        name: desc.fq_name.clone(),
        kind,
        labels: desc.variable_labels.clone(),
        help: desc.help.clone(),
    };
    let all = gauges.collectors();
    all.iter()
        .flat_map(|gauge| gauge.desc())
        .map(|desc| described("gauge", desc))
        .chain(dropped.desc().into_iter().map(|desc| described("counter", desc)))
        .collect()
}

impl StateCollector {
    pub(super) fn new(view: Box<dyn Fn() -> Arc<View> + Send + Sync>, options: Options) -> Self {
        Self { view, options, shapes: Gauges::new(), dropped: dropped() }
    }

    fn fill(&self, view: &View) -> Gauges {
        let gauges = Gauges::new();
        for policy in view.policies.values() {
            let state = policy.processing.as_str();
            gauges.policies.with_label_values(&[policy.tenant.name.as_str(), state, policy.reason.as_str()]).inc();
            gauges.phases.with_label_values(&[policy.tenant.name.as_str(), policy.phase.as_str()]).inc();
        }
        // A policy whose text was never good is rejected like one whose newest text is not.
        let rejected = Processing::Rejected.as_str();
        for ((tenant, reason), count) in &view.unmade {
            gauges.policies.with_label_values(&[tenant.as_str(), rejected, reason.as_str()]).add(i64::from(*count));
        }
        let mut interventions = BTreeMap::<_, i64>::new();
        for (slot, phase) in &view.interventions {
            *interventions.entry((slot.kind(), format!("{phase:?}"))).or_default() += 1;
        }
        for ((slot, phase), count) in interventions {
            gauges.interventions.with_label_values(&[slot, phase.as_str()]).set(count);
        }
        if self.options.policy_label {
            let mut left = self.options.max_policy_series;
            for (key, policy) in &view.policies {
                let wanted = 1 + policy.signals.len() * 2;
                if wanted > left {
                    self.dropped.inc_by(wanted as u64);
                    continue;
                }
                left -= wanted;
                fill_policy(&gauges, key, policy);
            }
        }
        gauges
    }
}

fn fill_policy(gauges: &Gauges, key: &PolicyKey, policy: &PolicyView) {
    let of = [policy.tenant.name.as_str(), key.namespace.as_str(), key.kind.as_str(), key.name.as_str()];
    let [tenant, namespace, kind, name] = of;
    gauges.policy_phase.with_label_values(&[tenant, namespace, kind, name, policy.phase.as_str()]).set(1);
    for (signal, view) in &policy.signals {
        // A signal without a reading has no series: an absent value is not zero.
        if let Ok(reading) = &view.reading {
            let labels = [tenant, namespace, kind, name, signal.as_str(), reading.unit.symbol()];
            gauges.policy_reading.with_label_values(&labels).set(reading.value);
        }
        if let Some(threshold) = &view.threshold {
            let labels = [tenant, namespace, kind, name, signal.as_str(), threshold.unit.symbol()];
            gauges.policy_threshold.with_label_values(&labels).set(threshold.value);
        }
    }
}

impl Collector for StateCollector {
    fn desc(&self) -> Vec<&Desc> {
        let mut descs: Vec<&Desc> = Vec::new();
        descs.extend(self.shapes.policies.desc());
        descs.extend(self.shapes.phases.desc());
        descs.extend(self.shapes.interventions.desc());
        descs.extend(self.shapes.policy_phase.desc());
        descs.extend(self.shapes.policy_reading.desc());
        descs.extend(self.shapes.policy_threshold.desc());
        descs.extend(self.dropped.desc());
        descs
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauges = self.fill(&(self.view)());
        let mut families: Vec<MetricFamily> = gauges.collectors().iter().flat_map(|gauge| gauge.collect()).collect();
        families.extend(self.dropped.collect());
        families
    }
}
