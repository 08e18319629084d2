//! What the cluster's objects mean for traffic: the mesh and the kubelet of the simulation.
//!
//! It reads what a real mesh reads (Services, DestinationRules, the VirtualService, Pods) and nothing of ours, so an
//! effect shows only if it would show in a real cluster.

use std::sync::Arc;

use serde_json::{Value, json};

use super::simulation::Traffic;
use crate::api::marks::{MODE_ANNOTATION, NORMAL_MODE, SERVING_GATE};

/// The objects of one namespace.
pub(super) struct Objects<'a> {
    objects: &'a [Arc<Value>],
}

impl<'a> Objects<'a> {
    pub(super) fn of(objects: &'a [Arc<Value>]) -> Self {
        Self { objects }
    }

    fn kind(&self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().map(|object| &**object).filter(move |object| object["kind"] == *kind)
    }

    fn named(&self, kind: &'a str, name: &str) -> Option<&'a Value> {
        self.kind(kind).find(|object| object["metadata"]["name"] == *name)
    }

    /// How traffic to the service of this name is split at the moment.
    pub(super) fn traffic(&self, service: &str) -> Traffic {
        let routes = self.named("VirtualService", service).map(|object| &object["spec"]["http"][0]["route"]);
        let destinations = routes.and_then(Value::as_array).map(|routes| {
            let of = |route: &Value| {
                let subset = route["destination"]["subset"].as_str().unwrap_or_default();
                // A single destination without a weight takes all.
                let weight = route["weight"].as_f64().unwrap_or(if routes.len() == 1 { 100.0 } else { 0.0 });
                (weight, self.serving(service, subset))
            };
            routes.iter().map(of).collect()
        });
        let cached = self.kind("Pod").filter(|pod| {
            pod["metadata"]["annotations"][MODE_ANNOTATION].as_str().is_some_and(|mode| mode != NORMAL_MODE)
        });
        Traffic { destinations: destinations.unwrap_or_default(), cached: cached.map(name_of).collect() }
    }

    /// The Pods that a Service sends requests to, within a subset.
    fn serving(&self, service: &str, subset: &str) -> Vec<String> {
        let empty = Value::Null;
        let selector = self.named("Service", service).map_or(&empty, |object| &object["spec"]["selector"]);
        let subsets = self.named("DestinationRule", service).map_or(&empty, |object| &object["spec"]["subsets"]);
        let subset = subsets.as_array().into_iter().flatten().find(|entry| entry["name"] == *subset);
        let labels = subset.map_or(&empty, |entry| &entry["labels"]);
        let takes = |pod: &&Value| {
            let has = &pod["metadata"]["labels"];
            is_ready(pod)
                && pod["metadata"]["deletionTimestamp"].is_null()
                && within(selector, has)
                && within(labels, has)
        };
        self.kind("Pod").filter(takes).map(name_of).collect()
    }

    /// The Pods whose `Ready` condition does not say what their gates say, with the status they should have: what a
    /// kubelet would write.
    pub(super) fn overdue_readiness(&self) -> Vec<(String, Value)> {
        self.kind("Pod")
            .filter_map(|pod| {
                let ready = should_be_ready(pod);
                (is_ready(pod) != ready).then(|| (name_of(pod), with_ready(pod, ready)))
            })
            .collect()
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn within(wanted: &Value, labels: &Value) -> bool {
    wanted.as_object().is_none_or(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == *kind)
}

fn holds(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| condition["status"] == "True")
}

fn is_ready(pod: &Value) -> bool {
    holds(pod, "Ready")
}

fn should_be_ready(pod: &Value) -> bool {
    let gates = pod["spec"]["readinessGates"].as_array();
    let gated = gates.into_iter().flatten().any(|gate| gate["conditionType"] == SERVING_GATE);
    holds(pod, "ContainersReady") && (!gated || holds(pod, SERVING_GATE))
}

fn with_ready(pod: &Value, ready: bool) -> Value {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(json!({ "type": "Ready", "status": if ready { "True" } else { "False" } }));
    json!({ "status": { "conditions": conditions } })
}
