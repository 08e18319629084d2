//! Accessors on untyped objects: metadata fields, names, versions, empty containers.
//!
//! Refuses to know kinds and rules; every function is total on any JSON value.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value};

pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// A metadata string; absent and of another type read as empty, as Go's zero value.
pub(crate) fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    meta(object, field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

pub(crate) fn generation(object: &Value) -> i64 {
    meta(object, "generation").and_then(Value::as_i64).unwrap_or_default()
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    meta(object, "deletionTimestamp").is_some_and(|value| !value.is_null())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(meta(object, "finalizers"))
}

pub(crate) fn strings(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    meta(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    owners(object).filter_map(|owner| owner.get("uid")?.as_str())
}

/// The metadata map, made where the object has none.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_at(object, "metadata")
}

/// The map at a metadata field, made where there is none.
pub(crate) fn meta_map<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    as_map(meta_mut(object).entry(field).or_insert(Value::Null))
}

/// The map at `field` of an object; whatever else stands there (or the object is) gives way.
pub(crate) fn map_at<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let slot = as_map(object).entry(field).or_insert(Value::Null);
    as_map(slot)
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just above"),
    }
}

/// Sets or, with `None`, removes one metadata field.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    set(meta_mut(object), field, value);
}

/// Sets or, with `None`, removes one top-level field.
pub(crate) fn set_field(object: &mut Value, field: &str, value: Option<Value>) {
    set(as_map(object), field, value);
}

fn set(map: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(map.insert(field.to_owned(), value)),
        None => drop(map.remove(field)),
    }
}

/// A metadata time: whole seconds, as `metav1.Time`.
pub(crate) fn timestamp(at: DateTime<Utc>) -> Value {
    at.to_rfc3339_opts(SecondsFormat::Secs, true).into()
}

/// Go's `omitempty` on ObjectMeta: nulls, empty strings, lists and maps are absent.
pub(crate) fn drop_empty_meta(object: &mut Value) {
    meta_mut(object).retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
}

/// The value at a dotted path with a leading dot or none (`.spec.replicas`); no list indices.
pub(crate) fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(object, |value, part| value.get(part))
}

/// Sets the value at a dotted path, making the maps on the way.
pub(crate) fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut slot = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        slot = as_map(slot).entry(part).or_insert(Value::Null);
    }
    *slot = value;
}
