//! Writing what is known onto the policies: status, and the finalizer while a policy holds something.
//!
//! A Healthy policy's status is written only when its phase or conditions change; others are refreshed at most once a
//! minute. One write per policy is under way at a time. What came back is what the plan may rest on.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tracing::debug;

use crate::api::marks::{FIELD_MANAGER, FINALIZER};
use crate::api::policy_status::PolicyStatus;
use crate::api::{GovernancePolicy, LatencyBudgetPolicy};
use crate::controller::act::is_open;
use crate::controller::engine::{Done, Engine, STATUS};
use crate::controller::governed::Governed;
use crate::controller::status::{self, Essence};
use crate::model::phase::State;
use crate::model::policy::{Enforcement, PolicyKey, PolicyKind};
use crate::telemetry::metrics::{ReconcileResult, Step};

/// How many statuses are written at the same time: after a start all are due at once, and ten thousand requests under way
/// would take a gigabyte and hold up the API server.
pub(crate) const AT_ONCE: usize = 64;

/// What came of writing one policy.
pub(crate) struct Reported {
    key: PolicyKey,
    uid: String,
    state: State,
    status: PolicyStatus,
    essence: Essence,
    result: Result<(), kube::Error>,
}

/// What to do about the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finalizer {
    Keep,
    Add,
    Remove,
}

impl Engine {
    /// Starts the writes that are due, as far as they may run at the same time.
    pub(crate) fn start_reports(&mut self, now: DateTime<Utc>) {
        loop {
            let due = self.registry.take_reports(now, self.report_permits.available_permits());
            if due.is_empty() {
                return;
            }
            for key in due {
                self.start_report(&key, now);
            }
        }
    }

    fn start_report(&mut self, key: &PolicyKey, now: DateTime<Utc>) {
        let Ok(permit) = Arc::clone(&self.report_permits).try_acquire_owned() else {
            return self.registry.want_report(key);
        };
        let Some(governed) = self.registry.get(key) else { return };
        let status = status::status(key, governed, &self.slots, &self.plan, now);
        let essence = status::essence(&status);
        let finalizer = self.finalizer(key, governed);
        // A Healthy policy is written when what its status says changes; for the others a write that is due is a
        // refresh of their readings and clocks.
        let unchanged = governed.report.written == Some(essence);
        if unchanged && !governed.is_refreshed() && finalizer == Finalizer::Keep {
            return;
        }
        let Some(governed) = self.registry.get_mut(key) else { return };
        governed.report.writing = true;
        let uid = governed.object.uid().to_owned();
        let version = governed.object.metadata().resource_version.clone();
        let finalizers = governed.object.metadata().finalizers.clone().unwrap_or_default();
        let state = governed.state.clone();
        let (client, key) = (self.parts.client.clone(), key.clone());
        let metrics = Arc::clone(&self.parts.metrics);
        self.tasks.spawn(async move {
            let running = metrics.reconcile_started(STATUS);
            let started = tokio::time::Instant::now();
            let result = write(client, &key, &status, finalizer, finalizers, version).await;
            metrics.step(Step::Status, started.elapsed());
            running.finish(if result.is_ok() { ReconcileResult::Success } else { ReconcileResult::Error });
            drop(permit);
            Done::Reported(Box::new(Reported { key, uid, state, status, essence, result }))
        });
    }

    /// Before its first effect a policy gets the finalizer, after its last it loses it.
    fn finalizer(&self, key: &PolicyKey, governed: &Governed) -> Finalizer {
        let has = governed.object.has_finalizer();
        let holds = self.slots.held_by(key).next().is_some();
        let acts = governed.entry.as_ref().is_some_and(|entry| {
            entry.enforcement() == Enforcement::Enforce && !entry.policy.actions.is_empty() && !entry.policy.suspend
        });
        let will_hold = acts && is_open(governed.state.phase) && !governed.object.is_being_deleted();
        match (has, holds || will_hold) {
            (false, true) if !governed.object.is_being_deleted() => Finalizer::Add,
            (true, false) => Finalizer::Remove,
            _ => Finalizer::Keep,
        }
    }

    /// Takes in what came of a write.
    pub(crate) fn reported(&mut self, reported: Reported, now: DateTime<Utc>) {
        let jitter = self.parts.random.f64();
        let Reported { key, uid, state, status, essence, result } = reported;
        let Some(governed) = self.registry.get_mut(&key).filter(|governed| governed.object.uid() == uid) else {
            return;
        };
        governed.report.writing = false;
        match result {
            Ok(()) => {
                governed.report.backoff.reset();
                governed.report.written = Some(essence);
                governed.report.conditions = status.conditions;
                let is_refreshed = governed.is_refreshed();
                self.replan |= self.registry.persist(&key, Some(state));
                if is_refreshed {
                    self.registry.schedule_report(&key, Some(now + self.parts.options.status_refresh));
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                let pause = governed.report.backoff.after_failure(jitter);
                debug!(request = %key, %error, ?pause, "status was not written");
                self.registry.schedule_report(&key, Some(now + pause));
            }
        }
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

pub(crate) fn resource(kind: PolicyKind) -> ApiResource {
    match kind {
        PolicyKind::LatencyBudgetPolicy => ApiResource::erase::<LatencyBudgetPolicy>(&()),
        PolicyKind::GovernancePolicy => ApiResource::erase::<GovernancePolicy>(&()),
    }
}

/// The finalizer goes on before the status that lets effects begin, and comes off after the one that says they ended.
async fn write(
    client: Client,
    key: &PolicyKey,
    status: &PolicyStatus,
    finalizer: Finalizer,
    finalizers: Vec<String>,
    version: Option<String>,
) -> Result<(), kube::Error> {
    let resource = resource(key.kind);
    let api = Api::<DynamicObject>::namespaced_with(client, &key.namespace, &resource);
    if finalizer == Finalizer::Add {
        set_finalizers(&api, key, finalizers.iter().cloned().chain([FINALIZER.to_owned()]), version.as_ref()).await?;
    }
    let body: Value = json!({ "apiVersion": resource.api_version, "kind": resource.kind, "status": status });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch_status(&key.name, &params, &Patch::Apply(&body)).await?;
    if finalizer == Finalizer::Remove {
        let newest = api.get_metadata(&key.name).await?;
        let left: Vec<String> = newest.finalizers().iter().filter(|name| *name != FINALIZER).cloned().collect();
        set_finalizers(&api, key, left, newest.resource_version().as_ref()).await?;
    }
    Ok(())
}

async fn set_finalizers(
    api: &Api<DynamicObject>,
    key: &PolicyKey,
    finalizers: impl IntoIterator<Item = String>,
    version: Option<&String>,
) -> Result<(), kube::Error> {
    let finalizers: Vec<String> = finalizers.into_iter().collect();
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch_metadata(&key.name, &params, &Patch::Merge(&patch)).await.map(drop)
}
