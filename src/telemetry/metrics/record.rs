//! How things are counted: one method per thing that happens, in the words of the rooms that call them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus::TextEncoder;
use tokio::time::Instant;

use super::counts::{BackendCounts, CountsCollector, SinkCounts};
use super::labels::{EvaluationResult, ExecutionResult, ReconcileResult, Step, VerdictOrigin};
use super::state::StateCollector;
use super::{Metrics, VALID};
use crate::model::policy::{ActionKind, PolicyKind};
use crate::model::view::View;

/// The tenant of namespaces that no Tenant selects.
const BUILT_IN_TENANT: &str = "default";

/// A reconcile that runs; dropped without [`Running::finish`] it was cancelled, and counts as no result.
#[must_use = "a reconcile that is dropped at once was never measured"]
pub struct Running {
    metrics: Arc<Metrics>,
    controller: &'static str,
    id: u64,
    started: Instant,
}

impl Running {
    /// The reconcile ended.
    pub fn finish(self, result: ReconcileResult) {
        let taken = self.started.elapsed().as_secs_f64();
        let metrics = &self.metrics;
        metrics.reconciles.with_label_values(&[self.controller, result.as_str()]).inc();
        if result == ReconcileResult::Error {
            metrics.reconcile_errors.with_label_values(&[self.controller]).inc();
        }
        metrics.reconcile_seconds.with_label_values(&[self.controller]).observe(taken);
        metrics.work_seconds.with_label_values(&[self.controller, self.controller]).observe(taken);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.active_workers.with_label_values(&[self.controller]).dec();
        lock(&self.metrics.running).remove(&self.id);
    }
}

/// A poisoned lock only means that a panic passed by: the sets behind it are whole at every instant.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// Reconciles, queues, the API server.
impl Metrics {
    /// Announces a controller: its series exist from now on, at 0.
    pub fn controller(&self, name: &'static str) {
        lock(&self.controllers).insert(name);
        for result in ReconcileResult::ALL {
            self.reconciles.with_label_values(&[name, result.as_str()]);
        }
        self.reconcile_errors.with_label_values(&[name]);
        self.terminal_errors.with_label_values(&[name]);
        self.reconcile_panics.with_label_values(&[name]);
        self.reconcile_seconds.with_label_values(&[name]);
        self.work_seconds.with_label_values(&[name, name]);
        self.unfinished_seconds.with_label_values(&[name, name]);
        self.longest_running_seconds.with_label_values(&[name, name]);
        self.active_workers.with_label_values(&[name]);
        self.queue_retries.with_label_values(&[name, name]);
    }

    /// A reconcile of this controller begins.
    pub fn reconcile_started(self: &Arc<Self>, controller: &'static str) -> Running {
        let id = self.next_run.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        self.active_workers.with_label_values(&[controller]).inc();
        lock(&self.running).insert(id, (controller, started));
        Running { metrics: Arc::clone(self), controller, id, started }
    }

    /// A task of the reconcile panicked.
    pub fn reconcile_panic(&self, controller: &str) {
        self.reconcile_panics.with_label_values(&[controller]).inc();
    }

    /// A watch was interrupted; it resumes by itself.
    pub fn watch_error(&self) {
        self.watch_errors.inc();
    }

    /// A reconcile failed for good: only another text of the object helps.
    pub fn terminal_error(&self, controller: &str) {
        self.terminal_errors.with_label_values(&[controller]).inc();
    }

    /// So many changes were queued.
    pub fn queue_added(&self, controller: &str, count: usize) {
        self.queue_adds.with_label_values(&[controller, controller]).inc_by(count as u64);
        self.queue_depth.with_label_values(&[controller, controller]).add(count as i64);
    }

    /// Changes that waited so long were looked at.
    pub fn queue_taken(&self, controller: &str, waited: &[Duration]) {
        self.queue_depth.with_label_values(&[controller, controller]).sub(waited.len() as i64);
        let seconds = self.queue_seconds.with_label_values(&[controller, controller]);
        for waited in waited {
            seconds.observe(waited.as_secs_f64());
        }
    }

    /// An object was queued again after a failure.
    pub fn queue_retried(&self, controller: &str) {
        self.queue_retries.with_label_values(&[controller, controller]).inc();
    }

    /// Whether this instance holds the lease of this name.
    pub fn leader(&self, lease: &str, is_leader: bool) {
        self.leader.with_label_values(&[lease]).set(i64::from(is_leader));
    }

    /// A request to the API server was answered; `code` is the HTTP status, or `error` without an answer.
    pub fn rest_request(&self, code: &str, method: &str, host: &str) {
        self.rest_requests.with_label_values(&[code, method, host]).inc();
    }

    /// Whether the API server is out of reach.
    pub fn detached(&self, detached: bool) {
        self.detached.set(i64::from(detached));
    }
}

// The policy loop.
impl Metrics {
    /// These tenants exist, beside the built-in one: their counters exist from now on, at 0, and those of others are
    /// gone.
    pub fn tenants<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.into_iter().chain([BUILT_IN_TENANT]).collect();
        let gone: Vec<String> =
            lock(&self.tenants).iter().filter(|known| !names.contains(known.as_str())).cloned().collect();
        for tenant in gone {
            self.forget(&tenant);
        }
        for tenant in names {
            self.tenant(tenant);
        }
    }

    fn tenant(&self, tenant: &str) {
        let mut tenants = lock(&self.tenants);
        if tenants.contains(tenant) {
            return;
        }
        tenants.insert(tenant.to_owned());
        for kind in PolicyKind::ALL {
            for result in EvaluationResult::ALL {
                self.evaluations.with_label_values(&[tenant, kind.as_str(), result.as_str()]);
            }
        }
        for action in ActionKind::ALL {
            for result in ExecutionResult::ALL {
                self.executions.with_label_values(&[tenant, action.as_str(), result.as_str()]);
            }
        }
    }

    /// An absent series is no error.
    fn forget(&self, tenant: &str) {
        lock(&self.tenants).remove(tenant);
        for kind in PolicyKind::ALL {
            for result in EvaluationResult::ALL {
                let _ = self.evaluations.remove_label_values(&[tenant, kind.as_str(), result.as_str()]);
            }
        }
        for action in ActionKind::ALL {
            for result in ExecutionResult::ALL {
                let _ = self.executions.remove_label_values(&[tenant, action.as_str(), result.as_str()]);
            }
        }
        let _ = self.last_evaluation.remove_label_values(&[tenant]);
    }

    /// So many of a tenant's policies were evaluated at `now`.
    pub fn evaluations(
        &self,
        tenant: &str,
        kind: PolicyKind,
        result: EvaluationResult,
        count: u64,
        now: DateTime<Utc>,
    ) {
        self.tenant(tenant);
        self.evaluations.with_label_values(&[tenant, kind.as_str(), result.as_str()]).inc_by(count);
        if matches!(result, EvaluationResult::Hit | EvaluationResult::Miss) {
            self.last_evaluation.with_label_values(&[tenant]).set(seconds_of(now));
        }
    }

    /// So many verdicts came from there.
    pub fn verdicts(&self, origin: VerdictOrigin, count: u64) {
        self.verdicts.with_label_values(&[origin.as_str()]).inc_by(count);
    }

    /// A rule's evaluation took so long.
    pub fn evaluation_took(&self, taken: Duration) {
        self.evaluation_seconds.observe(taken.as_secs_f64());
    }

    /// An effect that an action asked for came to this.
    pub fn execution(&self, tenant: &str, action: ActionKind, result: ExecutionResult) {
        self.tenant(tenant);
        self.executions.with_label_values(&[tenant, action.as_str(), result.as_str()]).inc();
    }

    /// A new or growing effect on a slot of this kind was begun.
    pub fn effect_started(&self, slot: &str) {
        self.effects_started.with_label_values(&[slot]).inc();
    }

    /// An effect on a slot of this kind was undone.
    pub fn effect_undone(&self, slot: &str) {
        self.effects_undone.with_label_values(&[slot]).inc();
    }

    /// A step of the policy loop took so long.
    pub fn step(&self, step: Step, taken: Duration) {
        self.step_seconds.with_label_values(&[step.as_str()]).observe(taken.as_secs_f64());
    }
}

// Backends and sinks.
impl Metrics {
    /// Reads at every scrape what the metrics backends were asked. Called once, by the wiring.
    pub fn observe_backends(&self, counts: impl Fn() -> Vec<BackendCounts> + Send + Sync + 'static) {
        self.registry.register(Box::new(CountsCollector::backends(Box::new(counts)))).expect(VALID);
    }

    /// Reads at every scrape what became of events. Called once, by the wiring.
    pub fn observe_sinks(&self, counts: impl Fn() -> Vec<SinkCounts> + Send + Sync + 'static) {
        self.registry.register(Box::new(CountsCollector::sinks(Box::new(counts)))).expect(VALID);
    }

    /// So many events wait for a sink.
    pub fn events_waiting(&self, sink: &str, waiting: usize) {
        self.events_waiting.with_label_values(&[sink]).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}

// The scrape.
impl Metrics {
    /// Computes the state gauges from what this closure returns, at every scrape. Called once, by the wiring.
    pub fn observe_view(&self, view: impl Fn() -> Arc<View> + Send + Sync + 'static) {
        let collector = StateCollector::new(Box::new(view), self.options);
        self.registry.register(Box::new(collector)).expect(VALID);
    }

    /// Everything in the text format 0.0.4; its type is [`super::CONTENT_TYPE`].
    pub fn render(&self) -> String {
        self.refresh_running();
        let mut text = String::new();
        let families = self.registry.gather();
        TextEncoder::new().encode_utf8(&families, &mut text).expect("writing to a String does not fail");
        text
    }

    fn refresh_running(&self) {
        let running = lock(&self.running);
        for controller in lock(&self.controllers).iter().copied() {
            let ages =
                running.values().filter(|(name, _)| *name == controller).map(|(_, at)| at.elapsed().as_secs_f64());
            let (sum, longest) = ages.fold((0.0, 0.0_f64), |(sum, longest), age| (sum + age, longest.max(age)));
            self.unfinished_seconds.with_label_values(&[controller, controller]).set(sum);
            self.longest_running_seconds.with_label_values(&[controller, controller]).set(longest);
        }
    }
}

fn seconds_of(time: DateTime<Utc>) -> f64 {
    time.timestamp_millis() as f64 / 1e3
}
