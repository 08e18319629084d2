//! The slot "mode of a target": an annotation on the target and on its Pods.
//!
//! What the target held is in the record. What a Pod held stands on the Pod itself, beside the mode and written in the
//! same patch: so new Pods can follow without a record write, and all are found again when the target is gone.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    drive::{Freshness, Hold, Seen, Standing},
    error::{Error, Result},
    objects::{Objects, Place, Version},
    record::Held,
};
use crate::{
    api::{
        intervention::name_of,
        marks::{MODE_ANNOTATION, MODE_BEFORE_ANNOTATION},
    },
    model::{
        effect::{Desired, Original},
        policy::TargetRef,
        slot::Slot,
    },
};

/// How many Pods are written to at the same time.
const AT_ONCE: usize = 8;

pub(crate) struct ModeSlot<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) slot: &'a Slot,
    pub(crate) namespace: &'a str,
    pub(crate) target: &'a TargetRef,
    pub(crate) seen: &'a Seen,
}

/// The target and its Pods as read.
pub(crate) struct Live {
    target: Option<DynamicObject>,
    pods: Vec<ObjectMeta>,
}

/// What [`MODE_BEFORE_ANNOTATION`] holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    /// Name of the Intervention that set the mode.
    intervention: String,
    /// The mode that was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

/// What stands on one Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OnPod {
    /// Nothing of ours; to be set.
    Unset,
    /// Set by this slot; what was before.
    Set(Before),
    /// Set by the slot of another target over the same Pods, which came first.
    Others,
}

impl ModeSlot<'_> {
    async fn place(&self) -> Result<Place> {
        let resource = self.objects.resource(&self.target.api_version, &self.target.kind).await?;
        Ok(Place { resource, namespace: self.namespace.to_owned(), name: self.target.name.clone() })
    }

    async fn read_target(&self, held: Option<&Held>) -> Result<Option<DynamicObject>> {
        match self.place().await {
            Ok(place) => self.objects.get(&place).await,
            // The kind went, and every object with it.
            Err(Error::NotServed { .. }) if held.is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The Pods that bear our mark; to be set, those of the workload too; to be undone, those too where an attempt
    /// before this one had come as far as taking the mark away.
    async fn read_pods(&self, is_undoing: bool) -> Result<Vec<ObjectMeta>> {
        let workload: BTreeSet<&str> = self.seen.pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let of_workload = |pod: &ObjectMeta| pod.name.as_deref().is_some_and(|name| workload.contains(name));
        let concerned = |pod: &ObjectMeta| match self.on(pod) {
            OnPod::Set(_) => true,
            OnPod::Unset if is_undoing => self.objects.owns_fields_of(pod),
            OnPod::Unset => of_workload(pod),
            OnPod::Others => false,
        };
        let pods = self.objects.pods_of(self.namespace).await?.into_iter().map(|pod| pod.metadata);
        Ok(pods.filter(concerned).collect())
    }

    fn misfit(&self) -> Error {
        Error::Misfit { slot: Box::new(self.slot.clone()), what: "a value that is no mode" }
    }

    fn on(&self, pod: &ObjectMeta) -> OnPod {
        let Some(text) = annotation(pod, MODE_BEFORE_ANNOTATION) else { return OnPod::Unset };
        match serde_json::from_str::<Before>(text) {
            Ok(before) if before.intervention == name_of(self.slot) => OnPod::Set(before),
            Ok(_) => OnPod::Others,
            // A foreign hand broke it: what was before is lost, and to leave no mode is what most Pods began with.
            Err(_) => OnPod::Set(Before { intervention: name_of(self.slot), mode: None }),
        }
    }

    async fn annotate(&self, place: &Place, read: &Version, annotations: Value) -> Result<()> {
        self.objects.merge_metadata(place, read, json!({ "annotations": annotations })).await
    }

    async fn set_on_pod(&self, pod: &ObjectMeta, mode: &str) -> Result<()> {
        let before = match self.on(pod) {
            OnPod::Set(_) if annotation(pod, MODE_ANNOTATION) == Some(mode) => return Ok(()),
            OnPod::Others => return Ok(()),
            OnPod::Set(before) => before,
            OnPod::Unset => {
                Before { intervention: name_of(self.slot), mode: annotation(pod, MODE_ANNOTATION).map(str::to_owned) }
            }
        };
        let before = serde_json::to_string(&before).expect("two strings are JSON");
        let annotations = json!({MODE_ANNOTATION: mode, MODE_BEFORE_ANNOTATION: before});
        self.annotate(&self.pod_place(pod), &version_of(pod), annotations).await
    }

    /// Puts back what was before, unless somebody else's mode stands there now.
    async fn restore_pod(&self, pod: &ObjectMeta, held: &Held) -> Result<()> {
        let place = self.pod_place(pod);
        let read = version_of(pod);
        match self.on(pod) {
            OnPod::Others => return Ok(()),
            // An attempt before this one may have come as far as the annotations.
            OnPod::Unset => {}
            OnPod::Set(before) => {
                let mut annotations = json!({MODE_BEFORE_ANNOTATION: null});
                if is_ours(annotation(pod, MODE_ANNOTATION), held) {
                    annotations[MODE_ANNOTATION] = json!(before.mode);
                }
                self.annotate(&place, &read, annotations).await?;
            }
        }
        self.objects.release_ownership(&place, &read.uid).await
    }

    fn pod_place(&self, pod: &ObjectMeta) -> Place {
        Place::pod(self.namespace, pod.name.as_deref().unwrap_or_default())
    }

    /// Whether a Pod needs nothing more for this mode to stand on it.
    fn follows(&self, pod: &ObjectMeta, mode: &str) -> bool {
        match self.on(pod) {
            OnPod::Unset => pod.deletion_timestamp.is_some(),
            OnPod::Set(_) => annotation(pod, MODE_ANNOTATION) == Some(mode),
            OnPod::Others => true,
        }
    }
}

impl Hold for ModeSlot<'_> {
    type Live = Live;

    async fn read(&self, held: Option<&Held>, desired: Option<&Desired>, how: Freshness) -> Result<Live> {
        let cached = self.seen.object.as_ref().filter(|_| how == Freshness::Cached);
        let target = match cached {
            Some(target) => Some(DynamicObject::clone(target)),
            None => self.read_target(held).await?,
        };
        let pods = match how {
            Freshness::Cached => self.seen.pods.iter().map(|pod| pod.metadata.clone()).collect(),
            Freshness::Live => self.read_pods(desired.is_none()).await?,
        };
        Ok(Live { target, pods })
    }

    fn object_uid(&self, live: &Live) -> Option<String> {
        live.target.as_ref()?.metadata.uid.clone()
    }

    fn standing(&self, live: &Live, held: &Held) -> Result<Standing> {
        let Original::Mode { mode: original } = &held.original else { return Err(self.misfit()) };
        let found = live.target.as_ref().and_then(|target| annotation(&target.metadata, MODE_ANNOTATION));
        let is_overwritten = |pod: &ObjectMeta| {
            matches!(self.on(pod), OnPod::Set(_)) && !is_ours(annotation(pod, MODE_ANNOTATION), held)
        };
        Ok(if is_ours(found, held) {
            if live.pods.iter().any(is_overwritten) { Standing::Original } else { Standing::Ours }
        } else if found == original.as_deref() {
            Standing::Original
        } else {
            Standing::Foreign(Original::Mode { mode: found.map(str::to_owned) })
        })
    }

    fn is_reached(&self, live: &Live, held: &Held) -> bool {
        let Desired::Mode(mode) = &held.desired else { return false };
        let found = live.target.as_ref().and_then(|target| annotation(&target.metadata, MODE_ANNOTATION));
        found == Some(mode) && live.pods.iter().all(|pod| self.follows(pod, mode))
    }

    async fn intent(&self, live: &Live, original: Option<&Original>, desired: &Desired) -> Result<(Original, Desired)> {
        let found = live.target.as_ref().and_then(|target| annotation(&target.metadata, MODE_ANNOTATION));
        let original = original.cloned().unwrap_or_else(|| Original::Mode { mode: found.map(str::to_owned) });
        match desired {
            Desired::Mode(_) => Ok((original, desired.clone())),
            _ => Err(self.misfit()),
        }
    }

    async fn apply(&self, live: &Live, held: &Held) -> Result<Original> {
        let Desired::Mode(mode) = &held.desired else { return Err(self.misfit()) };
        if let Some(target) = &live.target
            && annotation(&target.metadata, MODE_ANNOTATION) != Some(mode)
        {
            self.annotate(&self.place().await?, &Version::of(target), json!({MODE_ANNOTATION: mode})).await?;
        }
        let alive = live.pods.iter().filter(|pod| pod.deletion_timestamp.is_none());
        all_of(alive.map(|pod| self.set_on_pod(pod, mode)).collect()).await?;
        Ok(held.original.clone())
    }

    async fn restore(&self, live: &Live, held: &Held) -> Result<()> {
        let Original::Mode { mode: original } = &held.original else { return Err(self.misfit()) };
        // Pods first, and also where the target is gone.
        all_of(live.pods.iter().map(|pod| self.restore_pod(pod, held)).collect()).await?;
        let is_the_same = |target: &&DynamicObject| target.metadata.uid.as_deref() == Some(held.object_uid());
        let Some(target) = live.target.as_ref().filter(is_the_same) else { return Ok(()) };
        let place = self.place().await?;
        let found = annotation(&target.metadata, MODE_ANNOTATION);
        if is_ours(found, held) && found != original.as_deref() {
            self.annotate(&place, &Version::of(target), json!({MODE_ANNOTATION: original})).await?;
        }
        self.objects.release_ownership(&place, held.object_uid()).await
    }
}

/// Some at a time; the first failure ends it, and the rest is for the next attempt.
async fn all_of<F: Future<Output = Result<()>>>(changes: Vec<F>) -> Result<()> {
    stream::iter(changes).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}

fn annotation<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn version_of(metadata: &ObjectMeta) -> Version {
    Version {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
    }
}

fn is_ours(found: Option<&str>, held: &Held) -> bool {
    held.ours().any(|value| matches!((value, found), (Desired::Mode(mode), Some(found)) if mode == found))
}
