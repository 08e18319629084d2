//! What is known of a target: as the case says, with what the records say stands laid over it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::model::effect::{Desired, Destination, Records};
use crate::model::facts::{Pod, ResolvedBy, Route, RouteDestination, Target, Workload};
use crate::model::policy::Policy;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::slot::{RouteKey, Slot, WorkloadKey};

use super::super::format::{OrReason, RouteFile, TargetFile};

/// The facts, and the live object as rules see it.
pub(super) fn of(policy: &Policy, written: &Value, records: &Records) -> Result<(Target, Value), Vec<Problem>> {
    let file: TargetFile = serde_json::from_value(written.clone())
        .map_err(|error| vec![Problem::at(format!("target {}", policy.target_ref.name), error.to_string())])?;
    let route = match &file.route {
        Some(route) => of_route(route, policy)?,
        None => Err(Reason::NoRoute),
    };
    let mut action_routes = BTreeMap::new();
    for (index, route) in &file.action_routes {
        let number = index.parse::<usize>().map_err(|_| {
            vec![Problem::expected("target.actionRoutes", format!("`{index}` is no index"), "the index of an action")]
        })?;
        action_routes.insert(number, of_route(route, policy)?);
    }
    let mut target = Target {
        uid: (!file.gone).then(|| file.uid.clone().unwrap_or_else(|| format!("uid-{}", policy.target_ref.name))),
        mode: file.mode.clone(),
        workload: workload(&file, policy)?,
        route,
        action_routes,
    };
    lay_over(&mut target, policy, records);
    let object = file.object.unwrap_or_else(|| {
        json!({
            "apiVersion": policy.target_ref.api_version,
            "kind": policy.target_ref.kind,
            "metadata": {"namespace": policy.key.namespace, "name": policy.target_ref.name},
        })
    });
    Ok((target, object))
}

fn reason(path: &str, name: &str) -> Result<Reason, Vec<Problem>> {
    Reason::parse(name).ok_or_else(|| {
        vec![Problem::expected(path, format!("`{name}` is no reason"), "a reason such as NoWorkload or NoRoute")]
    })
}

fn workload(file: &TargetFile, policy: &Policy) -> Result<Result<Workload, Reason>, Vec<Problem>> {
    let (kind, name) = match &file.workload {
        Some(OrReason::Reason(name)) => return Ok(Err(reason("target.workload", name)?)),
        Some(OrReason::Found(found)) => (found.kind.clone(), found.name.clone()),
        None if file.pods.is_empty() => return Ok(Err(Reason::NoWorkload)),
        None => ("Deployment".to_owned(), policy.target_ref.name.clone()),
    };
    let mut pods = BTreeMap::new();
    for (pod, written) in &file.pods {
        let isolable = match &written.not_isolable {
            Some(name) => Err(reason(&format!("target.pods.{pod}.notIsolable"), name)?),
            None => Ok(()),
        };
        pods.insert(
            pod.clone(),
            Pod {
                uid: format!("uid-{pod}"),
                ready: !written.not_ready,
                terminating: written.terminating,
                isolated: false,
                isolable,
            },
        );
    }
    let key = WorkloadKey { namespace: policy.key.namespace.clone(), kind, name };
    Ok(Ok(Workload { key, resolved_by: ResolvedBy::ScaleSubresource, pods }))
}

fn of_route(written: &OrReason<RouteFile>, policy: &Policy) -> Result<Result<Route, Reason>, Vec<Problem>> {
    let found = match written {
        OrReason::Reason(name) => return Ok(Err(reason("target.route", name)?)),
        OrReason::Found(found) => found,
    };
    let destinations = found.destinations.iter().map(|to| RouteDestination {
        destination: Destination { host: to.host.clone(), subset: to.subset.clone(), port: to.port },
        weight: to.weight,
        pods: to.pods.clone(),
    });
    Ok(Ok(Route {
        key: RouteKey {
            namespace: policy.key.namespace.clone(),
            virtual_service: found.virtual_service.clone(),
            name: found.name.clone(),
            matches: found.name.is_none().then(|| "null".to_owned()),
        },
        uid: format!("uid-{}", found.virtual_service),
        destinations: destinations.collect(),
    }))
}

/// What stands shows in the cluster.
fn lay_over(target: &mut Target, policy: &Policy, records: &Records) {
    for record in records.values().filter(|record| record.stands()) {
        match (&record.slot, &record.desired) {
            (Slot::Isolation { workload }, Desired::Isolated(pods)) => {
                if let Ok(found) = &mut target.workload
                    && found.key == *workload
                {
                    for (name, pod) in &mut found.pods {
                        pod.isolated = pods.contains(name);
                    }
                }
            }
            (Slot::Mode { namespace, target: of }, Desired::Mode(mode))
                if *namespace == policy.key.namespace && *of == policy.target_ref =>
            {
                target.mode = Some(mode.clone());
            }
            (Slot::Weights { route }, Desired::Weights(weights)) => {
                let routes = std::iter::once(&mut target.route).chain(target.action_routes.values_mut());
                for found in routes.filter_map(|found| found.as_mut().ok()).filter(|found| found.key == *route) {
                    for to in &mut found.destinations {
                        let weight = weights.iter().find(|weight| weight.destination == to.destination);
                        to.weight = weight.map_or(to.weight, |weight| weight.weight);
                    }
                }
            }
            _ => {}
        }
    }
}
