//! What a caller asks of a slot and is told about it, and what each kind of slot has to be able to do.
//!
//! The algorithm over all kinds is in `step`; this file refuses to know it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::DynamicObject;

use super::{Effects, error::Result, isolation::IsolationSlot, mode::ModeSlot, record::Held, weights::WeightsSlot};
use crate::{
    api::{Intervention, intervention::Actor},
    model::{
        effect::{Desired, Holder, Original},
        policy::TargetRef,
        reason::Reason,
        slot::Slot,
    },
};
use step::Step;

mod step;

/// What should stand on a slot.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Who holds it.
    pub holder: &'a Holder,
    /// The value.
    pub desired: &'a Desired,
    /// The target of the holder's policy, for people.
    pub target: Option<&'a TargetRef>,
    /// Why the policy asked.
    pub reason: Reason,
}

/// What the caller's caches know. It may be old: it saves questions while nothing changes, and before anything is
/// written the server is asked.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The Pods of the workload (of the target, for a mode).
    pub pods: Vec<Arc<Pod>>,
    /// Every Service of the namespace.
    pub services: Vec<Arc<Service>>,
    /// The VirtualService, or the target.
    pub object: Option<Arc<DynamicObject>>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it should be.
    Unchanged,
    /// The effect was made, or changed.
    Applied,
    /// What was found is back.
    Restored,
    /// The object under the effect is gone, and the obligation with it.
    ObjectGone,
    /// Somebody had written over the effect; it was made again.
    Reasserted,
    /// Somebody keeps writing over it; hands off until the policy is Healthy.
    Contested,
    /// Somebody wrote over it; it is made again at this time.
    Waiting(DateTime<Utc>),
}

/// Where a slot stands after a step.
#[derive(Clone, Debug)]
pub struct Driven {
    /// The record as it is stored now.
    pub record: Option<Intervention>,
    /// What the step came to.
    pub outcome: Outcome,
    /// When to come again although nothing changes.
    pub again_at: Option<DateTime<Utc>>,
}

/// How old what is read may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// From the caller's caches, where they have it.
    Cached,
    /// From the server.
    Live,
}

/// What stands, compared with a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Standing {
    /// One of our values.
    Ours,
    /// The original is back.
    Original,
    /// Somebody else's value; this is the original now.
    Foreign(Original),
}

/// One kind of slot: how it is read, compared, changed and put back.
pub(crate) trait Hold: Sync {
    /// What was read.
    type Live: Send + Sync;

    /// Reads what the record and the wanted value are about.
    fn read(
        &self,
        held: Option<&Held>,
        desired: Option<&Desired>,
        how: Freshness,
    ) -> impl Future<Output = Result<Self::Live>> + Send;

    /// uid of the one object that is changed; none where there is no such object (any more), empty where there is no
    /// single one.
    fn object_uid(&self, live: &Self::Live) -> Option<String>;

    /// Compares what stands with the record.
    fn standing(&self, live: &Self::Live, held: &Held) -> Result<Standing>;

    /// Whether exactly what the record intends stands, with nothing left to do.
    fn is_reached(&self, live: &Self::Live, held: &Held) -> bool;

    /// What is to be written down: the original (kept, where it is known) and what can be made of the wanted value.
    fn intent(
        &self,
        live: &Self::Live,
        original: Option<&Original>,
        desired: &Desired,
    ) -> impl Future<Output = Result<(Original, Desired)>> + Send;

    /// Makes what was read into what the record says. Returns the original with all that is back left out.
    fn apply(&self, live: &Self::Live, held: &Held) -> impl Future<Output = Result<Original>> + Send;

    /// Puts the original back wherever our value stands, and removes every trace.
    fn restore(&self, live: &Self::Live, held: &Held) -> impl Future<Output = Result<()>> + Send;
}

impl Effects {
    /// Brings one slot to what is wanted (none: nothing, what was found is put back), as far as it may go now.
    ///
    /// Safe to call at any time and again, also after a kill at any instruction. `record` and `seen` may be old: they
    /// only answer whether there is anything to do, and before anything is done the server is asked.
    pub async fn drive(
        &self,
        actor: &Actor,
        slot: &Slot,
        wanted: Option<&Wanted<'_>>,
        record: Option<&Intervention>,
        seen: &Seen,
        now: DateTime<Utc>,
    ) -> Result<Driven> {
        let objects = &self.objects;
        let step = Step { objects, actor, slot, now };
        match slot {
            Slot::Weights { route } => {
                let kind = WeightsSlot { objects, slot, route, seen };
                Box::pin(step.take(&kind, wanted, record)).await
            }
            Slot::Mode { namespace, target } => {
                let kind = ModeSlot { objects, slot, namespace, target, seen };
                Box::pin(step.take(&kind, wanted, record)).await
            }
            Slot::Isolation { workload } => {
                let kind = IsolationSlot { objects, slot, namespace: &workload.namespace, seen, now };
                Box::pin(step.take(&kind, wanted, record)).await
            }
        }
    }
}
