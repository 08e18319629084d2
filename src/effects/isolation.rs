//! The slot "isolation in a workload": which Pods are out of service, and getting them back.
//!
//! Each Pod is recorded with its uid and with the exact key and value that was taken away, before it is touched.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
use serde_json::{Value, json};

use super::{
    Effects,
    drive::{Freshness, Hold, Seen, Standing},
    error::{Error, Result},
    objects::{Objects, Place, Version},
    record::Held,
};
use crate::{
    api::marks::SERVING_GATE,
    model::{
        effect::{Desired, IsolatedBy, IsolatedPod, Original},
        reading::PodName,
        slot::Slot,
    },
};
use method::{Controller, PodStanding};

pub(crate) mod method;

pub(crate) struct IsolationSlot<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) slot: &'a Slot,
    pub(crate) namespace: &'a str,
    pub(crate) seen: &'a Seen,
    pub(crate) now: DateTime<Utc>,
}

/// The Pods that record and wish are about, as read.
pub(crate) struct Live {
    pods: BTreeMap<PodName, Arc<Pod>>,
    /// Whether Pods were recorded and none of them is there any more.
    all_gone: bool,
}

impl Live {
    /// The recorded Pod, if it is still that one and stays.
    fn get(&self, entry: &IsolatedPod) -> Option<&Pod> {
        let pod = self.pods.get(&entry.name)?;
        let is_it = pod.metadata.uid.as_deref() == Some(&entry.uid) && pod.metadata.deletion_timestamp.is_none();
        is_it.then_some(&**pod)
    }
}

impl IsolationSlot<'_> {
    fn misfit(&self) -> Error {
        Error::Misfit { slot: Box::new(self.slot.clone()), what: "a value that is no list of Pods" }
    }

    fn entries<'v>(&self, value: &'v Original) -> Result<&'v [IsolatedPod]> {
        if let Original::Isolated(entries) = value { Ok(entries) } else { Err(self.misfit()) }
    }

    async fn find(&self, name: &str, how: Freshness) -> Result<Option<Arc<Pod>>> {
        match how {
            Freshness::Cached => {
                Ok(self.seen.pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name)).cloned())
            }
            Freshness::Live => Ok(self.objects.get_pod(self.namespace, name).await?.map(Arc::new)),
        }
    }

    /// How a Pod is to be taken out; none where it cannot be, or is on its way out by itself.
    async fn method_for(&self, name: &str, pod: &Pod) -> Result<Option<IsolatedPod>> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let controller = controller_of(self.objects, self.namespace, pod).await?;
        match method::how_isolable(pod, &self.seen.services, controller.as_ref()) {
            Ok(by) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                Ok(Some(IsolatedPod { name: name.to_owned(), uid, by }))
            }
            Err(reason) => {
                // The plan counted on it; what Services select has changed since.
                tracing::warn!(slot = %self.slot, pod = name, %reason, "a Pod cannot be taken out of service");
                Ok(None)
            }
        }
    }

    async fn take_out(&self, pod: &Pod, entry: &IsolatedPod) -> Result<()> {
        let place = Place::pod(self.namespace, &entry.name);
        match &entry.by {
            IsolatedBy::Gate => set_gate(self.objects, &place, pod, false, self.now).await,
            IsolatedBy::Label { key, .. } => self.label(&place, pod, key, &Value::Null).await,
        }
    }

    /// Puts a Pod back into service, unless somebody else's value stands there; one that its ReplicaSet has replaced
    /// goes, since put back it would be one too many.
    async fn put_back(&self, pod: &Pod, entry: &IsolatedPod) -> Result<()> {
        let place = Place::pod(self.namespace, &entry.name);
        if method::standing(pod, &entry.by) == PodStanding::Isolated {
            match &entry.by {
                by if method::was_replaced(pod, by) => return self.objects.delete(&place, &entry.uid).await,
                IsolatedBy::Gate => set_gate(self.objects, &place, pod, true, self.now).await?,
                IsolatedBy::Label { key, value, .. } => self.label(&place, pod, key, &json!(value)).await?,
            }
        }
        self.objects.release_ownership(&place, &entry.uid).await
    }

    async fn label(&self, place: &Place, pod: &Pod, key: &str, value: &Value) -> Result<()> {
        self.objects.merge_metadata(place, &Version::of(pod), json!({"labels": {key: value}})).await
    }
}

impl Hold for IsolationSlot<'_> {
    type Live = Live;

    async fn read(&self, held: Option<&Held>, desired: Option<&Desired>, how: Freshness) -> Result<Live> {
        let recorded = held.map(|held| self.entries(&held.original)).transpose()?.unwrap_or_default();
        let wanted =
            desired.map(|desired| names(desired).ok_or_else(|| self.misfit())).transpose()?.unwrap_or_default();
        let mut pods = BTreeMap::new();
        for name in recorded.iter().map(|entry| &entry.name).chain(wanted) {
            if !pods.contains_key(name)
                && let Some(pod) = self.find(name, how).await?
            {
                pods.insert(name.clone(), pod);
            }
        }
        let mut live = Live { pods, all_gone: false };
        live.all_gone = !recorded.is_empty() && recorded.iter().all(|entry| live.get(entry).is_none());
        Ok(live)
    }

    fn object_uid(&self, live: &Live) -> Option<String> {
        (!live.all_gone).then(String::new)
    }

    fn standing(&self, live: &Live, held: &Held) -> Result<Standing> {
        let wanted = names(&held.desired).ok_or_else(|| self.misfit())?;
        let mut entries = self.entries(&held.original)?.to_vec();
        let (mut is_back, mut is_foreign) = (false, false);
        for entry in entries.iter_mut().filter(|entry| wanted.contains(&entry.name)) {
            let Some(pod) = live.get(entry) else { continue };
            match (method::standing(pod, &entry.by), &mut entry.by) {
                (PodStanding::Foreign(found), IsolatedBy::Label { value, .. }) => {
                    *value = found;
                    is_foreign = true;
                }
                (PodStanding::Original, _) => is_back = true,
                _ => {}
            }
        }
        Ok(if is_foreign {
            Standing::Foreign(Original::Isolated(entries))
        } else if is_back {
            Standing::Original
        } else {
            Standing::Ours
        })
    }

    fn is_reached(&self, live: &Live, held: &Held) -> bool {
        let (Original::Isolated(entries), Some(wanted)) = (&held.original, names(&held.desired)) else { return false };
        entries.iter().all(|entry| {
            let is_out = |pod: &Pod| method::standing(pod, &entry.by) == PodStanding::Isolated;
            wanted.contains(&entry.name) && live.get(entry).is_none_or(is_out)
        })
    }

    async fn intent(&self, live: &Live, original: Option<&Original>, desired: &Desired) -> Result<(Original, Desired)> {
        let known = original.map(|original| self.entries(original)).transpose()?.unwrap_or_default();
        let mut entries: Vec<IsolatedPod> = known.iter().filter(|entry| live.get(entry).is_some()).cloned().collect();
        let mut pods = Vec::new();
        for name in names(desired).ok_or_else(|| self.misfit())? {
            if entries.iter().any(|entry| entry.name == *name) {
                pods.push(name.clone());
            } else if let Some(pod) = live.pods.get(name)
                && let Some(entry) = self.method_for(name, pod).await?
            {
                entries.push(entry);
                pods.push(name.clone());
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((Original::Isolated(entries), Desired::Isolated(pods)))
    }

    async fn apply(&self, live: &Live, held: &Held) -> Result<Original> {
        let wanted = names(&held.desired).ok_or_else(|| self.misfit())?;
        let entries = self.entries(&held.original)?;
        // Back first: a workload is never left with fewer Pods than before and after.
        for entry in entries.iter().filter(|entry| !wanted.contains(&entry.name)) {
            if let Some(pod) = live.get(entry) {
                self.put_back(pod, entry).await?;
            }
        }
        let stay: Vec<IsolatedPod> = entries.iter().filter(|entry| wanted.contains(&entry.name)).cloned().collect();
        for entry in &stay {
            match live.get(entry) {
                Some(pod) if method::standing(pod, &entry.by) != PodStanding::Isolated => {
                    self.take_out(pod, entry).await?;
                }
                _ => {}
            }
        }
        Ok(Original::Isolated(stay))
    }

    async fn restore(&self, live: &Live, held: &Held) -> Result<()> {
        for entry in self.entries(&held.original)? {
            if let Some(pod) = live.get(entry) {
                self.put_back(pod, entry).await?;
            }
        }
        Ok(())
    }
}

/// Whether a Pod has our readiness gate and nobody has set it yet: it is not ready until we do.
pub fn waits_for_gate(pod: &Pod) -> bool {
    method::has_gate(pod) && method::gate_status(pod).is_none() && pod.metadata.deletion_timestamp.is_none()
}

impl Effects {
    /// Opens the readiness gate of Pods that have it and whose gate nobody has set yet, so that they can become ready.
    /// Returns how many were opened. A Pod that is gone or was changed meanwhile is left for the next time.
    pub async fn open_gates(&self, pods: &[Arc<Pod>], now: DateTime<Utc>) -> Result<usize> {
        let mut opened = 0;
        for pod in pods.iter().filter(|pod| waits_for_gate(pod)) {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let place = Place::pod(&text(&pod.metadata.namespace), &text(&pod.metadata.name));
            match set_gate(&self.objects, &place, pod, true, now).await {
                Ok(()) => opened += 1,
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }
}

/// Sets the condition of our readiness gate, in exactly the Pod that was read.
async fn set_gate(objects: &Objects, place: &Place, pod: &Pod, is_open: bool, now: DateTime<Utc>) -> Result<()> {
    let read = Version::of(pod);
    let condition = json!({
        "type": SERVING_GATE,
        "status": if is_open { "True" } else { "False" },
        "reason": if is_open { "InService" } else { "Isolated" },
        "message": if is_open { "in service" } else { "taken out of service by a policy" },
        "lastTransitionTime": now.to_rfc3339_opts(SecondsFormat::Secs, true),
    });
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let position = conditions.and_then(|conditions| conditions.iter().position(|one| one.type_ == SERVING_GATE));
    let write = match (&pod.status, conditions, position) {
        (_, _, Some(index)) => {
            json!({"op": "replace", "path": format!("/status/conditions/{index}"), "value": condition})
        }
        (_, Some(_), None) => json!({"op": "add", "path": "/status/conditions/-", "value": condition}),
        (Some(_), None, _) => json!({"op": "add", "path": "/status/conditions", "value": [condition]}),
        (None, None, _) => json!({"op": "add", "path": "/status", "value": {"conditions": [condition]}}),
    };
    let operations = [
        json!({"op": "test", "path": "/metadata/uid", "value": read.uid}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": read.resource_version}),
        write,
    ];
    objects.json_patch_status(place, &operations).await
}

/// The controller of a Pod with its selector, as far as it can be read.
async fn controller_of(objects: &Objects, namespace: &str, pod: &Pod) -> Result<Option<Controller>> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let Some(owner) = owners.iter().find(|owner| owner.controller == Some(true)) else { return Ok(None) };
    let unknown = Controller { kind: owner.kind.clone(), selector: None };
    let resource = match objects.resource(&owner.api_version, &owner.kind).await {
        Ok(resource) => resource,
        Err(Error::NotServed { .. }) => return Ok(Some(unknown)),
        Err(error) => return Err(error),
    };
    let place = Place { resource, namespace: namespace.to_owned(), name: owner.name.clone() };
    match objects.get(&place).await {
        Ok(Some(found)) => Ok(Some(Controller { selector: selector_in(&found.data), ..unknown })),
        // A kind that we may not read: its selector is not known.
        Ok(None) | Err(Error::Refused { .. }) => Ok(Some(unknown)),
        Err(error) => Err(error),
    }
}

/// `spec.selector`, written as a LabelSelector or, by ReplicationControllers, as plain labels.
fn selector_in(controller: &Value) -> Option<LabelSelector> {
    let selector = controller.pointer("/spec/selector")?;
    let is_plain = selector.as_object()?.values().all(Value::is_string);
    if is_plain {
        let match_labels = serde_json::from_value(selector.clone()).ok()?;
        return Some(LabelSelector { match_labels: Some(match_labels), match_expressions: None });
    }
    serde_json::from_value(selector.clone()).ok()
}

fn names(desired: &Desired) -> Option<&[PodName]> {
    if let Desired::Isolated(pods) = desired { Some(pods) } else { None }
}
