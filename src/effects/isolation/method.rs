//! Taking single Pods out of service and putting them back.
//!
//! A Pod is out of service when no Service selects it or its readiness gate is False. How that is reached is chosen here,
//! from what Pod, Services and controller say; which Pods and how many is decided elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    api::marks::SERVING_GATE,
    model::{effect::IsolatedBy, reason::Reason},
};

/// What controls a Pod, as far as isolation needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// `ReplicaSet`, `StatefulSet`, ….
    pub kind: String,
    /// Its selector; none where it could not be read.
    pub selector: Option<LabelSelector>,
}

/// How a Pod can be taken out of service, or why not.
///
/// By its readiness gate, where it has ours; else by a label that every Service which selects it needs and its
/// controller does not; else by one that both need, so that the controller replaces the Pod. Never the last for a
/// StatefulSet, which would wait for the name to come free, nor where the controller's selector is not known.
pub fn how_isolable(
    pod: &Pod,
    services: &[Arc<Service>],
    controller: Option<&Controller>,
) -> Result<IsolatedBy, Reason> {
    if has_gate(pod) {
        return Ok(IsolatedBy::Gate);
    }
    let labels = labels_of(pod);
    let mut selectors = services.iter().filter_map(|service| selector_of(service)).filter(|one| covers(one, labels));
    let first = selectors.next().ok_or(Reason::NotIsolable)?;
    let rest: Vec<_> = selectors.collect();
    let shared: Vec<&String> = first.keys().filter(|key| rest.iter().all(|one| one.contains_key(*key))).collect();
    let keeps = |key: &str| match controller {
        None => Some(true),
        Some(Controller { selector: None, .. }) => None,
        Some(Controller { selector: Some(selector), .. }) => Some(selects_without(selector, labels, key)),
    };
    let taken = |key: &String, replaced| IsolatedBy::Label {
        key: key.clone(),
        value: labels.get(key).cloned().unwrap_or_default(),
        replaced,
    };
    if let Some(key) = shared.iter().find(|key| keeps(key) == Some(true)) {
        return Ok(taken(key, false));
    }
    let may_be_replaced = controller.is_some_and(|controller| controller.kind != "StatefulSet");
    let key = shared.iter().find(|key| may_be_replaced && keeps(key) == Some(false)).ok_or(Reason::NotIsolable)?;
    Ok(taken(key, true))
}

/// Whether traffic may reach a Pod through a Service: one selects it, and its gate, if it has ours, is not False.
pub fn is_in_service(pod: &Pod, services: &[Arc<Service>]) -> bool {
    let labels = labels_of(pod);
    let is_selected = services.iter().filter_map(|service| selector_of(service)).any(|one| covers(one, labels));
    is_selected && !(has_gate(pod) && gate_status(pod) == Some("False"))
}

/// Whether the Pod has our readiness gate.
pub(crate) fn has_gate(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    gates.iter().any(|gate| gate.condition_type == SERVING_GATE)
}

/// The status of our gate's condition, if it is there.
pub(crate) fn gate_status(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == SERVING_GATE).map(|condition| condition.status.as_str())
}

/// What stands on a Pod that was, or is to be, isolated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodStanding {
    /// It is out of service by our doing.
    Isolated,
    /// It is as it was found.
    Original,
    /// The label has a value that neither we nor the record know.
    Foreign(String),
}

pub(crate) fn standing(pod: &Pod, by: &IsolatedBy) -> PodStanding {
    match by {
        IsolatedBy::Gate if gate_status(pod) == Some("False") => PodStanding::Isolated,
        IsolatedBy::Gate => PodStanding::Original,
        IsolatedBy::Label { key, value, .. } => match labels_of(pod).get(key) {
            None => PodStanding::Isolated,
            Some(found) if found == value => PodStanding::Original,
            Some(found) => PodStanding::Foreign(found.clone()),
        },
    }
}

/// Whether the Pod's controller has let go of it and runs another in its place.
pub(crate) fn was_replaced(pod: &Pod, by: &IsolatedBy) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    matches!(by, IsolatedBy::Label { replaced: true, .. }) && !owners.iter().any(|owner| owner.controller == Some(true))
}

fn labels_of(pod: &Pod) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    pod.metadata.labels.as_ref().unwrap_or(&NONE)
}

/// A Service's selector. One without selects nothing; one that only names an outside host has no endpoints.
fn selector_of(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then_some(selector)
}

fn covers(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether the selector still selects the labels once `without` is taken away.
fn selects_without(selector: &LabelSelector, labels: &BTreeMap<String, String>, without: &str) -> bool {
    let value = |key: &str| labels.get(key).filter(|_| key != without);
    let has_all = selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
    has_all
        && selector.match_expressions.iter().flatten().all(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            let found = value(&expression.key);
            match expression.operator.as_str() {
                "In" => found.is_some_and(|found| values.contains(found)),
                "NotIn" => found.is_none_or(|found| !values.contains(found)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                // An operator of a later Kubernetes: not known to keep the Pod.
                _ => false,
            }
        })
}
#[cfg(test)]
mod tests;
