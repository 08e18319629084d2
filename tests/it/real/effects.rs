//! Effects on a real API server: its field ownership, its guards and its Pod status are as the in-memory one has them.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tradeguard::effects::{Actor, Effects, Error, Outcome, Seen, Wanted, is_in_service};
use tradeguard::model::effect::{Desired, Destination, Holder, Weight};
use tradeguard::model::policy::{ActionKind, PolicyKey, PolicyKind, TargetRef};
use tradeguard::model::reason::Reason;
use tradeguard::model::slot::{RouteKey, Slot, WorkloadKey};

use super::crds::with_definitions;
use crate::support::order_service::KINDS;
use crate::support::parts::User;
use crate::support::wait::wait_until;

const SOON: Duration = Duration::from_mins(1);
const MANAGER: &str = "tradeguard";
const GIT: &str = "argocd";

struct Place {
    namespace: String,
    client: Client,
    effects: Effects,
    now: DateTime<Utc>,
}

impl Place {
    async fn open() -> Self {
        let control_plane = with_definitions().await;
        control_plane.apply(None, KINDS).await;
        let namespace = control_plane.new_namespace("effects").await;
        let client = control_plane.client(User::Admin).await;
        let effects = Effects::new(client.clone(), MANAGER, Duration::from_secs(10));
        let now = DateTime::parse_from_rfc3339("2026-03-02T10:00:00Z").unwrap().to_utc();
        let place = Self { namespace, client, effects, now };
        wait_until("the kinds are served", SOON, async || {
            let listed = place.virtual_services().list(&ListParams::default()).await.map(drop);
            listed.map_err(|error| error.to_string())?;
            place.targets().list(&ListParams::default()).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
        place.furnish().await;
        place
    }

    async fn furnish(&self) {
        let create = PostParams::default();
        let target = json!({"apiVersion": "trade.io/v1", "kind": "OrderService", "metadata": {"name": "orders"}});
        self.targets().create(&create, &serde_json::from_value(target).unwrap()).await.unwrap();
        self.apply_from_git(100, 0).await.unwrap();
        let service = json!({"metadata": {"name": "orders"},
            "spec": {"selector": {"app": "orders"}, "ports": [{"port": 80}]}});
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        services.create(&create, &serde_json::from_value(service).unwrap()).await.unwrap();
        for (name, gates) in [("gated", json!([{"conditionType": "policy.trade.io/serving"}])), ("plain", json!([]))] {
            let pod = json!({"metadata": {"name": name, "labels": {"app": "orders"}},
                "spec": {"containers": [{"name": "orders", "image": "orders"}], "readinessGates": gates}});
            self.pods().create(&create, &serde_json::from_value(pod).unwrap()).await.unwrap();
        }
    }

    fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn virtual_services(&self) -> Api<DynamicObject> {
        self.api("networking.istio.io", "VirtualService")
    }

    fn targets(&self) -> Api<DynamicObject> {
        self.api("trade.io", "OrderService")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// What a GitOps tool does: server-side apply, without force.
    async fn apply_from_git(&self, primary: u32, cache: u32) -> kube::Result<DynamicObject> {
        let to =
            |subset: &str, weight: u32| json!({"destination": {"host": "orders", "subset": subset}, "weight": weight});
        let object = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "orders"},
            "spec": {"hosts": ["orders"],
                "http": [{"name": "orders", "timeout": "5s", "route": [to("primary", primary), to("cache-only", cache)]}]},
        });
        self.virtual_services().patch("orders", &PatchParams::apply(GIT), &Patch::Apply(&object)).await
    }

    fn slots(&self) -> [(Slot, Desired); 3] {
        let namespace = self.namespace.clone();
        let to = |subset: &str, weight| Weight {
            destination: Destination { host: "orders".to_owned(), subset: Some(subset.to_owned()), port: None },
            weight: Some(weight),
        };
        let route = RouteKey {
            namespace: namespace.clone(),
            virtual_service: "orders".to_owned(),
            name: Some("orders".to_owned()),
            matches: None,
        };
        let target =
            TargetRef { api_version: "trade.io/v1".into(), kind: "OrderService".into(), name: "orders".into() };
        let workload = WorkloadKey { namespace: namespace.clone(), kind: "Pod".to_owned(), name: "orders".to_owned() };
        [
            (Slot::Weights { route }, Desired::Weights(vec![to("primary", 0), to("cache-only", 100)])),
            (Slot::Mode { namespace, target }, Desired::Mode("cache-only".to_owned())),
            (Slot::Isolation { workload }, Desired::Isolated(vec!["gated".to_owned(), "plain".to_owned()])),
        ]
    }

    async fn services(&self) -> Vec<Arc<Service>> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        services.list(&ListParams::default()).await.unwrap().items.into_iter().map(Arc::new).collect()
    }

    async fn drive(&self, epoch: i64, slot: &Slot, desired: Option<&Desired>) -> Result<Outcome, Error> {
        let holder = Holder {
            policy: PolicyKey {
                kind: PolicyKind::LatencyBudgetPolicy,
                namespace: self.namespace.clone(),
                name: "orders".to_owned(),
            },
            uid: "u".to_owned(),
            tenant: "default".to_owned(),
            action: ActionKind::CircuitBreaker,
            episode: "e-1".to_owned(),
        };
        let reason = Reason::BreachConfirmed;
        let wanted = desired.map(|desired| Wanted { holder: &holder, desired, target: None, reason });
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items.into_iter().map(Arc::new).collect();
        let seen = Seen { pods, services: self.services().await, object: None };
        let name = tradeguard::api::intervention::name_of(slot);
        let records: Api<tradeguard::api::Intervention> = Api::namespaced(self.client.clone(), &self.namespace);
        let record = records.get_opt(&name).await.unwrap();
        let actor = Actor { name: format!("engine-{epoch}"), epoch };
        let driven = self.effects.drive(&actor, slot, wanted.as_ref(), record.as_ref(), &seen, self.now).await?;
        Ok(driven.outcome)
    }

    /// The objects that effects touch, without what moves with any write.
    async fn objects(&self) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for (api, name) in [
            (self.virtual_services(), "orders"),
            (self.targets(), "orders"),
            (self.api("", "Pod"), "gated"),
            (self.api("", "Pod"), "plain"),
        ] {
            let mut object = api.get(name).await.unwrap();
            object.metadata.resource_version = None;
            object.metadata.generation = None;
            let ours = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
                entry.manager.as_deref() == Some(MANAGER) && entry.subresource.is_none()
            };
            let owned = object.metadata.managed_fields.take().unwrap_or_default().iter().any(ours);
            let mut object = serde_json::to_value(object).unwrap();
            for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
                condition["lastTransitionTime"] = Value::Null;
            }
            all.push(json!({"object": object, "ours": owned}));
        }
        all
    }
}

#[tokio::test]
async fn effects_leave_a_real_cluster_as_they_found_it() {
    let place = Place::open().await;
    let pods = [Arc::new(place.pods().get("gated").await.unwrap())];
    assert_eq!(place.effects.open_gates(&pods, place.now).await.unwrap(), 1);
    let clean = place.objects().await;
    let services = place.services().await;

    for (slot, desired) in place.slots() {
        assert_eq!(place.drive(3, &slot, Some(&desired)).await.unwrap(), Outcome::Applied, "{slot}");
        assert_eq!(place.drive(3, &slot, Some(&desired)).await.unwrap(), Outcome::Unchanged, "{slot}");
        let late = place.drive(2, &slot, None).await.unwrap_err();
        assert!(matches!(late, Error::Fenced { .. }), "{slot}: {late}");
    }
    let weights = &place.virtual_services().get("orders").await.unwrap().data["spec"]["http"][0]["route"];
    assert_eq!((&weights[0]["weight"], &weights[1]["weight"]), (&json!(0), &json!(100)));
    let target = place.targets().get("orders").await.unwrap();
    assert_eq!(target.annotations()["policy.trade.io/mode"], "cache-only");
    for name in ["gated", "plain"] {
        let pod = place.pods().get(name).await.unwrap();
        assert!(!is_in_service(&pod, &services), "{name}");
        assert_eq!(pod.annotations()["policy.trade.io/mode"], "cache-only", "{name}");
    }
    let refused = place.apply_from_git(100, 0).await.unwrap_err();
    assert!(refused.to_string().contains(MANAGER), "the tool learns who holds it: {refused}");

    for (slot, _) in place.slots() {
        assert_eq!(place.drive(4, &slot, None).await.unwrap(), Outcome::Restored, "{slot}");
        assert_eq!(place.drive(4, &slot, None).await.unwrap(), Outcome::Unchanged, "{slot}");
    }
    assert_eq!(place.objects().await, clean, "values, labels, annotations and field ownership");
    place.apply_from_git(80, 20).await.expect("nothing is in the tool's way any more");
}

#[tokio::test]
async fn a_real_object_made_anew_is_another_one() {
    let place = Place::open().await;
    let [(weights, wanted), ..] = place.slots();
    place.drive(1, &weights, Some(&wanted)).await.unwrap();
    place.virtual_services().delete("orders", &DeleteParams::default()).await.unwrap();
    // By chance it begins with just what we had set.
    place.apply_from_git(0, 100).await.unwrap();
    assert_eq!(place.drive(1, &weights, None).await.unwrap(), Outcome::ObjectGone);
    let route = &place.virtual_services().get("orders").await.unwrap().data["spec"]["http"][0]["route"];
    assert_eq!((&route[0]["weight"], &route[1]["weight"]), (&json!(0), &json!(100)), "not touched");
}
