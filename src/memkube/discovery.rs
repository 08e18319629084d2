//! The discovery documents: versions, groups and resources, in the plain form that every client reads.
//!
//! Refuses to know objects; aggregated discovery and OpenAPI are not offered.

use serde_json::{Value, json};

use crate::memkube::kinds::{Kind, Registry};

/// What kube-rs and kubectl parse as a version; the build metadata says who answers.
const GIT_VERSION: &str = "v1.37.2+memkube";

pub(crate) fn version() -> Value {
    json!({"major": "1", "minor": "37", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
           "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": ""})
}

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(crate) fn groups(kinds: &Registry) -> Value {
    let groups: Vec<Value> = kinds.groups().keys().filter_map(|name| group(kinds, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn group(kinds: &Registry, name: &str) -> Option<Value> {
    let versions: Vec<Value> = kinds
        .groups()
        .get(name)?
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let preferred = versions.last().cloned();
    Some(
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": preferred}),
    )
}

pub(crate) fn resources(kinds: &Registry, group: &str, version: &str) -> Option<Value> {
    let stored_group = if group == "events.k8s.io" { "" } else { group };
    let served = kinds.all().filter(|kind| kind.group == stored_group && kind.versions.contains_key(version));
    let served = served.filter(|kind| group != "events.k8s.io" || kind.plural == "events");
    let resources: Vec<Value> = served.flat_map(|kind| of_kind(kind)).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    })
}

fn of_kind(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    });
    for (field, values) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !values.is_empty() {
            main[field] = json!(values);
        }
    }
    let subresource = |name: &str, kind_name: &str| {
        json!({"name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
               "kind": kind_name, "verbs": ["get", "patch", "update"]})
    };
    let mut all = vec![main];
    all.extend(kind.status.then(|| subresource("status", &kind.kind)));
    all.extend(kind.scale.as_ref().map(|_| {
        let mut scale = subresource("scale", "Scale");
        scale["group"] = "autoscaling".into();
        scale["version"] = "v1".into();
        scale
    }));
    all
}
