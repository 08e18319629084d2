//! One cluster with the order service under load, its Prometheus, the SRE platform and the engine installed: where the
//! tests of the running engine take place. It says what stands; what should stand is for the tests to say.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::support::engine::{Engine, install};
use crate::support::event_sink::EventSink;
use crate::support::order_service::{OBJECTS, OrderService};
use crate::support::parts::{ControlPlane, Prometheus, User};
use crate::support::wait::wait_until;

/// The annotation in which a service reads its mode.
const MODE: &str = "policy.trade.io/mode";
/// The namespace of the service; each scene is a cluster of its own.
pub(super) const NAMESPACE: &str = "trading";
/// Nothing here takes longer, on a machine that is busy with other things.
pub(super) const SOON: Duration = Duration::from_mins(2);

/// The seed policy with everything that takes minutes made short.
pub(super) const POLICY: &str = r#"
apiVersion: policy.trade.io/v1alpha2
kind: LatencyBudgetPolicy
metadata:
  name: order-processing
spec:
  targetRef: {apiVersion: trade.io/v1, kind: OrderService, name: core-trading}
  thresholds: {p99: "800ms", duration: "5s", recovery: "3s"}
  interval: 1s
  window: 5s
  staleAfter: 10s
  minRequests: 3
  actions:
    - type: circuit-breaker
      config: {timeout: "5s", fallback: cache-only}
"#;

/// The world and the way to look at it.
pub(super) struct Scene {
    pub(super) control_plane: ControlPlane,
    pub(super) prometheus: Prometheus,
    pub(super) orders: OrderService,
    pub(super) platform: EventSink,
    client: Client,
    kubeconfig: PathBuf,
}

impl Scene {
    /// Everything but an engine and a policy. The service is healthy.
    pub(super) async fn open() -> Self {
        let mut control_plane = ControlPlane::start().await;
        control_plane.start_controllers();
        let kubeconfig = install(&control_plane).await;
        control_plane.kubectl(&["create", "namespace", NAMESPACE]).await;
        let prometheus = Prometheus::start().await;
        let orders = OrderService::deploy(&control_plane, NAMESPACE, &prometheus, OBJECTS).await;
        let client = control_plane.client(User::Admin).await;
        Self { control_plane, prometheus, orders, platform: EventSink::start().await, client, kubeconfig }
    }

    /// Starts an instance of the engine.
    pub(super) fn engine(&self, identity: &str) -> Engine {
        let config = format!(
            "\
targets: [{{apiVersion: trade.io/v1, kind: OrderService, plural: orderservices}}]
signals:
  defaultTemplate: plain
  backends: {{prometheus: {{kind: prometheus, url: '{prometheus}', timeout: 2s}}}}
sinks: {{sre-platform: {{url: '{platform}', allEvents: true}}}}
lease: {{duration: 5s}}
listen: ['127.0.0.1:0']
stateDir: state
gitCredentials: {{policies: {{username: engine, passwordFile: git-password}}}}
",
            prometheus = self.prometheus.url(),
            platform = self.platform.url(),
        );
        Engine::start(identity, &self.kubeconfig, &config)
    }

    /// `kubectl apply` in the service's namespace.
    pub(super) async fn apply(&self, policy: &str) {
        self.control_plane.apply(Some(NAMESPACE), policy).await;
    }

    /// Every Pod of primary answers after this time from now on; those of cache-only stay fast.
    pub(super) fn slow_primary(&self, latency: Duration) {
        self.orders.set_latency(
            move |_, version| {
                if version == "primary" { latency } else { Duration::from_millis(20) }
            },
        );
    }

    /// Waits until the policy is in this phase.
    pub(super) async fn until_phase(&self, phase: &str) {
        wait_until(&format!("the policy is {phase}"), SOON, async || {
            let policy = self.policy().await?;
            if policy["status"]["phase"] == phase { Ok(()) } else { Err(policy["status"].to_string()) }
        })
        .await;
    }

    /// Waits until everything that a circuit breaker does is done.
    pub(super) async fn until_applied(&self) {
        wait_until("the breaker is open", SOON, async || {
            let standing = self.standing().await?;
            let open = standing.weights == [0, 100] && standing.mode.as_deref() == Some("cache-only");
            if open && standing.out_of_service.len() == 1 { Ok(()) } else { Err(format!("{standing:?}")) }
        })
        .await;
    }

    /// Waits until nothing is left of what a circuit breaker does.
    pub(super) async fn until_restored(&self, original: &Standing) {
        wait_until("all is as it was", SOON, async || {
            let standing = self.standing().await?;
            if standing == *original { Ok(()) } else { Err(format!("{standing:?}")) }
        })
        .await;
    }

    /// The policy as it stands.
    pub(super) async fn policy(&self) -> Result<Value, String> {
        self.get("policy.trade.io", "v1alpha2", "LatencyBudgetPolicy", "order-processing").await
    }

    /// The records of effects, by the kind of their slot.
    pub(super) async fn interventions(&self) -> Result<BTreeMap<String, Value>, String> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("policy.trade.io", "v1alpha2", "Intervention"));
        let records: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &kind);
        let records = records.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let by_slot = |record: DynamicObject| {
            let record = serde_json::to_value(&record).expect("an object is JSON");
            (record["spec"]["slot"]["kind"].as_str().unwrap_or_default().to_owned(), record)
        };
        Ok(records.items.into_iter().map(by_slot).collect())
    }

    /// What tells whether the engine wrote again: the versions of the objects that it changes once, and its records' uids.
    pub(super) async fn versions(&self) -> Result<Vec<String>, String> {
        let route = self.get("networking.istio.io", "v1", "VirtualService", "core-trading").await?;
        let target = self.get("trade.io", "v1", "OrderService", "core-trading").await?;
        let versions = [route, target].map(|object| object["metadata"]["resourceVersion"].to_string());
        let records = self.interventions().await?;
        let uids = records.values().map(|record| record["metadata"]["uid"].to_string());
        Ok(versions.into_iter().chain(uids).collect())
    }

    /// The condition of this type in the policy's status.
    pub(super) async fn condition(&self, kind: &str) -> Result<Value, String> {
        let policy = self.policy().await?;
        let conditions = policy["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.cloned().ok_or_else(|| format!("no condition {kind}: {conditions:?}"))
    }

    /// Who holds the Lease.
    pub(super) async fn actor(&self) -> Result<String, String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "tradeguard-system");
        let lease = leases.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let holder = lease.items.into_iter().find_map(|lease| lease.spec?.holder_identity);
        holder.filter(|holder| !holder.is_empty()).ok_or_else(|| String::from("nobody holds the Lease"))
    }

    /// The ConfigMaps of the service's namespace.
    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The Pods of primary.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let primary = ListParams::default().labels("version=primary");
        Ok(pods.list(&primary).await.map_err(|error| error.to_string())?.items)
    }

    /// What effects change, as it stands.
    pub(super) async fn standing(&self) -> Result<Standing, String> {
        let route = self.get("networking.istio.io", "v1", "VirtualService", "core-trading").await?;
        let target = self.get("trade.io", "v1", "OrderService", "core-trading").await;
        let route_weights = route["spec"]["http"][0]["route"].as_array().cloned().unwrap_or_default();
        Ok(Standing {
            weights: route_weights.iter().filter_map(|route| route["weight"].as_i64()).collect(),
            route: route["spec"].clone(),
            mode: target.ok().and_then(|target| target["metadata"]["annotations"][MODE].as_str().map(str::to_owned)),
            out_of_service: self.out_of_service().await?,
        })
    }

    /// The Pods that the Service does not select.
    async fn out_of_service(&self) -> Result<Vec<String>, String> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), NAMESPACE);
        let service = services.get("core-trading").await.map_err(|error| error.to_string())?;
        let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pods = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let selected = |pod: &Pod| selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value));
        Ok(pods.items.iter().filter(|pod| !selected(pod)).map(ResourceExt::name_any).collect())
    }

    async fn get(&self, group: &str, version: &str, kind: &str, name: &str) -> Result<Value, String> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        let object = objects.get(name).await.map_err(|error| format!("{kind} {name}: {error}"))?;
        Ok(serde_json::to_value(&object).expect("an object is JSON"))
    }
}

/// What effects change.
#[derive(Debug, PartialEq)]
pub(super) struct Standing {
    /// Of primary and of cache-only.
    pub(super) weights: Vec<i64>,
    /// The VirtualService's spec.
    route: Value,
    /// `None`: the annotation is not there.
    pub(super) mode: Option<String>,
    /// Names of Pods.
    pub(super) out_of_service: Vec<String>,
}
