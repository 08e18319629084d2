//! What the engine may do in a cluster: exactly what it does, kind by kind, without wildcards.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{NAME, metadata};
use crate::api::GROUP;
use crate::cli::config::Config;

const READ: &[&str] = &["get", "list", "watch"];

/// Verbs by group and resource; a resource that is asked for twice gets the verbs of both.
#[derive(Default)]
struct Rules(BTreeMap<(String, String), BTreeSet<&'static str>>);

impl Rules {
    fn allow(&mut self, group: &str, resources: &[&str], verbs: &[&'static str]) {
        for resource in resources {
            let key = (group.to_owned(), (*resource).to_owned());
            self.0.entry(key).or_default().extend(verbs);
        }
    }

    /// One rule per group and set of verbs.
    fn to_json(&self) -> Value {
        let mut rules = BTreeMap::<(&str, &BTreeSet<&str>), Vec<&str>>::new();
        for ((group, resource), verbs) in &self.0 {
            rules.entry((group, verbs)).or_default().push(resource);
        }
        let rule = |((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        rules.into_iter().map(rule).collect()
    }
}

pub(super) fn cluster_role(config: &Config) -> Value {
    let mut rules = Rules::default();
    // Policies: read; the finalizer is a patch of metadata; status by server-side apply; the mirrors of what sources define
    // are made, put back and taken away.
    let policies = ["latencybudgetpolicies", "governancepolicies"];
    rules.allow(GROUP, &policies, READ);
    rules.allow(GROUP, &policies, &["create", "update", "patch", "delete"]);
    rules.allow(GROUP, &policies.map(|policy| format!("{policy}/status")).each_ref().map(String::as_str), &["patch"]);
    rules.allow(GROUP, &["tenants", "policysources"], READ);
    rules.allow(GROUP, &["policysources/status"], &["patch"]);
    // ConfigMaps with policies (only those with the label policy.trade.io/source are asked for), and their revisions.
    rules.allow("", &["configmaps"], &["list", "watch"]);
    rules.allow("apps", &["controllerrevisions"], &["list", "watch", "create", "patch", "delete"]);
    // The records are the engine's own.
    rules.allow(GROUP, &["interventions"], READ);
    rules.allow(GROUP, &["interventions"], &["create", "update", "delete"]);
    rules.allow(GROUP, &["interventions/status"], &["update"]);
    // Who governs what, and whose Pods are whose.
    rules.allow("", &["namespaces", "services", "pods"], READ);
    rules.allow("apps", &["replicasets", "deployments", "statefulsets", "daemonsets"], READ);
    // Isolation: a label or the serving gate; a Pod that was replaced meanwhile is deleted instead of put back.
    rules.allow("", &["pods"], &["patch", "delete"]);
    rules.allow("", &["pods/status"], &["patch"]);
    // Weights.
    rules.allow("networking.istio.io", &["virtualservices"], READ);
    rules.allow("networking.istio.io", &["virtualservices"], &["patch"]);
    rules.allow("networking.istio.io", &["destinationrules"], READ);
    // Mode, and the Pods of a target by its scale subresource.
    for target in &config.targets {
        rules.allow(target.group(), &[&target.plural], READ);
        rules.allow(target.group(), &[&target.plural], &["patch"]);
        rules.allow(target.group(), &[&format!("{}/scale", target.plural)], &["get"]);
    }
    rules.allow("events.k8s.io", &["events"], &["create", "patch"]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": super::labels()},
        "rules": rules.to_json(),
    })
}

/// In the engine's own namespace: the Lease and the freeze.
pub(super) fn role(config: &Config) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(config),
        "rules": [
            // Creation cannot be held to a name.
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": [config.lease_name],
                "verbs": ["get", "update"],
            },
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [crate::api::marks::FREEZE_CONFIG_MAP],
                "verbs": READ,
            },
        ],
    })
}

pub(super) fn cluster_role_binding(config: &Config) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME, "labels": super::labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [subject(config)],
    })
}

pub(super) fn role_binding(config: &Config) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(config),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [subject(config)],
    })
}

fn subject(config: &Config) -> Value {
    json!({"kind": "ServiceAccount", "name": NAME, "namespace": config.namespace})
}
