//! The kinds the server serves: the built-in table, kinds registered by a CRD or by hand, and the two views of Events.
//!
//! Refuses to know objects; it only says how objects of a kind are addressed and treated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

/// The scale subresource of a kind, as dotted paths into its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Where the wanted number stands, for example `.spec.replicas`.
    pub replicas: String,
    /// Where the observed number stands.
    pub status_replicas: String,
    /// Where the label selector stands, as text or as a LabelSelector.
    pub selector: Option<String>,
}

/// One kind of object and how the server treats it.
#[allow(clippy::struct_excessive_bools)] // independent traits of a kind, each named where it is set
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: String,
    /// Served versions with their schema (`openAPIV3Schema`; null where there is none).
    pub versions: BTreeMap<String, Value>,
    /// The version that objects are stored in.
    pub storage: String,
    /// The kind's name.
    pub kind: String,
    /// The plural, as in paths.
    pub plural: String,
    /// The singular.
    pub singular: String,
    /// Short names, for discovery.
    pub short_names: Vec<String>,
    /// Categories, for discovery.
    pub categories: Vec<String>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether status is a subresource of its own.
    pub status: bool,
    /// The scale subresource, if any.
    pub scale: Option<Scale>,
    /// Whether metadata.generation is kept.
    pub counts_generation: bool,
    /// Whether an update needs a resourceVersion.
    pub needs_version: bool,
    /// Whether a PUT to a missing name creates.
    pub creates_on_put: bool,
    /// Whether this is a custom resource; these are pruned and defaulted by their schema.
    pub custom: bool,
    /// Field paths that field selectors may name.
    pub selectable: Vec<String>,
}

impl Kind {
    /// A namespaced custom kind with a status subresource and no schema, as a test or the demo registers it.
    pub fn custom(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            versions: BTreeMap::from([(version.to_owned(), Value::Null)]),
            storage: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            status: true,
            scale: None,
            counts_generation: true,
            needs_version: true,
            creates_on_put: false,
            custom: true,
            selectable: Vec::new(),
        }
    }

    /// `plural.group`, or the plural alone in the core group: the name of the kind in messages and of its CRD.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The apiVersion of objects at `version`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.group.is_empty() && self.plural == "pods"
    }

    /// Whether changed annotations move the generation too; Deployments alone do that.
    pub(crate) fn counts_annotations(&self) -> bool {
        self.group == "apps" && self.plural == "deployments"
    }

    pub(crate) fn schema(&self, version: &str) -> Option<&Value> {
        self.versions.get(version).filter(|schema| schema.is_object())
    }
}

/// How stored objects of a kind are shown at the address they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// As stored, but for the apiVersion.
    Plain,
    /// A core Event in the words of events.k8s.io/v1.
    NewEvents,
}

/// A kind as reached through one group and version.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) kind: Arc<Kind>,
    pub(crate) version: String,
    pub(crate) view: View,
}

/// All kinds by (group, plural).
#[derive(Debug)]
pub(crate) struct Registry {
    kinds: BTreeMap<(String, String), Arc<Kind>>,
}

impl Registry {
    pub(crate) fn builtin() -> Self {
        let kinds = BUILTIN.iter().map(Row::kind);
        Self { kinds: kinds.map(|kind| ((kind.group.clone(), kind.plural.clone()), Arc::new(kind))).collect() }
    }

    pub(crate) fn register(&mut self, kind: Kind) {
        self.kinds.insert((kind.group.clone(), kind.plural.clone()), Arc::new(kind));
    }

    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.kinds.remove(&(group.to_owned(), plural.to_owned()));
    }

    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), plural.to_owned()))
    }

    /// The kind behind a path, if it is served at that version.
    pub(crate) fn serve(&self, group: &str, version: &str, plural: &str) -> Option<Served> {
        let (group, view) = match (group, plural) {
            ("events.k8s.io", "events") => ("", View::NewEvents),
            (group, _) => (group, View::Plain),
        };
        let kind = self.get(group, plural)?;
        kind.versions.contains_key(version).then(|| Served {
            kind: Arc::clone(kind),
            version: version.to_owned(),
            view,
        })
    }

    /// The kind of an object by its apiVersion and kind, for seeding.
    pub(crate) fn by_object(&self, api_version: &str, kind: &str) -> Option<Served> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let stored_group = if group == "events.k8s.io" { "" } else { group };
        let found = self.all().find(|one| one.group == stored_group && one.kind == kind)?;
        self.serve(group, version, &found.plural)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    /// The groups beside the core group with their versions.
    pub(crate) fn groups(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut groups = BTreeMap::from([("events.k8s.io".to_owned(), BTreeSet::from(["v1".to_owned()]))]);
        for kind in self.all().filter(|kind| !kind.group.is_empty()) {
            groups.entry(kind.group.clone()).or_default().extend(kind.versions.keys().cloned());
        }
        groups
    }
}

/// One line of the built-in table.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_name: &'static str,
    traits: &'static [Trait],
    selectable: &'static [&'static str],
}

#[derive(PartialEq)]
enum Trait {
    Cluster,
    Status,
    Generation,
    Scale,
    NeedsVersion,
    CreatesOnPut,
}

impl Row {
    fn kind(&self) -> Kind {
        let has = |wanted: &Trait| self.traits.contains(wanted);
        let scale = || Scale {
            replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            selector: Some(".spec.selector".to_owned()),
        };
        Kind {
            namespaced: !has(&Trait::Cluster),
            status: has(&Trait::Status),
            scale: has(&Trait::Scale).then(scale),
            counts_generation: has(&Trait::Generation),
            needs_version: has(&Trait::NeedsVersion),
            creates_on_put: has(&Trait::CreatesOnPut),
            custom: false,
            short_names: Some(self.short_name).filter(|name| !name.is_empty()).map(str::to_owned).into_iter().collect(),
            selectable: self.selectable.iter().map(|path| (*path).to_owned()).collect(),
            ..Kind::custom(self.group, self.version, self.kind, self.plural)
        }
    }
}

const fn row(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_name: &'static str,
    traits: &'static [Trait],
    selectable: &'static [&'static str],
) -> Row {
    Row { group, version: "v1", kind, plural, short_name, traits, selectable }
}

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "reason",
    "reportingComponent",
    "reportingController",
    "source",
    "type",
];

/// Which built-in kinds exist and what sets each apart, after the strategies of the 1.37 API server.
const BUILTIN: &[Row] = {
    use Trait::{Cluster, CreatesOnPut, Generation, NeedsVersion, Scale, Status};
    &[
        row("", "Namespace", "namespaces", "ns", &[Cluster, Status], &["status.phase"]),
        row("", "Node", "nodes", "no", &[Cluster, Status], &["spec.unschedulable"]),
        row("", "ConfigMap", "configmaps", "cm", &[], &[]),
        row("", "Secret", "secrets", "", &[], &["type"]),
        row("", "Pod", "pods", "po", &[Status, Generation], POD_FIELDS),
        row("", "Service", "services", "svc", &[Status], &["spec.clusterIP", "spec.type"]),
        row("", "ServiceAccount", "serviceaccounts", "sa", &[], &[]),
        row("", "Event", "events", "ev", &[CreatesOnPut], EVENT_FIELDS),
        row("coordination.k8s.io", "Lease", "leases", "", &[NeedsVersion, CreatesOnPut], &[]),
        row("apps", "Deployment", "deployments", "deploy", &[Status, Generation, Scale], &[]),
        row("apps", "ReplicaSet", "replicasets", "rs", &[Status, Generation, Scale], &["status.replicas"]),
        row("apps", "StatefulSet", "statefulsets", "sts", &[Status, Generation, Scale], &[]),
        row("apps", "ControllerRevision", "controllerrevisions", "", &[], &[]),
        row("apps", "DaemonSet", "daemonsets", "ds", &[Status, Generation], &[]),
        row("discovery.k8s.io", "EndpointSlice", "endpointslices", "", &[Generation], &[]),
        row("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "", &[Cluster], &[]),
        row("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", "", &[Cluster], &[]),
        row("rbac.authorization.k8s.io", "Role", "roles", "", &[], &[]),
        row("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", "", &[], &[]),
        row(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "crd",
            &[Cluster, Status, Generation, NeedsVersion],
            &[],
        ),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_groups_of_events_reach_one_kind() {
        let registry = Registry::builtin();
        let old = registry.serve("", "v1", "events").unwrap();
        let new = registry.serve("events.k8s.io", "v1", "events").unwrap();
        assert!(Arc::ptr_eq(&old.kind, &new.kind));
        assert_eq!((old.view, new.view), (View::Plain, View::NewEvents));
    }

    #[test]
    fn a_version_that_is_not_served_is_not_found() {
        let mut registry = Registry::builtin();
        registry.register(Kind::custom("trade.io", "v1", "OrderService", "orderservices"));
        assert!(registry.serve("trade.io", "v1", "orderservices").is_some());
        assert!(registry.serve("trade.io", "v2", "orderservices").is_none());
        assert!(registry.by_object("trade.io/v1", "OrderService").is_some());
    }
}
