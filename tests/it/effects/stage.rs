//! A small order service in a memkube, an engine's client that can be killed, and an outsider who edits.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tower::Layer;
use tradeguard::{
    api::{Intervention, intervention::name_of},
    clock::Clock,
    effects::{Actor, Driven, Effects, Outcome, Result, Seen, Wanted},
    memkube::{Kind, MemKube, Options, fault::Faults},
    model::{
        effect::{Desired, Destination, Holder, Weight},
        policy::{ActionKind, PolicyKey, PolicyKind, TargetRef},
        reason::Reason,
        slot::{RouteKey, Slot, WorkloadKey},
    },
};

pub(super) const NAMESPACE: &str = "trading";
pub(super) const MANAGER: &str = "tradeguard";

const OBJECTS: &str = r"
apiVersion: trade.io/v1
kind: OrderService
metadata: {name: core-trading, namespace: trading, annotations: {team: orders}}
spec: {replicas: 3}
---
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: trading}
spec: {selector: {app: orders, track: live}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: orders-metrics, namespace: trading}
spec: {selector: {track: live}, ports: [{port: 90}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: orders, namespace: trading}
spec: {replicas: 3, selector: {matchLabels: {app: orders}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: core-trading, namespace: trading}
spec:
  hosts: [core-trading]
  http:
  - name: health
    match: [{uri: {exact: /healthz}}]
    route: [{destination: {host: core-trading, subset: primary}}]
  - name: orders
    timeout: 5s
    notKnownToUs: {a: [1, 2]}
    route:
    - destination: {host: core-trading, subset: primary}
      weight: 100
      headers: {request: {set: {x: y}}}
    - destination: {host: core-trading, subset: cache-only}
";

pub(super) struct Stage {
    pub(super) memkube: MemKube,
    pub(super) faults: Faults,
    pub(super) effects: Effects,
    pub(super) outsider: Client,
    pub(super) start: DateTime<Utc>,
}

/// What is written down of a slot and of the objects beneath it, for comparisons.
#[derive(Debug, PartialEq)]
pub(super) struct Snapshot(Vec<Value>);

impl Stage {
    pub(super) async fn open() -> Self {
        let start = DateTime::parse_from_rfc3339("2026-03-02T10:00:00Z").unwrap().to_utc();
        let memkube = MemKube::new(Options::new(Clock::scaled(start, 1.0)));
        memkube.add_namespace(NAMESPACE);
        memkube.register(Kind::custom("trade.io", "v1", "OrderService", "orderservices"));
        memkube.register(Kind::custom("networking.istio.io", "v1", "VirtualService", "virtualservices"));
        memkube.load(intervention_definition()).unwrap();
        memkube.load(OBJECTS).unwrap();
        let outsider = memkube.client("kubectl");
        let faults = Faults::default();
        let client = Client::new(faults.layer(memkube.service("engine")), "default");
        let effects = Effects::new(client, MANAGER, Duration::from_secs(5));
        let stage = Self { memkube, faults, effects, outsider, start };
        for index in 0..3 {
            stage.add_pod(&format!("orders-{index}"), false).await;
        }
        stage
    }

    /// A Pod of the ReplicaSet; with our readiness gate or without.
    pub(super) async fn add_pod(&self, name: &str, gated: bool) {
        let owner: Api<DynamicObject> = self.api("apps", "v1", "ReplicaSet", "replicasets");
        let uid = owner.get("orders").await.unwrap().uid().unwrap();
        let gates = if gated { json!([{"conditionType": "policy.trade.io/serving"}]) } else { json!([]) };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "orders", "track": "live"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "orders", "uid": uid,
                    "controller": true}]},
            "spec": {"containers": [{"name": "orders", "image": "orders"}], "readinessGates": gates},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.memkube.load(&pod.to_string()).unwrap();
    }

    pub(super) fn api(&self, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::namespaced_with(self.outsider.clone(), NAMESPACE, &resource)
    }

    pub(super) fn virtual_services(&self) -> Api<DynamicObject> {
        self.api("networking.istio.io", "v1", "VirtualService", "virtualservices")
    }

    pub(super) fn targets(&self) -> Api<DynamicObject> {
        self.api("trade.io", "v1", "OrderService", "orderservices")
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.outsider.clone(), NAMESPACE)
    }

    pub(super) async fn pod(&self, name: &str) -> Pod {
        self.pods().get(name).await.unwrap()
    }

    pub(super) async fn record(&self, slot: &Slot) -> Option<Intervention> {
        let api: Api<Intervention> = Api::namespaced(self.outsider.clone(), NAMESPACE);
        api.get_opt(&name_of(slot)).await.unwrap()
    }

    /// What a controller's caches would hold.
    pub(super) async fn seen(&self, slot: &Slot) -> Seen {
        let all = ListParams::default();
        let services: Api<Service> = Api::namespaced(self.outsider.clone(), NAMESPACE);
        let object = match slot {
            Slot::Weights { .. } => self.virtual_services().get_opt("core-trading").await.unwrap(),
            Slot::Mode { .. } => self.targets().get_opt("core-trading").await.unwrap(),
            Slot::Isolation { .. } => None,
        };
        Seen {
            pods: self.pods().list(&all).await.unwrap().items.into_iter().map(Arc::new).collect(),
            services: services.list(&all).await.unwrap().items.into_iter().map(Arc::new).collect(),
            object: object.map(Arc::new),
        }
    }

    /// One step by an actor of this epoch, `seconds` after the start, with caches as fresh as can be.
    pub(super) async fn drive_as(
        &self,
        epoch: i64,
        slot: &Slot,
        wanted: Option<(&Holder, &Desired)>,
        seconds: i64,
    ) -> Result<Driven> {
        let actor = Actor { name: format!("engine-{epoch}"), epoch };
        let target = target();
        let wanted = wanted.map(|(holder, desired)| Wanted {
            holder,
            desired,
            target: Some(&target),
            reason: Reason::BreachConfirmed,
        });
        let record = self.record(slot).await;
        let seen = self.seen(slot).await;
        let now = self.start + TimeDelta::seconds(seconds);
        self.effects.drive(&actor, slot, wanted.as_ref(), record.as_ref(), &seen, now).await
    }

    pub(super) async fn drive(&self, slot: &Slot, wanted: Option<&Desired>, seconds: i64) -> Outcome {
        let holder = holder("order-processing");
        let wanted = wanted.map(|desired| (&holder, desired));
        self.drive_as(1, slot, wanted, seconds).await.unwrap().outcome
    }

    /// A JSON merge patch by somebody else.
    pub(super) async fn edit(&self, api: &Api<DynamicObject>, name: &str, patch: Value) {
        let params = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        api.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn edit_pod(&self, name: &str, patch: Value) {
        self.edit(&self.api("", "v1", "Pod", "pods"), name, patch).await;
    }

    /// Somebody else sets the weights of the route `orders`.
    pub(super) async fn set_weights(&self, primary: u32, cache: Value) {
        let mut routes = self.virtual_services().get("core-trading").await.unwrap().data["spec"]["http"].clone();
        routes[1]["route"][0]["weight"] = json!(primary);
        match cache {
            Value::Null => drop(routes[1]["route"][1].as_object_mut().unwrap().remove("weight")),
            cache => routes[1]["route"][1]["weight"] = cache,
        }
        self.edit(&self.virtual_services(), "core-trading", json!({"spec": {"http": routes}})).await;
    }

    /// The weights of the route `orders` as written.
    pub(super) async fn weights(&self) -> (Value, Value) {
        let object = self.virtual_services().get("core-trading").await.unwrap();
        let route = &object.data["spec"]["http"][1]["route"];
        (route[0]["weight"].clone(), route[1]["weight"].clone())
    }

    /// Every object that is not ours, without what moves with any write.
    pub(super) fn snapshot(&self) -> Snapshot {
        let kept = self.memkube.everything();
        let foreign = kept.iter().filter(|object| object["kind"] != "Intervention");
        Snapshot(foreign.map(|object| comparable(object)).collect())
    }

    /// Managers other than the main resource's owners do not matter here: whether a trace of ours is in managedFields.
    pub(super) fn owned_by_us(&self) -> Vec<String> {
        let objects = self.memkube.everything();
        let is_ours = |entry: &Value| entry["manager"] == MANAGER && entry["subresource"].is_null();
        let owned = objects.iter().filter(|object| {
            object["kind"] != "Intervention"
                && object["metadata"]["managedFields"].as_array().into_iter().flatten().any(is_ours)
        });
        owned.map(|object| format!("{}/{}", object["kind"], object["metadata"]["name"])).collect()
    }
}

/// Printed once; stages are opened by the hundred.
fn intervention_definition() -> &'static str {
    static YAML: OnceLock<String> = OnceLock::new();
    YAML.get_or_init(|| {
        let all = tradeguard::api::crd::all();
        tradeguard::api::crd::to_yaml(all.iter().find(|crd| crd.spec.names.kind == "Intervention").unwrap())
    })
}

fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for moving in ["resourceVersion", "managedFields", "generation"] {
            metadata.remove(moving);
        }
    }
    // An open gate stays behind on purpose: without it the Pod would not be ready.
    for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "policy.trade.io/serving" {
            *condition = json!({"type": condition["type"], "status": condition["status"]});
        }
    }
    object
}

pub(super) fn target() -> TargetRef {
    TargetRef { api_version: "trade.io/v1".into(), kind: "OrderService".into(), name: "core-trading".into() }
}

pub(super) fn holder(policy: &str) -> Holder {
    Holder {
        policy: PolicyKey {
            kind: PolicyKind::LatencyBudgetPolicy,
            namespace: NAMESPACE.to_owned(),
            name: policy.to_owned(),
        },
        uid: format!("uid-of-{policy}"),
        tenant: "default".to_owned(),
        action: ActionKind::CircuitBreaker,
        episode: format!("{policy}-1"),
    }
}

pub(super) fn weights_slot() -> Slot {
    let route = RouteKey {
        namespace: NAMESPACE.to_owned(),
        virtual_service: "core-trading".to_owned(),
        name: Some("orders".to_owned()),
        matches: None,
    };
    Slot::Weights { route }
}

pub(super) fn mode_slot() -> Slot {
    Slot::Mode { namespace: NAMESPACE.to_owned(), target: target() }
}

pub(super) fn isolation_slot() -> Slot {
    let workload =
        WorkloadKey { namespace: NAMESPACE.to_owned(), kind: "ReplicaSet".to_owned(), name: "orders".to_owned() };
    Slot::Isolation { workload }
}

pub(super) fn weights(primary: u32, cache: u32) -> Desired {
    let weight = |subset: &str, weight| Weight {
        destination: Destination { host: "core-trading".to_owned(), subset: Some(subset.to_owned()), port: None },
        weight: Some(weight),
    };
    Desired::Weights(vec![weight("primary", primary), weight("cache-only", cache)])
}

pub(super) fn mode(mode: &str) -> Desired {
    Desired::Mode(mode.to_owned())
}

pub(super) fn isolated(pods: &[&str]) -> Desired {
    Desired::Isolated(pods.iter().map(|&pod| pod.to_owned()).collect())
}
