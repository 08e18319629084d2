//! Whether an object's metadata is well formed: names, labels, annotations, owner references.
//!
//! Refuses to know kinds, but for the one group whose names are not DNS names.

use serde_json::{Map, Value};

use crate::memkube::{
    object,
    status::{Cause, FieldError},
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// All annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Everything wrong with an object's metadata; RBAC names need not be DNS names.
pub(crate) fn check(object: &Value, group: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = object::name(object);
    if group != "rbac.authorization.k8s.io" && !is_subdomain(name) {
        errors.push(FieldError::new("metadata.name", Cause::Invalid, Some(name.into()), SUBDOMAIN));
    }
    check_labels(object, &mut errors);
    check_annotations(object, &mut errors);
    for finalizer in object::finalizers(object).into_iter().filter(|one| !is_qualified_name(one)) {
        errors.push(FieldError::new("metadata.finalizers", Cause::Invalid, Some(finalizer.into()), QUALIFIED_NAME));
    }
    for (index, owner) in object::owners(object).enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                errors.push(FieldError::new(path, Cause::Required, None, "must not be empty"));
            }
        }
    }
    errors
}

/// Fields of an update that must be as they were.
pub(crate) fn check_unchanged(sent: &Value, old: &Value) -> Vec<FieldError> {
    let changed = ["uid", "deletionTimestamp"].into_iter().filter_map(|field| {
        let value = object::meta(sent, field).filter(|value| !value.is_null() && **value != "")?;
        let path = format!("metadata.{field}");
        let differs = object::meta(old, field) != Some(value);
        differs.then(|| FieldError::new(path, Cause::Invalid, Some(value.clone()), "field is immutable"))
    });
    changed.collect()
}

fn map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object::meta(object, field).and_then(Value::as_object).map(Map::iter).into_iter().flatten()
}

fn check_labels(object: &Value, errors: &mut Vec<FieldError>) {
    let mut refuse = |value: &Value, detail: &str| {
        errors.push(FieldError::new("metadata.labels", Cause::Invalid, Some(value.clone()), detail));
    };
    for (key, value) in map(object, "labels") {
        if !is_qualified_name(key) {
            refuse(&key.as_str().into(), QUALIFIED_NAME);
        }
        match value.as_str() {
            None => refuse(value, "must be a string"),
            Some(text) if text.len() > 63 => refuse(value, "must be no more than 63 bytes"),
            Some(text) if !text.is_empty() && !is_name_part(text) => refuse(value, LABEL_VALUE),
            Some(_) => {}
        }
    }
}

fn check_annotations(object: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in map(object, "annotations") {
        // Keys are judged in lower case, values are free.
        if !is_qualified_name(&key.to_lowercase()) {
            let value = Some(key.as_str().into());
            errors.push(FieldError::new("metadata.annotations", Cause::Invalid, value, QUALIFIED_NAME));
        }
        if let Some(text) = value.as_str() {
            size += key.len() + text.len();
        } else {
            let value = Some(value.clone());
            errors.push(FieldError::new("metadata.annotations", Cause::Invalid, value, "must be a string"));
        }
    }
    if size > MAX_ANNOTATIONS {
        let detail = format!("may not be more than {MAX_ANNOTATIONS} bytes");
        errors.push(FieldError::new("metadata.annotations", Cause::TooLong, None, detail));
    }
}

fn is_subdomain(text: &str) -> bool {
    let inner = |symbol: char| symbol.is_ascii_lowercase() || symbol.is_ascii_digit();
    let is_label = |part: &str| {
        part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|symbol| inner(symbol) || symbol == '-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// `name` or `prefix/name`, as keys of labels and annotations are.
fn is_qualified_name(text: &str) -> bool {
    let (prefix_is_good, name) = match text.split_once('/') {
        Some((prefix, name)) => (is_subdomain(prefix), name),
        None => (true, text),
    };
    prefix_is_good && name.len() <= 63 && is_name_part(name)
}

fn is_name_part(text: &str) -> bool {
    let outer = |symbol: char| symbol.is_ascii_alphanumeric();
    let inner = |symbol: char| outer(symbol) || "-_.".contains(symbol);
    text.starts_with(outer) && text.ends_with(outer) && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_malformed_field_is_named() {
        for (metadata, wanted) in [
            (json!({"name": "a"}), None),
            (json!({"name": "a.b-c"}), None),
            (json!({"name": "A"}), Some("metadata.name")),
            (json!({"name": "a", "labels": {"x.io/y": "", "z": "a_b"}}), None),
            (json!({"name": "a", "labels": {"x": "no spaces"}}), Some("metadata.labels")),
            (json!({"name": "a", "labels": {"x": "a".repeat(64)}}), Some("metadata.labels")),
            (json!({"name": "a", "labels": {"x/y/z": "a"}}), Some("metadata.labels")),
            (json!({"name": "a", "labels": {"x": 5}}), Some("metadata.labels")),
            (json!({"name": "a", "annotations": {"X.io/y": "any thing"}}), None),
            (json!({"name": "a", "annotations": {"": "x"}}), Some("metadata.annotations")),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]}),
                Some("metadata.ownerReferences[0].uid"),
            ),
        ] {
            let fields: Vec<String> =
                check(&json!({"metadata": metadata}), "").into_iter().map(|error| error.field).collect();
            assert_eq!(fields.first().map(String::as_str), wanted, "{metadata}");
        }
    }
}
