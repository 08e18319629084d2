//! Structural schemas at work on objects: dropping undeclared fields, filling in defaults.
//!
//! Refuses to validate; that is admission's, so that one set of checks answers everywhere.

use serde_json::{Map, Value};

/// Drops fields the schema does not declare; apiVersion, kind and metadata of the root are kept.
pub(crate) fn prune(root: &mut Value, schema: &Value) {
    let Some(map) = root.as_object_mut() else { return };
    let kept = take_root(map);
    prune_value(root, schema);
    if let Some(map) = root.as_object_mut() {
        map.extend(kept);
    }
}

fn take_root(map: &mut Map<String, Value>) -> Vec<(String, Value)> {
    ["apiVersion", "kind", "metadata"].iter().filter_map(|key| map.remove_entry(*key)).collect()
}

fn prune_value(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let free = schema.get("additionalProperties");
            let keeps_unknown = is_true(schema, "x-kubernetes-preserve-unknown-fields")
                || free.is_some_and(|free| free.is_object() || free == &Value::Bool(true));
            map.retain(|key, child| match properties.and_then(|properties| properties.get(key)) {
                Some(declared) => {
                    prune_value(child, declared);
                    true
                }
                None if is_true(schema, "x-kubernetes-embedded-resource") && is_root_field(key) => true,
                None => {
                    if let Some(inner) = free.filter(|free| free.is_object()) {
                        prune_value(child, inner);
                    }
                    keeps_unknown
                }
            });
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for item in items {
                    prune_value(item, inner);
                }
            }
        }
        _ => {}
    }
}

fn is_root_field(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

fn is_true(schema: &Value, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

/// Fills in defaults, also inside what a default brought; a null that may not be one gives way to its default or goes.
pub(crate) fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (key, declared) in properties.into_iter().flatten() {
                let stands = map.get(key).is_some_and(|child| !child.is_null() || is_true(declared, "nullable"));
                match (stands, declared.get("default")) {
                    (true, _) => {}
                    (false, Some(default)) => drop(map.insert(key.clone(), default.clone())),
                    (false, None) => drop(map.remove(key)),
                }
                if let Some(child) = map.get_mut(key) {
                    default(child, declared);
                }
            }
            let free = schema.get("additionalProperties").filter(|free| free.is_object());
            if let Some(inner) = free {
                let undeclared = |key: &str| properties.is_none_or(|properties| !properties.contains_key(key));
                for (_, child) in map.iter_mut().filter(|(key, _)| undeclared(key)) {
                    default(child, inner);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for item in items {
                    default(item, inner);
                }
            }
        }
        _ => {}
    }
}

/// Removes every null below a value: in an applied configuration it names no field.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 3},
                "limits": {"type": "object", "default": {}, "properties": {"cpu": {"type": "string", "default": "1"}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"typed": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "byName": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "note": {"type": "string", "nullable": true},
            }},
        }})
    }

    #[test]
    fn undeclared_fields_go_and_free_maps_stay() {
        let mut object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "other": 1, "spec": {
            "size": 1, "typo": 2, "free": {"any": 1, "typed": {"a": "x", "b": "y"}}, "byName": {"k": {"a": "x", "b": "y"}},
        }});
        prune(&mut object, &schema());
        let wanted = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": {
            "size": 1, "free": {"any": 1, "typed": {"a": "x"}}, "byName": {"k": {"a": "x"}},
        }});
        assert_eq!(object, wanted);
    }

    #[test]
    fn defaults_fill_in_what_is_absent_or_wrongly_null() {
        let mut object = json!({"spec": {"size": null, "note": null, "byName": {"k": {"a": null}}}});
        default(&mut object, &schema());
        let wanted = json!({"spec": {"size": 3, "note": null, "limits": {"cpu": "1"}, "byName": {"k": {}}}});
        assert_eq!(object, wanted);
    }
}
