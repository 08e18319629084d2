//! How a value merges: which maps are granular or atomic, which lists are sets or keyed maps.
//!
//! Refuses to know values. Custom resources are described by their schema, built-in kinds by the names of their fields,
//! which is enough because Kubernetes uses each of those names in one way.

use serde_json::Value;

/// What is known of the type at one place of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'a> {
    /// A custom resource's root, with the schema of its version.
    Custom(Option<&'a Value>),
    /// A structural schema below the root.
    Schema(&'a Value),
    /// A field of a built-in type, by its own name and its parent's; the root has empty names.
    Builtin { parent: &'a str, field: &'a str },
    /// Nothing is known: granular maps, atomic lists.
    Unknown,
}

/// How a list merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum List<'a> {
    Atomic,
    Set,
    Map(Vec<&'a str>),
}

impl<'a> Shape<'a> {
    /// The shape of a field, and whether the type declares it (a key of a free map is not declared).
    pub(crate) fn field(self, name: &'a str) -> (Self, bool) {
        match self {
            Self::Custom(_) if name == "metadata" => (Self::Builtin { parent: "", field: "metadata" }, true),
            Self::Custom(_) if matches!(name, "apiVersion" | "kind") => (Self::Unknown, true),
            Self::Custom(Some(schema)) | Self::Schema(schema) => schema_field(schema, name),
            // A kind registered without a schema still has conditions as everybody declares them.
            Self::Custom(None) if name == "status" => (Self::Builtin { parent: "", field: "status" }, true),
            Self::Custom(None) | Self::Unknown => (Self::Unknown, false),
            Self::Builtin { field, .. } => {
                let declared = !FREE_MAPS.contains(&field);
                let shape = if declared { Self::Builtin { parent: field, field: name } } else { Self::Unknown };
                (shape, declared)
            }
        }
    }

    /// The shape of a list's items.
    pub(crate) fn items(self) -> Self {
        match self {
            Self::Custom(Some(schema)) | Self::Schema(schema) => {
                schema.get("items").map_or(Self::Unknown, Self::Schema)
            }
            Self::Custom(None) | Self::Unknown => Self::Unknown,
            builtin @ Self::Builtin { .. } => builtin,
        }
    }

    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            Self::Schema(schema) => schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            Self::Builtin { field, .. } => ATOMIC_MAPS.contains(&field),
            Self::Custom(_) | Self::Unknown => false,
        }
    }

    /// Whether the field is part of its parent in Go, so that it is there even when it is not set, and nobody adds it.
    pub(crate) fn is_embedded(self) -> bool {
        match self {
            Self::Builtin { field, .. } => EMBEDDED.contains(&field),
            Self::Custom(_) | Self::Schema(_) | Self::Unknown => false,
        }
    }

    pub(crate) fn list(self) -> List<'a> {
        match self {
            Self::Schema(schema) => match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => List::Set,
                Some("map") => List::Map(list_keys(schema)),
                _ => List::Atomic,
            },
            Self::Builtin { parent, field } => builtin_list(parent, field),
            Self::Custom(_) | Self::Unknown => List::Atomic,
        }
    }
}

fn schema_field<'a>(schema: &'a Value, name: &str) -> (Shape<'a>, bool) {
    if let Some(declared) = schema.get("properties").and_then(|properties| properties.get(name)) {
        return (Shape::Schema(declared), true);
    }
    let free = schema.get("additionalProperties").filter(|inner| inner.is_object());
    (free.map_or(Shape::Unknown, Shape::Schema), false)
}

fn list_keys(schema: &Value) -> Vec<&str> {
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    keys.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Fields of built-in types that are maps with free keys.
const FREE_MAPS: &[&str] =
    &["labels", "annotations", "data", "binaryData", "stringData", "matchLabels", "nodeSelector", "limits", "requests"];

/// Fields of built-in types that are owned as a whole.
const ATOMIC_MAPS: &[&str] = &[
    "selector",
    "nodeSelector",
    "involvedObject",
    "regarding",
    "targetRef",
    "roleRef",
    "valueFrom",
    "configMapRef",
    "fieldsV1",
];

/// Fields of built-in types that are no pointers and have no `omitempty`.
const EMBEDDED: &[&str] = &["metadata", "spec", "status", "template", "strategy", "containers"];

fn builtin_list(parent: &str, field: &str) -> List<'static> {
    match (parent, field) {
        (_, "finalizers") => List::Set,
        (_, "ownerReferences") => List::Map(vec!["uid"]),
        ("status", "conditions") => List::Map(vec!["type"]),
        (_, "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" | "schedulingGates") => {
            List::Map(vec!["name"])
        }
        (_, "volumeMounts") => List::Map(vec!["mountPath"]),
        ("containers" | "initContainers", "ports") => List::Map(vec!["containerPort", "protocol"]),
        ("spec", "ports") => List::Map(vec!["port", "protocol"]),
        _ => List::Atomic,
    }
}
