//! From a policy to what it governs: the target, its Pods and their workload. Reads caches only.
//!
//! Pods are found by the first way that answers, and status says which did: the policy's own selector, the target's
//! scale subresource, ownerReferences, a `spec.selector` on the target, the label `app.kubernetes.io/instance`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::{Selector, SelectorExt};
use serde_json::Value;

use crate::api::marks::MODE_ANNOTATION;
use crate::controller::watches::Caches;
use crate::controller::{routes, selector_text};
use crate::effects;
use crate::model::effect::{Original, Records};
use crate::model::facts::{self, ResolvedBy};
use crate::model::policy::{Action, Policy, TargetRef};
use crate::model::reason::Reason;
use crate::model::slot::{Slot, WorkloadKey};

const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// What was found for one policy.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// For decisions.
    pub(crate) facts: Arc<facts::Target>,
    /// Why the policy cannot be accepted, if the target is missing or of a kind the cluster lacks.
    pub(crate) refused: Option<Reason>,
    /// The live target.
    pub(crate) object: Option<Arc<DynamicObject>>,
    /// The live Pods, for measuring and acting.
    pub(crate) pods: Vec<Arc<Pod>>,
}

/// The live target of a policy.
pub(crate) fn target(caches: &Caches, namespace: &str, target: &TargetRef) -> Result<Arc<DynamicObject>, Reason> {
    let gvk = (target.api_version.clone(), target.kind.clone());
    let kind = caches.targets.get(&gvk).ok_or(Reason::TargetKindNotListed)?;
    if kind.served().is_none() {
        return Err(Reason::TargetKindNotServed);
    }
    kind.cache.get(namespace, &target.name).ok_or(Reason::TargetNotFound)
}

/// Everything about a policy's target. `scale` is the selector of its scale subresource, if it has one.
pub(crate) fn resolve(caches: &Caches, policy: &Policy, scale: Option<&str>, records: &Records) -> Resolved {
    let namespace = &policy.key.namespace;
    let (object, refused) = match target(caches, namespace, &policy.target_ref) {
        Ok(object) => (Some(object), None),
        Err(reason) => (None, Some(reason)),
    };
    let (resolved_by, pods) = match &object {
        Some(object) => find_pods(caches, policy, object, scale),
        None => (ResolvedBy::OwnerReferences, Vec::new()),
    };
    let services = caches.services.in_namespace(namespace);
    let route_of = |named| routes::find(caches, namespace, &policy.target_ref.name, named, &pods, &services);
    let facts = facts::Target {
        uid: object.as_ref().and_then(|object| object.uid()),
        mode: object.as_ref().and_then(|object| object.annotations().get(MODE_ANNOTATION).cloned()),
        workload: if pods.is_empty() {
            Err(refused.unwrap_or(Reason::NoWorkload))
        } else {
            Ok(workload(caches, policy, resolved_by, &pods, &services, records))
        },
        route: route_of(None),
        action_routes: named_routes(policy).map(|(index, named)| (index, route_of(Some(named)))).collect(),
    };
    Resolved { facts: Arc::new(facts), refused, object, pods }
}

/// The actions that name a VirtualService or a route.
fn named_routes(policy: &Policy) -> impl Iterator<Item = (usize, &crate::model::policy::RouteRef)> {
    policy.actions.iter().enumerate().filter_map(|(index, action)| match action {
        Action::CircuitBreaker { route, .. } | Action::RouteWeight { route, .. }
            if route.virtual_service.is_some() || route.route.is_some() =>
        {
            Some((index, route))
        }
        _ => None,
    })
}

fn find_pods(
    caches: &Caches,
    policy: &Policy,
    target: &DynamicObject,
    scale: Option<&str>,
) -> (ResolvedBy, Vec<Arc<Pod>>) {
    let all = caches.pods.in_namespace(&policy.key.namespace);
    let selected = |selector: &Selector| -> Vec<Arc<Pod>> {
        all.iter().filter(|pod| selector.matches(pod.labels())).cloned().collect()
    };
    if let Some(labels) = &policy.pod_selector {
        return (ResolvedBy::PolicySelector, selected(&Selector::from_iter(labels.clone())));
    }
    if let Some(selector) = scale.and_then(selector_text::parse).filter(|s| !s.selects_all()) {
        return (ResolvedBy::ScaleSubresource, selected(&selector));
    }
    if let Some(uid) = target.uid() {
        let owned: Vec<_> = all.iter().filter(|pod| has_ancestor(caches, pod, &uid)).cloned().collect();
        if !owned.is_empty() {
            return (ResolvedBy::OwnerReferences, owned);
        }
    }
    if let Some(selector) = spec_selector(target).filter(|selector| !selector.selects_all()) {
        return (ResolvedBy::TargetSelector, selected(&selector));
    }
    let instance = BTreeMap::from([(INSTANCE_LABEL.to_owned(), target.name_any())]);
    (ResolvedBy::InstanceLabel, selected(&Selector::from_iter(instance)))
}

/// `spec.selector`, as a label selector or as a plain map of labels.
fn spec_selector(target: &DynamicObject) -> Option<Selector> {
    let selector = target.data.get("spec")?.get("selector")?;
    let is_label_selector = selector.get("matchLabels").is_some_and(Value::is_object)
        || selector.get("matchExpressions").is_some_and(Value::is_array);
    if is_label_selector {
        let selector: LabelSelector = serde_json::from_value(selector.clone()).ok()?;
        return Selector::try_from(selector).ok();
    }
    let labels: BTreeMap<String, String> = serde_json::from_value(selector.clone()).ok()?;
    Some(Selector::from_iter(labels))
}

/// The controlling owners of a Pod, nearest first, as far as the caches know them.
fn owners(caches: &Caches, pod: &Pod) -> Vec<OwnerReference> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut chain: Vec<OwnerReference> = Vec::new();
    let mut next = controller_of(pod.owner_references());
    // Real chains have two or three links; the bound is against a cycle.
    while let Some(owner) = next.take().filter(|_| chain.len() < 8) {
        next = match owner.kind.as_str() {
            "ReplicaSet" => caches
                .replica_sets
                .get(&namespace, &owner.name)
                .and_then(|object| controller_of(object.owner_references())),
            "Deployment" => caches
                .deployments
                .get(&namespace, &owner.name)
                .and_then(|object| controller_of(object.owner_references())),
            "StatefulSet" => caches
                .stateful_sets
                .get(&namespace, &owner.name)
                .and_then(|object| controller_of(object.owner_references())),
            "DaemonSet" => caches
                .daemon_sets
                .get(&namespace, &owner.name)
                .and_then(|object| controller_of(object.owner_references())),
            kind => caches
                .targets
                .get(&(owner.api_version.clone(), kind.to_owned()))
                .and_then(|target| target.cache.get(&namespace, &owner.name))
                .and_then(|object| controller_of(object.owner_references())),
        };
        chain.push(owner);
    }
    chain
}

fn controller_of(owners: &[OwnerReference]) -> Option<OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first()).cloned()
}

fn has_ancestor(caches: &Caches, pod: &Pod, uid: &str) -> bool {
    owners(caches, pod).iter().any(|owner| owner.uid == uid)
}

fn workload(
    caches: &Caches,
    policy: &Policy,
    resolved_by: ResolvedBy,
    pods: &[Arc<Pod>],
    services: &[Arc<Service>],
    records: &Records,
) -> facts::Workload {
    let key = workload_key(caches, policy, pods);
    let isolated = isolated_uids(records, &key);
    let pods = pods
        .iter()
        .map(|pod| {
            let uid = pod.uid().unwrap_or_default();
            let controller = controller_of(pod.owner_references()).map(|owner| effects::Controller {
                selector: controller_selector(caches, pod, &owner),
                kind: owner.kind,
            });
            let method = effects::how_isolable(pod, services, controller.as_ref());
            let fact = facts::Pod {
                ready: is_ready(pod),
                terminating: pod.metadata.deletion_timestamp.is_some(),
                isolated: isolated.contains(&uid),
                isolable: method.map(|_| ()),
                uid,
            };
            (pod.name_any(), fact)
        })
        .collect();
    facts::Workload { key, resolved_by, pods }
}

/// The topmost controller of the Pods. Where they have several, the target itself stands for all of them.
fn workload_key(caches: &Caches, policy: &Policy, pods: &[Arc<Pod>]) -> WorkloadKey {
    let tops: BTreeSet<(String, String)> = pods
        .iter()
        .map(|pod| match owners(caches, pod).pop() {
            Some(owner) => (owner.kind, owner.name),
            None => (String::new(), String::new()),
        })
        .collect();
    let namespace = policy.key.namespace.clone();
    match tops.first().filter(|(kind, _)| tops.len() == 1 && !kind.is_empty()) {
        Some((kind, name)) => WorkloadKey { namespace, kind: kind.clone(), name: name.clone() },
        None => WorkloadKey { namespace, kind: policy.target_ref.kind.clone(), name: policy.target_ref.name.clone() },
    }
}

fn isolated_uids(records: &Records, workload: &WorkloadKey) -> BTreeSet<String> {
    let slot = Slot::Isolation { workload: workload.clone() };
    match records.get(&slot).and_then(|record| record.original.as_ref()) {
        Some(Original::Isolated(pods)) => pods.iter().map(|pod| pod.uid.clone()).collect(),
        _ => BTreeSet::new(),
    }
}

/// The selector by which a Pod's controller counts the Pod as its own.
fn controller_selector(caches: &Caches, pod: &Pod, owner: &OwnerReference) -> Option<LabelSelector> {
    let namespace = pod.namespace().unwrap_or_default();
    match owner.kind.as_str() {
        "ReplicaSet" => Some(caches.replica_sets.get(&namespace, &owner.name)?.spec.as_ref()?.selector.clone()),
        "StatefulSet" => Some(caches.stateful_sets.get(&namespace, &owner.name)?.spec.as_ref()?.selector.clone()),
        "DaemonSet" => Some(caches.daemon_sets.get(&namespace, &owner.name)?.spec.as_ref()?.selector.clone()),
        _ => None,
    }
}

/// Ready by its own containers. `Ready` itself is False while our gate is, which says nothing of the Pod.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let of = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    of("ContainersReady").or_else(|| of("Ready")).is_some_and(|condition| condition.status == "True")
}
