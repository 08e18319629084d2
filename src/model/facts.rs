//! What is there: the target, its Pods and routes as observed. Decisions read facts, never the cluster.

use std::collections::BTreeMap;

use super::effect::Destination;
use super::reading::PodName;
use super::reason::Reason;
use super::slot::{RouteKey, WorkloadKey};

/// What was found about one policy's target.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its uid; none: it does not exist.
    pub uid: Option<String>,
    /// The mode that its annotation shows.
    pub mode: Option<String>,
    /// Its Pods, or why none were found.
    pub workload: Result<Workload, Reason>,
    /// Its route, or why none was found.
    pub route: Result<Route, Reason>,
    /// Routes of actions that name one, by index of the action.
    pub action_routes: BTreeMap<usize, Result<Route, Reason>>,
}

/// How a target's Pods were found; status says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBy {
    /// `spec.workload.podSelector` of the policy.
    PolicySelector,
    /// The target's scale subresource.
    ScaleSubresource,
    /// ownerReferences from Pods up to the target.
    OwnerReferences,
    /// `spec.selector` of the target.
    TargetSelector,
    /// The label `app.kubernetes.io/instance`.
    InstanceLabel,
}

impl ResolvedBy {
    /// For status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PolicySelector => "spec.workload.podSelector",
            Self::ScaleSubresource => "scale subresource",
            Self::OwnerReferences => "ownerReferences",
            Self::TargetSelector => "spec.selector of the target",
            Self::InstanceLabel => "label app.kubernetes.io/instance",
        }
    }
}

/// The Pods of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The topmost controller of the Pods.
    pub key: WorkloadKey,
    /// How they were found.
    pub resolved_by: ResolvedBy,
    /// By name; isolated Pods are among them.
    pub pods: BTreeMap<PodName, Pod>,
}

/// One Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its uid.
    pub uid: String,
    /// Ready by its own containers: a readiness gate that we set False does not count.
    pub ready: bool,
    /// Being deleted.
    pub terminating: bool,
    /// Out of service by our doing.
    pub isolated: bool,
    /// Whether it could be taken out of service, and if so whether its controller would replace it.
    pub isolable: Result<(), Reason>,
}

/// A route and where it leads.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Which route.
    pub key: RouteKey,
    /// uid of the VirtualService.
    pub uid: String,
    /// In the order written.
    pub destinations: Vec<RouteDestination>,
}

/// One destination of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteDestination {
    /// Host, subset, port.
    pub destination: Destination,
    /// Its weight; none where it is not written.
    pub weight: Option<u32>,
    /// The Pods behind it, where they can be told.
    pub pods: Vec<PodName>,
}
