//! From a target to its VirtualService route, and from a destination to the Pods behind it. Reads caches only.
//!
//! A route is the one an action names; else that of the VirtualService of the target's name; else the one whose
//! destinations are a Service that selects the target's Pods. None or several is a reason, never a guess.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::controller::watches::Caches;
use crate::model::effect::Destination;
use crate::model::facts::{Route, RouteDestination};
use crate::model::policy::RouteRef;
use crate::model::reason::Reason;
use crate::model::slot::RouteKey;

/// The route of a target, or of an action that names one.
pub(crate) fn find(
    caches: &Caches,
    namespace: &str,
    target_name: &str,
    named: Option<&RouteRef>,
    pods: &[Arc<Pod>],
    services: &[Arc<Service>],
) -> Result<Route, Reason> {
    let cache = &caches.virtual_services.cache;
    let by_name = named.and_then(|named| named.virtual_service.as_deref());
    let object = match by_name {
        Some(name) => cache.get(namespace, name).ok_or(Reason::NoRoute)?,
        None => match cache.get(namespace, target_name) {
            Some(object) => object,
            None => leading_to(&cache.in_namespace(namespace), namespace, pods, services)?,
        },
    };
    let route = pick(&object, named.and_then(|named| named.route.as_deref()))?;
    let destinations = destinations(route).ok_or(Reason::UnsupportedRoute)?;
    let name = route.get("name").and_then(Value::as_str).map(str::to_owned);
    let matches = name.is_none().then(|| canonical_match(route));
    Ok(Route {
        key: RouteKey { namespace: namespace.to_owned(), virtual_service: object.name_any(), name, matches },
        uid: object.uid().unwrap_or_default(),
        destinations: destinations
            .into_iter()
            .map(|(destination, weight)| RouteDestination {
                pods: pods_behind(caches, namespace, &destination, pods, services),
                destination,
                weight,
            })
            .collect(),
    })
}

/// The match of a route without a name, as its key holds it.
fn canonical_match(route: &Value) -> String {
    route.get("match").unwrap_or(&Value::Null).to_string()
}

fn http_routes(object: &DynamicObject) -> &[Value] {
    object.data.get("spec").and_then(|spec| spec.get("http")).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The one http route that is meant.
fn pick<'a>(object: &'a DynamicObject, name: Option<&str>) -> Result<&'a Value, Reason> {
    let routes = http_routes(object);
    if let Some(name) = name {
        let mut found = routes.iter().filter(|route| route.get("name").and_then(Value::as_str) == Some(name));
        return match (found.next(), found.next()) {
            (Some(route), None) => Ok(route),
            (None, _) => Err(Reason::NoRoute),
            (Some(_), Some(_)) => Err(Reason::AmbiguousRoute),
        };
    }
    match routes {
        [] => Err(Reason::NoRoute),
        [route] => Ok(route),
        _ => Err(Reason::AmbiguousRoute),
    }
}

/// Where a route leads; none if it redirects, delegates or answers itself.
fn destinations(route: &Value) -> Option<Vec<(Destination, Option<u32>)>> {
    let entries = route.get("route")?.as_array().filter(|entries| !entries.is_empty())?;
    entries
        .iter()
        .map(|entry| {
            let destination = entry.get("destination")?;
            let host = destination.get("host")?.as_str().filter(|host| !host.is_empty())?.to_owned();
            let subset = destination.get("subset").and_then(Value::as_str).map(str::to_owned);
            let port = destination.get("port").and_then(|port| port.get("number")).and_then(Value::as_u64);
            let weight = entry.get("weight").and_then(Value::as_u64).and_then(|weight| u32::try_from(weight).ok());
            Some((Destination { host, subset, port: port.and_then(|port| u16::try_from(port).ok()) }, weight))
        })
        .collect()
}

/// The one VirtualService with a destination whose Service selects any of the Pods.
fn leading_to(
    objects: &[Arc<DynamicObject>],
    namespace: &str,
    pods: &[Arc<Pod>],
    services: &[Arc<Service>],
) -> Result<Arc<DynamicObject>, Reason> {
    let leads_here = |object: &DynamicObject| {
        http_routes(object).iter().filter_map(destinations).flatten().any(|(destination, _)| {
            services
                .iter()
                .filter(|service| is_host_of(&destination.host, namespace, &service.name_any()))
                .any(|service| pods.iter().any(|pod| selects(service, pod)))
        })
    };
    let mut found = objects.iter().filter(|object| leads_here(object));
    match (found.next(), found.next()) {
        (Some(object), None) => Ok(Arc::clone(object)),
        (None, _) => Err(Reason::NoRoute),
        (Some(_), Some(_)) => Err(Reason::AmbiguousRoute),
    }
}

/// Whether a Service's selector takes in a Pod. A Service without selector takes in none.
pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| !selector.is_empty() && has_labels(pod, selector))
}

fn has_labels(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// `name`, `name.namespace` or any longer name that begins so.
fn is_host_of(host: &str, namespace: &str, service: &str) -> bool {
    let mut labels = host.split('.');
    labels.next() == Some(service) && labels.next().is_none_or(|label| label == namespace)
}

/// The Pods behind a destination: those that its subset's labels pick in the DestinationRule of its host, among the
/// Pods of the Service of that name where there is one.
fn pods_behind(
    caches: &Caches,
    namespace: &str,
    destination: &Destination,
    pods: &[Arc<Pod>],
    services: &[Arc<Service>],
) -> Vec<String> {
    let service = services.iter().find(|service| is_host_of(&destination.host, namespace, &service.name_any()));
    let subset = match &destination.subset {
        Some(subset) => match subset_labels(caches, namespace, &destination.host, subset) {
            Some(labels) => labels,
            None => return Vec::new(),
        },
        None => BTreeMap::new(),
    };
    if service.is_none() && destination.subset.is_none() {
        return Vec::new();
    }
    // An isolated Pod is still one of the subset's, though its Service no longer selects it: only labels that tell
    // subsets apart count once there are any.
    pods.iter()
        .filter(
            |pod| if subset.is_empty() { service.is_some_and(|s| selects(s, pod)) } else { has_labels(pod, &subset) },
        )
        .map(|pod| pod.name_any())
        .collect()
}

fn subset_labels(caches: &Caches, namespace: &str, host: &str, subset: &str) -> Option<BTreeMap<String, String>> {
    let rules = caches.destination_rules.cache.in_namespace(namespace);
    let first_label = host.split('.').next().unwrap_or(host);
    let subsets = rules
        .iter()
        .filter_map(|rule| rule.data.get("spec"))
        .filter(|spec| {
            spec.get("host")
                .and_then(Value::as_str)
                .is_some_and(|of| of == host || is_host_of(of, namespace, first_label))
        })
        .filter_map(|spec| spec.get("subsets").and_then(Value::as_array));
    subsets
        .flatten()
        .find(|entry| entry.get("name").and_then(Value::as_str) == Some(subset))
        .and_then(|entry| serde_json::from_value(entry.get("labels")?.clone()).ok())
}
