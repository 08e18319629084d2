//! Defaults and nulls, as the API server treats them before it validates: a missing field with a default gets it, a null
//! in a field that is not nullable counts as missing, and what was just filled in is filled in further. A whole number
//! that was written with a point becomes one without.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Number, Value};

pub(super) fn apply(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in schema.properties.iter().flatten() {
                if fields.get(name).is_some_and(Value::is_null) && field.nullable != Some(true) {
                    fields.remove(name);
                }
                if let Some(default) = field.default.as_ref().filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.0.clone());
                }
                if let Some(child) = fields.get_mut(name) {
                    apply(field, child);
                }
            }
            if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
                for child in fields.values_mut() {
                    apply(values, child);
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
                for child in items {
                    apply(item, child);
                }
            }
        }
        Value::Number(number) if schema.type_.as_deref() == Some("integer") => {
            if let Some(whole) = whole(number) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

fn whole(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)?;
    // Beyond this, f64 does not count in ones any more.
    (float.abs() < 9e15).then_some(float as i64)
}
