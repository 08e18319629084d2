//! Who gets the next request, by what the cluster says at that moment: the first HTTP route of the service's
//! VirtualService, the subsets of its DestinationRule, the selectors of Services, and which Pods are Ready.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;

/// The routes of one service of one namespace, as its watches have shown them last.
pub(super) struct Mesh {
    service: String,
    virtual_services: Store<DynamicObject>,
    destination_rules: Store<DynamicObject>,
    services: Store<Service>,
    pods: Store<Pod>,
    /// What each destination is owed, so that ten requests at 90/10 are nine and one.
    owed: BTreeMap<String, i64>,
    /// The requests that each destination had, to take its Pods in turn.
    turns: BTreeMap<String, usize>,
}

impl Mesh {
    /// Watches from a task in `tasks` for each kind.
    pub(super) fn watch(client: Client, namespace: &str, service: &str, tasks: &mut JoinSet<()>) -> Self {
        let istio = |kind| ApiResource::from_gvk(&GroupVersionKind::gvk("networking.istio.io", "v1", kind));
        let (routes, rules) = (istio("VirtualService"), istio("DestinationRule"));
        Self {
            service: service.to_owned(),
            virtual_services: follow(Api::namespaced_with(client.clone(), namespace, &routes), routes, tasks),
            destination_rules: follow(Api::namespaced_with(client.clone(), namespace, &rules), rules, tasks),
            services: follow(Api::namespaced(client.clone(), namespace), (), tasks),
            pods: follow(Api::namespaced(client, namespace), (), tasks),
            owed: BTreeMap::new(),
            turns: BTreeMap::new(),
        }
    }

    /// The Pod that gets the next request; `None` is a request that finds nobody.
    pub(super) fn next_pod(&mut self) -> Option<String> {
        let destinations = self.destinations();
        let total: i64 = destinations.iter().map(|destination| destination.weight).sum();
        // Smooth weighted round robin: all are credited their weight, the one owed most pays for all.
        for destination in &destinations {
            *self.owed.entry(destination.key()).or_default() += destination.weight;
        }
        let weighty = destinations.iter().filter(|destination| destination.weight > 0);
        let chosen = weighty.max_by_key(|destination| self.owed[&destination.key()])?;
        *self.owed.entry(chosen.key()).or_default() -= total;
        let pods = self.pods_of(chosen);
        let turn = self.turns.entry(chosen.key()).or_default();
        *turn += 1;
        pods.get(*turn % pods.len().max(1)).cloned()
    }

    /// Without a VirtualService, all goes to the Service itself.
    fn destinations(&self) -> Vec<Destination> {
        let routed = named(&self.virtual_services, &self.service).and_then(|virtual_service| {
            let routes = virtual_service.data["spec"]["http"][0]["route"].as_array()?;
            Some(routes.iter().map(|route| Destination::of(route, routes.len())).collect())
        });
        routed.unwrap_or_else(|| vec![Destination { host: self.service.clone(), subset: None, weight: 1 }])
    }

    fn pods_of(&self, destination: &Destination) -> Vec<String> {
        let Some(service) = named(&self.services, &destination.host) else { return Vec::new() };
        let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.clone()) else { return Vec::new() };
        let Some(subset) = self.subset_labels(destination) else { return Vec::new() };
        let wanted: Vec<_> = selector.into_iter().chain(subset).collect();
        let pods = self.pods.state();
        let reached = pods.iter().filter(|pod| is_ready(pod) && has_labels(pod, &wanted));
        let mut names: Vec<_> = reached.map(|pod| pod.name_any()).collect();
        names.sort();
        names
    }

    /// `None` is a subset that nobody defined: such traffic finds nobody, as in Istio.
    fn subset_labels(&self, destination: &Destination) -> Option<BTreeMap<String, String>> {
        let Some(subset) = &destination.subset else { return Some(BTreeMap::new()) };
        let rules = self.destination_rules.state();
        let of_host = rules.iter().find(|rule| rule.data["spec"]["host"] == *destination.host)?;
        let subsets = of_host.data["spec"]["subsets"].as_array()?;
        let found = subsets.iter().find(|candidate| candidate["name"] == **subset)?;
        serde_json::from_value(found["labels"].clone()).ok()
    }
}

struct Destination {
    host: String,
    subset: Option<String>,
    weight: i64,
}

impl Destination {
    fn of(route: &Value, siblings: usize) -> Self {
        Self {
            host: route["destination"]["host"].as_str().unwrap_or_default().to_owned(),
            subset: route["destination"]["subset"].as_str().map(str::to_owned),
            // Istio: the only destination of a route needs no weight, among several none is zero.
            weight: route["weight"].as_i64().unwrap_or(i64::from(siblings == 1)),
        }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.host, self.subset.as_deref().unwrap_or_default())
    }
}

/// A cache of a kind's objects in one namespace, kept by a task. While the API server is away it stays as it was.
fn follow<K>(api: Api<K>, kind: K::DynamicType, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let writer = reflector::store::Writer::new(kind);
    let store = writer.as_reader();
    let events = reflector::reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
    tasks.spawn(async move { events.for_each(async |_| {}).await });
    store
}

fn named<K>(store: &Store<K>, name: &str) -> Option<std::sync::Arc<K>>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    store.find(|object| object.meta().name.as_deref() == Some(name))
}

fn has_labels(pod: &Pod, wanted: &[(String, String)]) -> bool {
    wanted.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
