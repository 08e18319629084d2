//! A simulated world with engines in it that a test starts, stops, kills and cuts off. Time is simulated: it jumps to
//! whatever happens next, so waiting costs nothing and a deadline is exact.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tradeguard::clock::Clock;
use tradeguard::demo::instance::{Instance, Measuring, Settings};
use tradeguard::demo::policy_files::apply;
use tradeguard::demo::simulation::Faults as Trouble;
use tradeguard::demo::world::{NAMESPACE, OWN_NAMESPACE, SERVICE, World};
use tradeguard::memkube::fault::{Fault, Faults, Matching};
use tradeguard::memkube::{Access, Counts};
use tradeguard::model::view::{PolicyView, Role, View};
use tradeguard::rego::Rule;

/// How long the Lease lasts in these tests.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// A kind that the configuration lists and the cluster does not have.
pub(super) const UNSERVED_KIND: (&str, &str) = ("trade.io/v1", "ClearingService");

pub(super) const POLICIES: &str = "latencybudgetpolicies.policy.trade.io";
pub(super) const ROUTES: &str = "virtualservices.networking.istio.io";
pub(super) const TARGETS: &str = "orderservices.trade.io";
pub(super) const RECORDS: &str = "interventions.policy.trade.io";

/// The order service, well, and its load.
pub(super) struct Scene {
    pub(super) world: World,
    /// The objects that effects change, before any.
    before: Vec<Value>,
    state: tempfile::TempDir,
    stop: CancellationToken,
    going: Option<JoinHandle<()>>,
}

/// An engine, and what is wrong on its way to the API server.
pub(super) struct Engine {
    pub(super) instance: Instance,
    pub(super) faults: Faults,
}

impl Engine {
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.instance.view.borrow())
    }

    pub(super) fn acts(&self) -> bool {
        self.view().role == Role::Actor
    }

    /// What it shows of a policy.
    pub(super) fn policy(&self, name: &str) -> Option<Arc<PolicyView>> {
        let view = self.view();
        view.policies.iter().find(|(key, _)| key.name == name).map(|(_, policy)| Arc::clone(policy))
    }

    pub(super) async fn stop(self) {
        self.instance.stop().await;
    }

    pub(super) fn kill(self) {
        self.instance.kill();
    }

    /// The API server goes away: open watches break, nothing is answered.
    pub(super) fn lose_api(&self) {
        self.faults.inject(Matching::default(), Fault::Unreachable);
        self.faults.cut_watches();
    }
}

/// A breaker that opens after 20 s and stays open for `timeout` at least.
pub(super) fn breaker(name: &str, timeout: &str) -> Value {
    json!({
        "apiVersion": "policy.trade.io/v1alpha2",
        "kind": "LatencyBudgetPolicy",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": SERVICE},
            "interval": "5s",
            "window": "20s",
            "thresholds": {"p99": "800ms", "duration": "20s"},
            "actions": [{"type": "circuit-breaker", "config": {"timeout": timeout, "fallback": "cache-only"}}],
        },
    })
}

impl Scene {
    pub(super) fn open() -> Self {
        let start = DateTime::from_timestamp(1_800_000_000, 0).expect("is a time");
        let world = World::new(Clock::scaled(start, 1.0), 7);
        let stop = CancellationToken::new();
        let going = tokio::spawn({
            let (world, stop) = (world.clone(), stop.clone());
            async move { world.run(stop).await }
        });
        let before = ["VirtualService", "OrderService"].map(|kind| object(&world, kind, SERVICE));
        let state = tempfile::tempdir().expect("a folder for events");
        Self { world, before: before.to_vec(), state, stop, going: Some(going) }
    }

    /// An engine of this name; its API requests are counted under it.
    pub(super) async fn engine(&self, name: &str) -> Engine {
        self.engine_measuring(name, Measuring::of_pods(&self.world)).await
    }

    pub(super) async fn engine_measuring(&self, name: &str, measuring: Measuring) -> Engine {
        let faults = Faults::default();
        let client = kube::Client::new(faults.layer(self.world.memkube.service(name)), "default");
        let state_dir = self.state.path().join(name);
        let settings = Settings {
            name,
            client,
            state_dir: &state_dir,
            lease: LEASE,
            latency_rule: Rule::shipped_latency_budget(),
            measuring,
            further_kinds: &[UNSERVED_KIND],
        };
        let instance = Instance::start(&self.world, settings).await.expect("the engine starts");
        Engine { instance, faults }
    }

    /// An engine that acts already.
    pub(super) async fn acting_engine(&self, name: &str) -> Engine {
        let engine = self.engine(name).await;
        self.until("it acts", 60, || engine.acts()).await;
        engine
    }

    pub(super) async fn apply(&self, object: &Value) {
        self.try_apply(object).await.expect("is accepted");
    }

    pub(super) async fn try_apply(&self, object: &Value) -> Result<(), String> {
        apply(&self.world, Path::new("test.yaml"), object).await.map_err(|problem| problem.to_string())
    }

    pub(super) async fn freeze(&self, mode: &str) {
        let metadata = json!({"name": "tradeguard-freeze", "namespace": OWN_NAMESPACE});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mode": mode}});
        self.apply(&object).await;
    }

    /// An API of one kind in the service's namespace, as an outsider sees it.
    pub(super) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.world.memkube.client("kubectl"), NAMESPACE, &resource)
    }

    pub(super) async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        self.api(api_version, kind).delete(name, &DeleteParams::default()).await.expect("is deleted");
    }

    /// Deletes an object of ours that lies in no namespace.
    pub(super) async fn delete_cluster(&self, kind: &str, name: &str) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("policy.trade.io", "v1alpha2", kind));
        let objects: Api<DynamicObject> = Api::all_with(self.world.memkube.client("kubectl"), &resource);
        objects.delete(name, &DeleteParams::default()).await.expect("is deleted");
    }

    pub(super) async fn delete_policy(&self, name: &str) {
        self.delete("policy.trade.io/v1alpha2", "LatencyBudgetPolicy", name).await;
    }

    /// A merge patch of a policy's spec, as `kubectl patch` sends it.
    pub(super) async fn edit(&self, name: &str, spec: Value) {
        let api = self.api("policy.trade.io/v1alpha2", "LatencyBudgetPolicy");
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(name, &PatchParams::default(), &patch).await.expect("the edit is accepted");
    }

    /// Every request that goes to the exchange becomes slow.
    pub(super) fn breach(&self) {
        self.world.set_faults(Trouble { exchange: 1.5, ..Trouble::default() });
    }

    /// These Pods become slow.
    pub(super) fn slow_pods(&self, pods: &[&str]) {
        let pods = pods.iter().map(|pod| ((*pod).to_owned(), 2.0)).collect();
        self.world.set_faults(Trouble { pods, exchange: 0.0 });
    }

    pub(super) fn well_again(&self) {
        self.world.set_faults(Trouble::default());
    }

    /// Lets time pass.
    pub(super) async fn rest(&self, seconds: u64) {
        for _ in 0..seconds {
            self.world.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits for `condition`, looking once a simulated second, and returns how many that took.
    pub(super) async fn until(&self, what: &str, limit: u64, condition: impl Fn() -> bool) -> u64 {
        for waited in 0..=limit {
            if condition() {
                return waited;
            }
            self.rest(1).await;
        }
        panic!("{what}: not within {limit} s\n{}", self.story());
    }

    /// Makes everything slow and waits until a policy is Active with all effects of a breaker in place.
    pub(super) async fn until_open(&self, name: &str) {
        self.breach();
        self.until("the breaker is open", 90, || self.phase(name) == "Active" && self.stands()).await;
    }

    pub(super) fn status(&self, name: &str) -> Value {
        self.policy(name).map_or(Value::Null, |policy| policy["status"].clone())
    }

    pub(super) fn policy(&self, name: &str) -> Option<Value> {
        self.world.object("LatencyBudgetPolicy", name).map(|policy| Value::clone(&policy))
    }

    pub(super) fn phase(&self, name: &str) -> String {
        self.status(name)["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// `True InvalidPolicy: spec.interval …`.
    pub(super) fn condition(&self, name: &str, kind: &str) -> String {
        let status = self.status(name);
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.map_or_else(String::new, |found| {
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", text("status"), text("reason"), text("message"))
        })
    }

    pub(super) fn finalizers(&self, name: &str) -> Vec<String> {
        let policy = self.policy(name).unwrap_or_default();
        let finalizers = policy["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
    }

    /// The weights of primary and cache-only.
    pub(super) fn weights(&self) -> (i64, i64) {
        let route = object(&self.world, "VirtualService", SERVICE);
        let weight = |index: usize| route["spec"]["http"][0]["route"][index]["weight"].as_i64().unwrap_or(0);
        (weight(0), weight(1))
    }

    /// The mode of the target, as its annotation says; none: `normal`.
    pub(super) fn mode(&self) -> Option<String> {
        let target = self.world.object("OrderService", SERVICE)?;
        target["metadata"]["annotations"]["policy.trade.io/mode"].as_str().map(str::to_owned)
    }

    fn pods(&self) -> Vec<Arc<Value>> {
        let all = self.world.memkube.everything().into_iter();
        all.filter(|object| object["kind"] == "Pod" && object["metadata"]["namespace"] == NAMESPACE).collect()
    }

    /// The Pods of a mode.
    pub(super) fn pods_in(&self, mode: &str) -> Vec<String> {
        let pods = self.pods();
        let in_mode = pods.iter().filter(|pod| pod["metadata"]["annotations"]["policy.trade.io/mode"] == mode);
        in_mode.map(|pod| name_of(pod)).collect()
    }

    /// The Pods whose readiness gate is False.
    pub(super) fn isolated(&self) -> Vec<String> {
        let is_out = |pod: &&Arc<Value>| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "policy.trade.io/serving" && one["status"] == "False")
        };
        self.pods().iter().filter(is_out).map(|pod| name_of(pod)).collect()
    }

    /// Whether mode and weights of a breaker stand.
    pub(super) fn stands(&self) -> bool {
        self.mode().as_deref() == Some("cache-only")
            && self.weights() == (0, 100)
            && self.pods_in("cache-only").len() == 7
    }

    pub(super) fn interventions(&self) -> Vec<Value> {
        let all = self.world.memkube.everything().into_iter();
        all.filter(|object| object["kind"] == "Intervention").map(|object| Value::clone(&object)).collect()
    }

    /// The intervention of the first slot of this kind.
    pub(super) fn intervention(&self, slot: &str) -> Value {
        let mut all = self.interventions().into_iter();
        all.find(|one| one["spec"]["slot"]["kind"] == slot).unwrap_or_default()
    }

    /// Whether nothing of any effect is left, and everything is as it was found.
    pub(super) fn is_untouched(&self) -> bool {
        self.traces().is_empty()
    }

    fn traces(&self) -> Vec<String> {
        let mut traces = Vec::new();
        for before in &self.before {
            let kind = before["kind"].as_str().unwrap_or_default();
            let Some(now) = self.world.object(kind, SERVICE) else { continue };
            for field in ["spec", "status"] {
                if now[field] != before[field] {
                    traces.push(format!("{kind}: {field} is {}", now[field]));
                }
            }
            for field in ["annotations", "labels"] {
                if now["metadata"][field] != before["metadata"][field] {
                    traces.push(format!("{kind}: {field} are {}", now["metadata"][field]));
                }
            }
            if now["metadata"]["managedFields"].to_string().contains("tradeguard") {
                traces.push(format!("{kind}: {}", now["metadata"]["managedFields"]));
            }
        }
        for pod in self.pods() {
            if !pod["metadata"]["annotations"].is_null() {
                traces.push(format!("{}: {}", name_of(&pod), pod["metadata"]["annotations"]));
            }
        }
        traces.extend(self.isolated().into_iter().map(|pod| format!("{pod} is isolated")));
        let unfinished = self.interventions().into_iter().filter(|one| one["status"]["phase"] != "Restored");
        traces.extend(unfinished.map(|one| format!("intervention {}", one["spec"]["slot"])));
        traces
    }

    /// Waits until nothing of any effect is left.
    pub(super) async fn until_untouched(&self, limit: u64) -> u64 {
        self.until("everything is as it was found", limit, || self.is_untouched()).await
    }

    /// What was asked of the API server until now.
    pub(super) fn counts(&self) -> Counts {
        self.world.memkube.counts()
    }

    /// Writes to the objects that effects change, and to the records of effects.
    pub(super) fn effect_writes(&self, since: &Counts) -> u64 {
        let counts =
            self.counts().since(since).only(|access: &Access| access.client != "kubelet" && access.client != "kubectl");
        [ROUTES, TARGETS, RECORDS, "pods"].map(|resource| counts.of(resource).writes()).iter().sum()
    }

    /// Everything that a failed wait should tell.
    fn story(&self) -> String {
        let objects = self.world.memkube.everything();
        let policies = objects.iter().filter(|object| object["kind"] == "LatencyBudgetPolicy");
        let policies: Vec<String> = policies
            .map(|policy| format!("{} {} {:#}", name_of(policy), policy["metadata"]["finalizers"], policy["status"]))
            .collect();
        format!("traces: {:#?}\nweights: {:?}\n{}", self.traces(), self.weights(), policies.join("\n"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(going) = self.going.take() {
            going.abort();
        }
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn object(world: &World, kind: &str, name: &str) -> Value {
    let object = world.object(kind, name).unwrap_or_else(|| panic!("there is a {kind} {name}"));
    Value::clone(&object)
}
