//! The things that only one policy may hold, and who is before whom.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::TargetRef;

/// The topmost controller of Pods, so that two targets over the same Pods are one workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadKey {
    /// Its namespace.
    pub namespace: String,
    /// `Deployment`, `StatefulSet`, …; `Pod` for a bare one.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A route of a VirtualService: by name, else by position with its match as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteKey {
    /// Namespace of the VirtualService.
    pub namespace: String,
    /// Name of the VirtualService.
    pub virtual_service: String,
    /// `name` of the http route, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Canonical JSON of its `match`, for a route without a name (`null` where it has none either).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
}

/// Something in the cluster that one policy at a time holds (isolation of a workload is shared).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Slot {
    /// Which Pods of a workload are out of service.
    Isolation {
        /// The workload.
        workload: WorkloadKey,
    },
    /// The mode of a target.
    Mode {
        /// Namespace of the target.
        namespace: String,
        /// The target.
        target: TargetRef,
    },
    /// The weights of a VirtualService route.
    Weights {
        /// The route.
        route: RouteKey,
    },
}

impl Slot {
    /// `isolation`, `mode` or `weights`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Isolation { .. } => "isolation",
            Self::Mode { .. } => "mode",
            Self::Weights { .. } => "weights",
        }
    }

    /// The namespace of the object that an effect on this slot changes.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Isolation { workload } => &workload.namespace,
            Self::Mode { namespace, .. } => namespace,
            Self::Weights { route } => &route.namespace,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Isolation { workload } => {
                write!(f, "isolation of {} {}/{}", workload.kind, workload.namespace, workload.name)
            }
            Self::Mode { namespace, target } => write!(f, "mode of {} {namespace}/{}", target.kind, target.name),
            Self::Weights { route } => {
                write!(f, "weights of VirtualService {}/{}", route.namespace, route.virtual_service)?;
                if let Some(name) = &route.name {
                    write!(f, " route {name}")?;
                }
                Ok(())
            }
        }
    }
}
