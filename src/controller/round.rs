//! One round for the policies that are due: find what they govern, measure it with few queries, judge it.
//!
//! Policies of one backend go together, so that a slow backend makes only its own wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt};
use tracing::{debug, info, warn};

use crate::controller::engine::{Done, Engine, LOOP};
use crate::controller::governed::{Governed, Round, ScaleSelector};
use crate::controller::resolve::{self, Resolved};
use crate::controller::watches::Served;
use crate::decide::{self, Before, Entry, Judgement, Origin, Standing, Turn};
use crate::model::facts;
use crate::model::phase::State;
use crate::model::policy::{PolicyKey, PolicyKind, SignalSource};
use crate::model::reading::{NoReading, Observation};
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::model::verdict::Outcome;
use crate::rego::{Document, Footprint};
use crate::signals::{Ask, PodRef};
use crate::telemetry::metrics::{EvaluationResult, Metrics, Step, VerdictOrigin};

/// One policy's way through a round.
struct Subject {
    key: PolicyKey,
    entry: Arc<Entry>,
    facts: Arc<facts::Target>,
    target: Document,
    standing: Standing,
    state: State,
    /// The round before.
    last: Option<Round>,
    /// None where there is nothing to measure.
    ask: Option<Arc<Ask>>,
}

/// What a round found for one policy.
pub(crate) struct Judged {
    key: PolicyKey,
    state_before: State,
    origin: Origin,
    round: Round,
}

/// The selector that a target's scale subresource gave.
pub(crate) struct Scale {
    key: PolicyKey,
    found: ScaleSelector,
}

impl Engine {
    pub(crate) fn next_round(&self) -> Option<DateTime<Utc>> {
        self.registry.next_due()
    }

    /// Starts a round for every policy that is due.
    pub(crate) fn start_rounds(&mut self, now: DateTime<Utc>) {
        if !self.judges() {
            return;
        }
        let mut by_backend: BTreeMap<Option<String>, Vec<Subject>> = BTreeMap::new();
        let mut unknown_scales = Vec::new();
        for key in self.registry.due_at(now) {
            self.ensure_facts(&key, &mut unknown_scales);
            let records = self.slots.records();
            let Some(governed) = self.registry.get_mut(&key) else { continue };
            let subject = governed.subject(&key, records);
            let due = match &governed.entry {
                Some(entry) => decide::next_due(entry, now),
                None => now + Duration::from_secs(60),
            };
            if let Some(subject) = subject.filter(|_| !governed.in_round) {
                governed.in_round = true;
                by_backend.entry(subject.entry.policy.backend.clone()).or_default().push(subject);
            }
            self.registry.schedule(&key, due);
        }
        self.read_scales(unknown_scales);
        for subjects in by_backend.into_values() {
            let (signals, metrics) = (Arc::clone(&self.parts.signals), Arc::clone(&self.parts.metrics));
            self.tasks.spawn(async move {
                let started = tokio::time::Instant::now();
                let observed = observe(&signals, subjects, now).await;
                metrics.step(Step::Fetch, started.elapsed());
                // Rego is CPU work: not on the threads that wait for the network.
                let judged = tokio::task::spawn_blocking(move || {
                    let started = tokio::time::Instant::now();
                    let judged: Vec<Judged> = observed.into_iter().map(|(s, o)| judge(s, o, now)).collect();
                    metrics.step(Step::Calculate, started.elapsed());
                    count_origins(&metrics, &judged, started.elapsed());
                    judged
                });
                Done::Judged(judged.await.unwrap_or_default())
            });
        }
    }

    /// Makes a policy's facts if they are not known.
    pub(crate) fn ensure_facts(&mut self, key: &PolicyKey, unknown_scales: &mut Vec<(PolicyKey, Served, ScaleKey)>) {
        let Some(governed) = self.registry.get_mut(key) else { return };
        let Some(entry) = governed.entry.as_ref().filter(|_| governed.resolved.is_none()) else { return };
        let policy = Arc::clone(&entry.policy);
        if policy.pod_selector.is_none() {
            let gvk = (policy.target_ref.api_version.clone(), policy.target_ref.kind.clone());
            let served = self.parts.caches.targets.get(&gvk).and_then(|target| target.served());
            let target = resolve::target(&self.parts.caches, &key.namespace, &policy.target_ref).ok();
            if let (Some(served), Some(target)) = (served.filter(|served| served.has_scale), target) {
                let of = scale_key(&target);
                if governed.scale.as_ref().is_none_or(|scale| scale.of != of) {
                    unknown_scales.push((key.clone(), served, of));
                    return;
                }
            }
        }
        let scale = governed.scale.as_ref().and_then(|scale| scale.selector.as_deref());
        let resolved = resolve::resolve(&self.parts.caches, &policy, scale, self.slots.records());
        if governed.take_facts(key, resolved) {
            self.registry.want_report(key);
        }
    }

    fn read_scales(&mut self, unknown: Vec<(PolicyKey, Served, ScaleKey)>) {
        if unknown.is_empty() {
            return;
        }
        for (key, ..) in &unknown {
            if let Some(governed) = self.registry.get_mut(key) {
                governed.in_round = true;
            }
        }
        let client = self.parts.client.clone();
        let names: BTreeMap<PolicyKey, String> = unknown
            .iter()
            .filter_map(|(key, ..)| {
                let entry = self.registry.get(key)?.entry.as_ref()?;
                Some((key.clone(), entry.policy.target_ref.name.clone()))
            })
            .collect();
        self.tasks.spawn(async move {
            let mut scales = Vec::new();
            for (key, served, of) in unknown {
                let Some(name) = names.get(&key) else { continue };
                let selector = scale_selector(&client, &served, &key.namespace, name).await;
                scales.push(Scale { key, found: ScaleSelector { of, selector } });
            }
            Done::Scales(scales)
        });
    }

    pub(crate) fn scales(&mut self, scales: Vec<Scale>) {
        let now = self.parts.clock.now();
        for Scale { key, found } in scales {
            if let Some(governed) = self.registry.get_mut(&key) {
                governed.scale = Some(found);
                governed.in_round = false;
                self.registry.schedule(&key, now);
            }
        }
    }

    /// Takes in what a round found.
    pub(crate) fn judged(&mut self, judged: Vec<Judged>, now: DateTime<Utc>) {
        let mut tally = Tally::default();
        for Judged { key, state_before, round, .. } in judged {
            let Some(governed) = self.registry.get_mut(&key) else { continue };
            governed.in_round = false;
            // The text, or where the policy stands, changed while it was measured: the next round says.
            let same_entry = governed.entry.as_ref().is_some_and(|current| Arc::ptr_eq(current, &round.entry));
            if !same_entry || governed.state != state_before {
                self.registry.schedule(&key, now);
                continue;
            }
            let judgement = Arc::clone(&round.judgement);
            tally.count(&governed.tenant, key.kind, result_label(&judgement));
            governed.state = judgement.state.clone();
            let outcome_before = governed.last.as_ref().map(|last| last.judgement.verdict.outcome);
            let new_outcome = outcome_before != Some(judgement.verdict.outcome);
            governed.last = Some(round);
            for transition in &judgement.transitions {
                info!(
                    reconciler = LOOP, request = %key, tenant = %governed.tenant.name, policy = key.name, from = %transition.from, to = %transition.to,
                    stage = ?transition.stage, reason = %transition.reason, decision = %judgement.decision_id,
                    "phase"
                );
                let change = governed.change(transition, &judgement);
                governed.remember(change);
            }
            let moved = !judgement.transitions.is_empty() || state_before.held != governed.state.held;
            if moved || state_before.blind != governed.state.blind || state_before.suspects != governed.state.suspects {
                self.replan = true;
                self.registry.want_report(&key);
            } else if new_outcome {
                self.registry.want_report(&key);
            }
            for transition in &judgement.transitions {
                self.announce(&key, transition, &judgement, now);
            }
            self.show(&key);
            let due =
                self.registry.get(&key).and_then(|governed| Some(decide::next_due(governed.entry.as_ref()?, now)));
            if let Some(due) = due {
                self.registry.schedule(&key, due);
            }
        }
        for (tenant, kind, result, count) in tally.0 {
            self.parts.metrics.evaluations(&tenant.name, kind, result, count, now);
        }
    }
}

/// How many policies of a tenant came to a result. There are few combinations, and many policies of each.
#[derive(Default)]
struct Tally(Vec<(Arc<Tenant>, PolicyKind, EvaluationResult, u64)>);

impl Tally {
    fn count(&mut self, tenant: &Arc<Tenant>, kind: PolicyKind, result: EvaluationResult) {
        let same = |entry: &&mut (Arc<Tenant>, PolicyKind, EvaluationResult, u64)| {
            Arc::ptr_eq(&entry.0, tenant) && (entry.1, entry.2) == (kind, result)
        };
        match self.0.iter_mut().find(same) {
            Some(entry) => entry.3 += 1,
            None => self.0.push((Arc::clone(tenant), kind, result, 1)),
        }
    }
}

type ScaleKey = (String, i64);

fn scale_key(target: &DynamicObject) -> ScaleKey {
    (target.uid().unwrap_or_default(), target.metadata.generation.unwrap_or_default())
}

/// None where there is none to be had; the next way to find Pods answers then.
async fn scale_selector(client: &Client, served: &Served, namespace: &str, name: &str) -> Option<String> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &served.resource);
    match api.get_scale(name).await {
        Ok(scale) => scale.status.and_then(|status| status.selector).filter(|selector| !selector.is_empty()),
        Err(error) => {
            debug!(%error, namespace, name, "the scale subresource could not be read");
            None
        }
    }
}

async fn observe(
    signals: &crate::signals::Signals,
    mut subjects: Vec<Subject>,
    now: DateTime<Utc>,
) -> Vec<(Subject, Observation)> {
    let mut asks: Vec<Arc<Ask>> = Vec::with_capacity(subjects.len());
    let ask_of = |subject: &mut Subject| subject.ask.take().map(|ask| asks.push(ask)).is_some();
    let asked: Vec<bool> = subjects.iter_mut().map(ask_of).collect();
    let mut observed = signals.observe(&asks, now).await.into_iter();
    let observations = subjects.into_iter().zip(asked).map(|(subject, asked)| {
        let observation = if asked { observed.next() } else { None };
        let observation = observation.unwrap_or_else(|| {
            Observation::blank(now, subject.entry.policy.signals.keys().cloned(), NoReading::NotMeasured)
        });
        (subject, observation)
    });
    observations.collect()
}

fn judge(subject: Subject, observation: Observation, now: DateTime<Utc>) -> Judged {
    let Subject { key, entry, facts, target, standing, state, last, .. } = subject;
    let before = last.as_ref().map(|last| Before {
        entry: &last.entry,
        observation: &last.observation,
        verdict: &last.judgement.verdict,
        at: last.at,
    });
    let turn = Turn {
        entry: &entry,
        observation: &observation,
        target: &target,
        facts: &facts,
        standing: &standing,
        state: &state,
        now,
    };
    let (judgement, origin) = decide::judge_after(before, turn);
    let round = Round { entry, at: now, observation: Arc::new(observation), judgement: Arc::new(judgement) };
    Judged { key, state_before: state, origin, round }
}

/// What `taken` went into: a verdict that is reused takes next to nothing.
fn count_origins(metrics: &Metrics, judged: &[Judged], taken: Duration) {
    let count = |origin| judged.iter().filter(|judged| judged.origin == origin).count();
    let (evaluated, reused) = (count(Origin::Evaluated), count(Origin::Reused));
    metrics.verdicts(VerdictOrigin::Evaluated, evaluated as u64);
    metrics.verdicts(VerdictOrigin::Reused, reused as u64);
    if let Some(each) = u32::try_from(evaluated).ok().and_then(|count| taken.checked_div(count)) {
        metrics.evaluation_took(each);
    }
}

/// The label under which tenants count their policies' evaluations.
fn result_label(judgement: &Judgement) -> EvaluationResult {
    match judgement.verdict.outcome {
        Outcome::Breached => EvaluationResult::Hit,
        Outcome::Ok => EvaluationResult::Miss,
        Outcome::Unknown(
            Reason::EvaluationFailed | Reason::EvaluationLimit | Reason::WrongShape | Reason::Undefined,
        ) => EvaluationResult::Error,
        Outcome::Unknown(_) => EvaluationResult::Unknown,
    }
}

impl Governed {
    /// True where status has something new to say.
    fn take_facts(&mut self, key: &PolicyKey, resolved: Resolved) -> bool {
        // A rule that looks at readings alone needs no copy of the target.
        let looks = self.entry.as_ref().is_some_and(|entry| entry.rule.footprint() == Footprint::Everything);
        if let Some(object) = resolved.object.as_ref().filter(|_| looks) {
            let version = object.resource_version().unwrap_or_default();
            if self.target_document.as_ref().is_none_or(|(of, _)| *of != version) {
                match serde_json::to_value(&**object) {
                    Ok(json) => self.target_document = Some((version, Document::from_json(&json))),
                    Err(error) => warn!(%error, "the target could not be converted"),
                }
            }
        } else {
            self.target_document = None;
        }
        let refused = resolved.refused;
        self.ask = self.entry.as_ref().and_then(|entry| self.ask(key, entry, &resolved)).map(Arc::new);
        self.resolved = Some(resolved);
        std::mem::replace(&mut self.refused_before, refused) != refused
    }

    /// None while nothing can be said about the policy: no good text, deleted, facts not known, a kind of target that
    /// is not served. A suspended policy and one whose target is gone are judged, so that they come to rest.
    fn subject(&self, key: &PolicyKey, records: &crate::model::effect::Records) -> Option<Subject> {
        let entry = Arc::clone(self.entry.as_ref()?);
        let resolved = self.resolved.as_ref()?;
        let cannot_tell = matches!(resolved.refused, Some(refused) if refused != Reason::TargetNotFound);
        if self.object.is_being_deleted() || cannot_tell {
            return None;
        }
        let facts = Arc::clone(&resolved.facts);
        Some(Subject {
            key: key.clone(),
            target: self.target_document.as_ref().map_or_else(Document::empty, |(_, document)| document.clone()),
            standing: decide::standing(key, &facts, records),
            state: self.state.clone(),
            last: self.last.clone(),
            ask: self.ask.as_ref().map(|ask| {
                let groups = decide::groups(&entry, &self.state, &facts, records);
                if groups.is_empty() { Arc::clone(ask) } else { Arc::new(Ask { groups, ..Ask::clone(ask) }) }
            }),
            entry,
            facts,
        })
    }

    /// What is to be measured as long as nothing is measured apart.
    fn ask(&self, key: &PolicyKey, entry: &Entry, resolved: &Resolved) -> Option<Ask> {
        let policy = &entry.policy;
        let workload = resolved.facts.workload.as_ref().ok();
        let has_queries = policy.signals.values().any(|signal| matches!(signal.source, SignalSource::Query { .. }));
        if workload.is_none() && !has_queries {
            return None;
        }
        let mut ask = Ask {
            policy: key.clone(),
            namespace: key.namespace.clone(),
            workload: workload.map(|workload| workload.key.name.clone()),
            service: policy.target_ref.name.clone(),
            pods: resolved.pods.iter().map(|pod| pod_ref(pod)).collect(),
            groups: BTreeMap::new(),
            quantiles: BTreeMap::new(),
            queries: BTreeMap::new(),
            thresholds: BTreeMap::new(),
            template: policy.signal_template.clone().or_else(|| self.tenant.signal_template.clone()),
            backend: policy.backend.clone(),
            window: policy.window,
            stale_after: policy.stale_after,
            min_requests: policy.min_requests,
        };
        for (name, signal) in &policy.signals {
            match &signal.source {
                SignalSource::Quantile(quantile) => {
                    ask.quantiles.insert(name.clone(), *quantile);
                }
                SignalSource::Query { query, unit } => {
                    ask.queries.insert(name.clone(), (query.clone(), *unit));
                }
            }
            if let Some(threshold) = &signal.threshold {
                ask.thresholds.insert(name.clone(), threshold.value);
            }
        }
        Some(ask)
    }
}

fn pod_ref(pod: &k8s_openapi::api::core::v1::Pod) -> PodRef {
    PodRef { name: pod.name_any(), ip: pod.status.as_ref().and_then(|status| status.pod_ip.clone()) }
}
