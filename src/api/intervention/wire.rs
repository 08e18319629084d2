//! Slots, holders and values as an Intervention writes them: structs with optional fields, since a structural schema
//! knows no tagged unions. Conversions from [`crate::model`] never fail; those to it name the missing field.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::policy_spec::TargetRef;
use crate::model::effect::{Desired, Destination, Holder, IsolatedBy, IsolatedPod, Original, Weight};
use crate::model::policy::{ActionKind, PolicyKey, PolicyKind};
use crate::model::problem::Problem;
use crate::model::slot::{RouteKey, Slot, WorkloadKey};

/// What is held: `kind` says which of the other fields are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlotSpec {
    /// isolation, mode or weights.
    pub kind: String,
    /// isolation: the workload whose Pods are out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadSpec>,
    /// mode: namespace of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// mode: the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
    /// weights: the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteSpec>,
}

/// The topmost controller of Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSpec {
    /// Its namespace.
    pub namespace: String,
    /// Its kind; Pod for a bare one.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A route of a VirtualService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// Namespace of the VirtualService.
    pub namespace: String,
    /// Name of the VirtualService.
    pub virtual_service: String,
    /// Name of the http route, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its match as JSON, for a route without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
}

/// Who holds a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HolderSpec {
    /// Kind of the policy.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The action that asked.
    pub action: String,
    /// The policy's episode, from leaving Healthy to being Healthy again.
    pub episode: String,
}

/// What a slot is to hold: exactly one field, by the kind of the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredSpec {
    /// isolation: exactly these Pods are out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<Vec<String>>,
    /// mode: the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// weights: one per destination of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<WeightSpec>>,
}

/// What a slot held before: exactly one field, by the kind of the slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OriginalSpec {
    /// isolation: the Pods that were put out of service, each with how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<Vec<IsolatedPodSpec>>,
    /// mode: what the annotation held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<OriginalMode>,
    /// weights: as found, one per destination of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<WeightSpec>>,
}

/// What the mode annotation held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OriginalMode {
    /// Its value; absent: there was no annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// One isolated Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IsolatedPodSpec {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// How it was taken out of service: gate or label.
    pub by: String,
    /// label: the key that was taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// label: the value that was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// label: true where the Pod's controller selects it too, so that it was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<bool>,
}

/// One weight of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WeightSpec {
    /// `destination.host`.
    pub host: String,
    /// `destination.subset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// `destination.port.number`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The weight; absent: none was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

impl From<&Slot> for SlotSpec {
    fn from(slot: &Slot) -> Self {
        let spec = Self { kind: slot.kind().to_owned(), ..Self::default() };
        match slot {
            Slot::Isolation { workload } => {
                let WorkloadKey { namespace, kind, name } = workload.clone();
                Self { workload: Some(WorkloadSpec { namespace, kind, name }), ..spec }
            }
            Slot::Mode { namespace, target } => {
                Self { namespace: Some(namespace.clone()), target: Some(target.into()), ..spec }
            }
            Slot::Weights { route } => {
                let RouteKey { namespace, virtual_service, name, matches } = route.clone();
                Self { route: Some(RouteSpec { namespace, virtual_service, name, matches }), ..spec }
            }
        }
    }
}

impl TryFrom<&SlotSpec> for Slot {
    type Error = Problem;

    fn try_from(spec: &SlotSpec) -> Result<Self, Problem> {
        match spec.kind.as_str() {
            "isolation" => {
                let WorkloadSpec { namespace, kind, name } = needed(spec.workload.clone(), "spec.slot.workload")?;
                Ok(Self::Isolation { workload: WorkloadKey { namespace, kind, name } })
            }
            "mode" => Ok(Self::Mode {
                namespace: needed(spec.namespace.clone(), "spec.slot.namespace")?,
                target: (&needed(spec.target.clone(), "spec.slot.target")?).into(),
            }),
            "weights" => {
                let RouteSpec { namespace, virtual_service, name, matches } =
                    needed(spec.route.clone(), "spec.slot.route")?;
                Ok(Self::Weights { route: RouteKey { namespace, virtual_service, name, matches } })
            }
            other => Err(Problem::expected("spec.slot.kind", format!("`{other}`"), "isolation, mode or weights")),
        }
    }
}

impl From<&Holder> for HolderSpec {
    fn from(holder: &Holder) -> Self {
        Self {
            kind: holder.policy.kind.as_str().to_owned(),
            namespace: holder.policy.namespace.clone(),
            name: holder.policy.name.clone(),
            uid: holder.uid.clone(),
            tenant: holder.tenant.clone(),
            action: holder.action.as_str().to_owned(),
            episode: holder.episode.clone(),
        }
    }
}

impl TryFrom<&HolderSpec> for Holder {
    type Error = Problem;

    fn try_from(spec: &HolderSpec) -> Result<Self, Problem> {
        Ok(Self {
            policy: PolicyKey {
                kind: needed(PolicyKind::parse(&spec.kind), "spec.holder.kind")?,
                namespace: spec.namespace.clone(),
                name: spec.name.clone(),
            },
            uid: spec.uid.clone(),
            tenant: spec.tenant.clone(),
            action: needed(ActionKind::parse(&spec.action), "spec.holder.action")?,
            episode: spec.episode.clone(),
        })
    }
}

impl From<&Desired> for DesiredSpec {
    fn from(desired: &Desired) -> Self {
        match desired {
            Desired::Isolated(pods) => Self { isolated: Some(pods.clone()), ..Self::default() },
            Desired::Mode(mode) => Self { mode: Some(mode.clone()), ..Self::default() },
            Desired::Weights(weights) => {
                Self { weights: Some(weights.iter().map(Into::into).collect()), ..Self::default() }
            }
        }
    }
}

impl TryFrom<&DesiredSpec> for Desired {
    type Error = Problem;

    fn try_from(spec: &DesiredSpec) -> Result<Self, Problem> {
        match (&spec.isolated, &spec.mode, &spec.weights) {
            (Some(pods), None, None) => Ok(Self::Isolated(pods.clone())),
            (None, Some(mode), None) => Ok(Self::Mode(mode.clone())),
            (None, None, Some(weights)) => Ok(Self::Weights(weights.iter().map(Into::into).collect())),
            _ => Err(not_one("spec.desired")),
        }
    }
}

impl From<&Original> for OriginalSpec {
    fn from(original: &Original) -> Self {
        match original {
            Original::Isolated(pods) => {
                Self { isolated: Some(pods.iter().map(Into::into).collect()), ..Self::default() }
            }
            Original::Mode { mode } => Self { mode: Some(OriginalMode { value: mode.clone() }), ..Self::default() },
            Original::Weights(weights) => {
                Self { weights: Some(weights.iter().map(Into::into).collect()), ..Self::default() }
            }
        }
    }
}

impl TryFrom<&OriginalSpec> for Original {
    type Error = Problem;

    fn try_from(spec: &OriginalSpec) -> Result<Self, Problem> {
        match (&spec.isolated, &spec.mode, &spec.weights) {
            (Some(pods), None, None) => {
                Ok(Self::Isolated(pods.iter().map(TryInto::try_into).collect::<Result<_, _>>()?))
            }
            (None, Some(mode), None) => Ok(Self::Mode { mode: mode.value.clone() }),
            (None, None, Some(weights)) => Ok(Self::Weights(weights.iter().map(Into::into).collect())),
            _ => Err(not_one("spec.original")),
        }
    }
}

impl From<&IsolatedPod> for IsolatedPodSpec {
    fn from(pod: &IsolatedPod) -> Self {
        let spec = Self { name: pod.name.clone(), uid: pod.uid.clone(), ..Self::default() };
        match &pod.by {
            IsolatedBy::Gate => Self { by: "gate".to_owned(), ..spec },
            IsolatedBy::Label { key, value, replaced } => Self {
                by: "label".to_owned(),
                key: Some(key.clone()),
                value: Some(value.clone()),
                replaced: Some(*replaced),
                ..spec
            },
        }
    }
}

impl TryFrom<&IsolatedPodSpec> for IsolatedPod {
    type Error = Problem;

    fn try_from(spec: &IsolatedPodSpec) -> Result<Self, Problem> {
        const PATH: &str = "spec.original.isolated";
        let by = match spec.by.as_str() {
            "gate" => IsolatedBy::Gate,
            "label" => IsolatedBy::Label {
                key: needed(spec.key.clone(), PATH)?,
                value: needed(spec.value.clone(), PATH)?,
                replaced: spec.replaced.unwrap_or_default(),
            },
            other => return Err(Problem::expected(PATH, format!("`{other}`"), "gate or label")),
        };
        Ok(Self { name: spec.name.clone(), uid: spec.uid.clone(), by })
    }
}

impl From<&Weight> for WeightSpec {
    fn from(weight: &Weight) -> Self {
        let Destination { host, subset, port } = weight.destination.clone();
        Self { host, subset, port, weight: weight.weight }
    }
}

impl From<&WeightSpec> for Weight {
    fn from(spec: &WeightSpec) -> Self {
        let WeightSpec { host, subset, port, weight } = spec.clone();
        Self { destination: Destination { host, subset, port }, weight }
    }
}

fn needed<T>(value: Option<T>, path: &str) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::at(path, "is missing or not known; it was not written by this engine"))
}

fn not_one(path: &str) -> Problem {
    Problem::at(path, "expected exactly one of isolated, mode and weights")
}
