//! CustomResourceDefinitions: checking them, marking them established, and making their kinds served.
//!
//! Refuses to know instances; deleting a definition with its instances is `delete`'s.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::memkube::{
    kinds::{Kind, Registry, Scale},
    object,
    status::{Cause, FieldError},
};

/// Held by a definition until its instances are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(crate) fn is_definition(kind: &Kind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// Checks a definition and fills in what the server would: names, stored versions, conditions.
pub(crate) fn complete(kind: &Kind, definition: &mut Value, now: DateTime<Utc>) -> Result<(), Vec<FieldError>> {
    if !is_definition(kind) {
        return Ok(());
    }
    let errors = check(definition);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut names = definition["spec"]["names"].clone();
    let lower_kind = text(&names, "kind").to_lowercase();
    let names_map = names.as_object_mut().into_iter().next();
    if let Some(map) = names_map {
        map.entry("singular").or_insert_with(|| lower_kind.into());
        let list_kind = format!("{}List", map.get("kind").and_then(Value::as_str).unwrap_or_default());
        map.entry("listKind").or_insert_with(|| list_kind.into());
    }
    definition["spec"]["names"] = names.clone();
    if definition["spec"].get("conversion").is_none() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let storage = storage_version(definition).unwrap_or_default();
    let status = object::map_at(definition, "status");
    status.insert("acceptedNames".to_owned(), names);
    let mut stored: Vec<String> =
        object::strings(status.get("storedVersions")).into_iter().map(str::to_owned).collect();
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    status.insert("storedVersions".to_owned(), stored.into());
    status.entry("conditions").or_insert_with(|| {
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message,
                   "lastTransitionTime": object::timestamp(now)})
        };
        json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ])
    });
    Ok(())
}

fn check(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    let wanted = format!("{}.{}", text(names, "plural"), text(spec, "group"));
    if object::name(definition) != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        let value = Some(object::name(definition).into());
        errors.push(FieldError::new("metadata.name", Cause::Invalid, value, detail));
    }
    for (parent, field, path) in [
        (spec, "group", "spec.group"),
        (names, "plural", "spec.names.plural"),
        (names, "kind", "spec.names.kind"),
        (spec, "scope", "spec.scope"),
    ] {
        if text(parent, field).is_empty() {
            errors.push(FieldError::new(path, Cause::Required, None, ""));
        }
    }
    let storing = versions(definition).filter(|version| version.get("storage") == Some(&Value::Bool(true)));
    if storing.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::new("spec.versions", Cause::Invalid, spec.get("versions").cloned(), detail));
    }
    for (index, version) in versions(definition).enumerate() {
        if schema_of(version).is_null() {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::new(path, Cause::Required, None, "schemas are required"));
        }
    }
    errors
}

/// Serves the kind of a definition.
pub(crate) fn register(kinds: &mut Registry, definition: &Value) {
    if let Some(kind) = kind_of(definition) {
        kinds.register(kind);
    }
}

/// The kind that a definition describes.
pub(crate) fn kind_of(definition: &Value) -> Option<Kind> {
    let spec = definition.get("spec")?;
    let names = spec.get("names")?;
    let storage = storage_version(definition)?;
    let served = versions(definition).filter(|version| version.get("served") == Some(&Value::Bool(true)));
    let schemas: BTreeMap<String, Value> =
        served.map(|version| (text(version, "name").to_owned(), schema_of(version).clone())).collect();
    let stored = versions(definition).find(|version| text(version, "name") == storage)?;
    let subresource =
        |name: &str| stored.get("subresources").and_then(|all| all.get(name)).filter(|one| !one.is_null());
    let scale = subresource("scale").map(|scale| Scale {
        replicas: text(scale, "specReplicasPath").to_owned(),
        status_replicas: text(scale, "statusReplicasPath").to_owned(),
        selector: Some(text(scale, "labelSelectorPath").to_owned()).filter(|path| !path.is_empty()),
    });
    let selectable = stored.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    let list = |field: &str| object::strings(names.get(field)).into_iter().map(str::to_owned).collect();
    Some(Kind {
        versions: schemas,
        singular: text(names, "singular").to_owned(),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        status: subresource("status").is_some(),
        scale,
        selectable: selectable.map(|field| text(field, "jsonPath").to_owned()).collect(),
        ..Kind::custom(text(spec, "group"), &storage, text(names, "kind"), text(names, "plural"))
    })
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array).into_iter().flatten()
}

fn storage_version(definition: &Value) -> Option<String> {
    let stored = versions(definition).find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    Some(text(stored, "name").to_owned())
}

fn schema_of(version: &Value) -> &Value {
    version.get("schema").and_then(|schema| schema.get("openAPIV3Schema")).unwrap_or(&Value::Null)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
