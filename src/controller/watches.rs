//! The watches that fill the caches. Every instance runs them, so that a standby is warm.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::discovery;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::api::marks::{FREEZE_CONFIG_MAP, SOURCE_LABEL};
use crate::api::policy_status::PolicyStatus;
use crate::api::{GovernancePolicy, Intervention, LatencyBudgetPolicy, PolicySource, Tenant};
use crate::clock::Clock;
use crate::controller::cache::{Cache, Touched};
use crate::controller::changes::{Changes, Marks};
use crate::controller::engine::LOOP;
use crate::model::policy::{PolicyKey, PolicyKind};
use crate::telemetry::metrics::Metrics;

/// `apiVersion` and `kind` of an object.
pub(crate) type Gvk = (String, String);

const ISTIO: &str = "networking.istio.io/v1";

/// How often a kind that the cluster does not serve is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// Everything that is watched.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) latency_policies: Arc<Cache<LatencyBudgetPolicy>>,
    pub(crate) governance_policies: Arc<Cache<GovernancePolicy>>,
    pub(crate) tenants: Arc<Cache<Tenant>>,
    pub(crate) policy_sources: Arc<Cache<PolicySource>>,
    /// ConfigMaps that hold policies; no others are read.
    pub(crate) policy_maps: Arc<Cache<ConfigMap>>,
    /// Their revisions that were in force.
    pub(crate) revisions: Arc<Cache<ControllerRevision>>,
    pub(crate) interventions: Arc<Cache<Intervention>>,
    pub(crate) namespaces: Arc<Cache<PartialObjectMeta<Namespace>>>,
    pub(crate) pods: Arc<Cache<Pod>>,
    pub(crate) services: Arc<Cache<Service>>,
    pub(crate) replica_sets: Arc<Cache<ReplicaSet>>,
    pub(crate) deployments: Arc<Cache<PartialObjectMeta<Deployment>>>,
    pub(crate) stateful_sets: Arc<Cache<StatefulSet>>,
    pub(crate) daemon_sets: Arc<Cache<DaemonSet>>,
    pub(crate) freeze: Arc<Cache<ConfigMap>>,
    pub(crate) virtual_services: Arc<Optional>,
    pub(crate) destination_rules: Arc<Optional>,
    pub(crate) targets: BTreeMap<Gvk, Arc<Optional>>,
    pub(crate) changes: Changes,
}

/// A kind that the cluster may not serve.
#[derive(Debug, Default)]
pub(crate) struct Optional {
    pub(crate) cache: Arc<Cache<DynamicObject>>,
    served: RwLock<Option<Served>>,
}

/// How the cluster serves a kind.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) has_scale: bool,
}

impl Optional {
    /// How it is served; none: it is not, as far as we know.
    pub(crate) fn served(&self) -> Option<Served> {
        self.served.read().clone()
    }
}

impl Caches {
    pub(crate) fn new(target_kinds: &[Gvk]) -> Self {
        Self {
            latency_policies: Arc::default(),
            governance_policies: Arc::default(),
            tenants: Arc::default(),
            policy_sources: Arc::default(),
            policy_maps: Arc::default(),
            revisions: Arc::default(),
            interventions: Arc::default(),
            namespaces: Arc::default(),
            pods: Arc::default(),
            services: Arc::default(),
            replica_sets: Arc::default(),
            deployments: Arc::default(),
            stateful_sets: Arc::default(),
            daemon_sets: Arc::default(),
            freeze: Arc::default(),
            virtual_services: Arc::default(),
            destination_rules: Arc::default(),
            targets: target_kinds.iter().map(|gvk| (gvk.clone(), Arc::default())).collect(),
            changes: Changes::default(),
        }
    }

    /// Whether every kind was listed once. Before that, nothing may be decided: an empty cache is not an empty
    /// cluster.
    pub(crate) fn are_synced(&self) -> bool {
        self.latency_policies.is_synced()
            && self.governance_policies.is_synced()
            && self.tenants.is_synced()
            && self.policy_sources.is_synced()
            && self.policy_maps.is_synced()
            && self.revisions.is_synced()
            && self.interventions.is_synced()
            && self.namespaces.is_synced()
            && self.pods.is_synced()
            && self.services.is_synced()
            && self.replica_sets.is_synced()
            && self.deployments.is_synced()
            && self.stateful_sets.is_synced()
            && self.daemon_sets.is_synced()
            && self.freeze.is_synced()
            && self.virtual_services.cache.is_synced()
            && self.destination_rules.cache.is_synced()
            && self.targets.values().all(|target| target.cache.is_synced())
    }
}

/// What the watch tasks share.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) client: Client,
    pub(crate) caches: Arc<Caches>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) own_namespace: String,
    pub(crate) cancel: CancellationToken,
}

impl Watches {
    /// Starts every watch in `tasks`.
    pub(crate) fn start(&self, tasks: &mut JoinSet<()>) {
        let caches = &self.caches;
        self.follow(tasks, self.all(), &caches.latency_policies, slim_latency_policy, |marks, touched| {
            policy(marks, PolicyKind::LatencyBudgetPolicy, touched);
        });
        self.follow(tasks, self.all(), &caches.governance_policies, slim_governance_policy, |marks, touched| {
            policy(marks, PolicyKind::GovernancePolicy, touched);
        });
        self.follow(tasks, self.all(), &caches.interventions, bare, |marks, touched| match touched {
            Touched::One { namespace, name } => {
                marks.interventions.insert((namespace, name));
            }
            _ => marks.everything = true,
        });
        self.follow(tasks, self.all(), &caches.policy_sources, bare, |marks, _| marks.sources = true);
        let labelled = watcher_config().labels(SOURCE_LABEL);
        let (this, cache) = (self.clone(), Arc::clone(&caches.policy_maps));
        let config_maps = self.all::<ConfigMap>();
        let config = labelled.clone();
        tasks.spawn(async move { this.keep(config_maps, config, &cache, bare, config_map).await });
        let (this, cache) = (self.clone(), Arc::clone(&caches.revisions));
        let revisions = self.all::<ControllerRevision>();
        tasks.spawn(async move { this.keep(revisions, labelled, &cache, bare, revision).await });
        self.follow(tasks, self.all(), &caches.tenants, bare, |marks, _| marks.tenants = true);
        self.follow(tasks, self.all(), &caches.namespaces, slim, |marks, _| marks.tenants = true);
        self.follow(tasks, self.all(), &caches.pods, slim_pod, namespace);
        self.follow(tasks, self.all(), &caches.services, slim, namespace);
        self.follow(tasks, self.all(), &caches.replica_sets, slim_replica_set, namespace);
        self.follow(tasks, self.all(), &caches.deployments, slim, namespace);
        self.follow(tasks, self.all(), &caches.stateful_sets, slim_stateful_set, namespace);
        self.follow(tasks, self.all(), &caches.daemon_sets, slim_daemon_set, namespace);
        let freeze = Api::<ConfigMap>::namespaced(self.client.clone(), &self.own_namespace);
        let only = watcher_config().fields(&format!("metadata.name={FREEZE_CONFIG_MAP}"));
        let (this, cache) = (self.clone(), Arc::clone(&caches.freeze));
        tasks.spawn(async move { this.keep(freeze, only, &cache, bare, |marks, _| marks.freeze = true).await });
        for (gvk, optional) in &caches.targets {
            self.follow_optional(tasks, gvk.clone(), optional);
        }
        self.follow_optional(tasks, (ISTIO.into(), "VirtualService".into()), &caches.virtual_services);
        self.follow_optional(tasks, (ISTIO.into(), "DestinationRule".into()), &caches.destination_rules);
    }

    fn all<K: Resource<DynamicType: Default>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn follow<K>(
        &self,
        tasks: &mut JoinSet<()>,
        api: Api<K>,
        cache: &Arc<Cache<K>>,
        slim: fn(&mut K),
        mark: fn(&mut Marks, Touched),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let (this, cache) = (self.clone(), Arc::clone(cache));
        tasks.spawn(async move { this.keep(api, watcher_config(), &cache, slim, mark).await });
    }

    /// Looks for a kind until the cluster serves it, then follows it.
    fn follow_optional(&self, tasks: &mut JoinSet<()>, gvk: Gvk, optional: &Arc<Optional>) {
        let (this, optional) = (self.clone(), Arc::clone(optional));
        tasks.spawn(async move {
            let Some(served) = this.find(&gvk, &optional).await else { return };
            info!(api_version = gvk.0, kind = gvk.1, "following");
            let api = Api::<DynamicObject>::all_with(this.client.clone(), &served.resource);
            *optional.served.write() = Some(served);
            this.keep(api, watcher_config(), &optional.cache, slim, namespace).await;
        });
    }

    /// None once cancelled.
    async fn find(&self, (api_version, kind): &Gvk, optional: &Optional) -> Option<Served> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        loop {
            let pause = match discovery::pinned_kind(&self.client, &gvk).await {
                Ok((resource, capabilities)) => {
                    let has_scale = capabilities
                        .subresources
                        .iter()
                        .any(|(sub, _)| sub.plural == "scale" || sub.plural.ends_with("/scale"));
                    return Some(Served { resource, has_scale });
                }
                Err(kube::Error::Discovery(_)) => LOOK_AGAIN,
                // By code: for a group that it does not have the server answers in plain text, without a reason.
                Err(kube::Error::Api(status)) if status.code == 404 => LOOK_AGAIN,
                Err(error) => {
                    debug!(%error, api_version, kind, "discovery failed");
                    LOOK_AGAIN / 10
                }
            };
            if pause == LOOK_AGAIN && !optional.cache.is_synced() {
                info!(api_version, kind, "the cluster does not serve this kind; looking again");
                optional.cache.absent();
                self.mark(|marks| marks.everything = true);
            }
            tokio::select! {
                () = self.cancel.cancelled() => return None,
                () = self.clock.sleep(pause) => {}
            }
        }
    }

    fn mark(&self, mark: impl FnOnce(&mut Marks)) {
        let more = self.caches.changes.mark(mark);
        self.metrics.queue_added(LOOP, more);
    }

    /// Follows one kind until cancelled; errors are information, the watcher resumes by itself.
    async fn keep<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        cache: &Cache<K>,
        slim: fn(&mut K),
        mark: fn(&mut Marks, Touched),
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let stream = watcher(api, config).modify(slim).default_backoff();
        tokio::pin!(stream);
        loop {
            let event = tokio::select! {
                () = self.cancel.cancelled() => return,
                event = stream.next() => event,
            };
            match event {
                None => return,
                Some(Ok(event)) => {
                    let touched = cache.feed(event);
                    if touched != Touched::Nothing {
                        self.mark(|marks| mark(marks, touched));
                    }
                }
                Some(Err(error)) => {
                    self.metrics.watch_error();
                    debug!(%error, kind = std::any::type_name::<K>(), "a watch was interrupted");
                }
            }
        }
    }
}

/// Shorter than what load balancers that drop idle connections silently allow, so that no watch is stale for ever.
fn watcher_config() -> watcher::Config {
    watcher::Config::default().timeout(200)
}

fn policy(marks: &mut Marks, kind: PolicyKind, touched: Touched) {
    match touched {
        Touched::One { namespace, name } => {
            marks.policies.insert(PolicyKey { kind, namespace, name });
        }
        _ => marks.everything = true,
    }
}

fn config_map(marks: &mut Marks, touched: Touched) {
    match touched {
        Touched::One { namespace, name } => {
            marks.config_maps.insert((namespace, name));
        }
        _ => marks.sources = true,
    }
}

/// A revision that was written or deleted changes what status lists, not what is in force.
fn revision(marks: &mut Marks, touched: Touched) {
    match touched {
        Touched::One { namespace, .. } => {
            marks.revisions.insert(namespace);
        }
        _ => marks.sources = true,
    }
}

fn namespace(marks: &mut Marks, touched: Touched) {
    match touched {
        Touched::One { namespace, .. } => {
            marks.namespaces.insert(namespace);
        }
        _ => marks.everything = true,
    }
}

fn bare<K>(_: &mut K) {}

/// Who owns which field is most of an object, and nobody reads it from a cache.
fn slim<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

fn slim_latency_policy(policy: &mut LatencyBudgetPolicy) {
    slim_policy(policy);
    policy.status.iter_mut().for_each(slim_status);
}

fn slim_governance_policy(policy: &mut GovernancePolicy) {
    slim_policy(policy);
    policy.status.iter_mut().for_each(slim_status);
}

/// An engine that starts goes on from state, conditions and history; the rest of a status is for people.
fn slim_status(status: &mut PolicyStatus) {
    (status.observed, status.workload) = (None, None);
    (status.signals, status.queries, status.held_back) = (Vec::new(), Vec::new(), Vec::new());
}

/// Of a policy's managed fields, the times at which others wrote its spec are read: that is when it was changed last.
fn slim_policy<K: Resource>(policy: &mut K) {
    let Some(entries) = &mut policy.meta_mut().managed_fields else { return };
    entries.retain(|entry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some()));
    for entry in entries {
        entry.fields_v1 = Some(FieldsV1(json!({"f:spec": {}})));
    }
}

/// Of a Pod only what facts and effects read is kept: a cluster has many.
fn slim_pod(pod: &mut Pod) {
    pod.meta_mut().managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        let gates = spec.readiness_gates.take();
        *spec = k8s_openapi::api::core::v1::PodSpec { readiness_gates: gates, ..Default::default() };
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
}

fn slim_replica_set(object: &mut ReplicaSet) {
    object.meta_mut().managed_fields = None;
    if let Some(spec) = &mut object.spec {
        spec.template = None;
    }
}

fn slim_stateful_set(object: &mut StatefulSet) {
    object.meta_mut().managed_fields = None;
    if let Some(spec) = &mut object.spec {
        spec.volume_claim_templates = None;
        spec.template.spec = None;
    }
}

fn slim_daemon_set(object: &mut DaemonSet) {
    object.meta_mut().managed_fields = None;
    if let Some(spec) = &mut object.spec {
        spec.template.spec = None;
    }
}
