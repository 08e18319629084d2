//! The walk over a structural schema: types, required and unknown fields, bounds, patterns, enumerations.
//!
//! Knows the part of OpenAPI that our own definitions use; a test holds that they use no other.

use std::collections::{BTreeMap, BTreeSet};

use chrono::DateTime;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::{Map, Value};

use crate::api::schema;
use crate::model::problem::Problem;

/// A problem, and whether the server skips CEL rules because of it.
pub(super) struct Finding {
    pub(super) problem: Problem,
    pub(super) blocks_rules: bool,
}

/// Everything that the schema of a kind says against an object of it.
pub(super) fn problems(schema: &JSONSchemaProps, patterns: &BTreeMap<String, Regex>, object: &Value) -> Vec<Finding> {
    let mut walk = Walk { patterns, findings: Vec::new() };
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    // Every object has these, whether its schema says so or not.
    let own: Map<String, Value> = fields
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    walk.object(schema, &own, "");
    walk.findings
}

/// The schemas directly below a schema.
pub(super) fn children(schema: &JSONSchemaProps) -> impl Iterator<Item = &JSONSchemaProps> {
    let items = match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items.as_ref()),
        _ => None,
    };
    let values = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values.as_ref()),
        _ => None,
    };
    schema.properties.iter().flat_map(BTreeMap::values).chain(items).chain(values)
}

/// The value at a path such as `spec.actions[0].type`.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, step| {
        let (name, indices) = step.split_once('[').unwrap_or((step, ""));
        let value = value.get(name)?;
        indices
            .split('[')
            .filter_map(|index| index.strip_suffix(']'))
            .try_fold(value, |value, index| value.get(index.parse::<usize>().ok()?))
    })
}

/// A value as messages show it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

struct Walk<'a> {
    patterns: &'a BTreeMap<String, Regex>,
    findings: Vec<Finding>,
}

impl Walk<'_> {
    fn blocking(&mut self, problem: Problem) {
        self.findings.push(Finding { problem, blocks_rules: true });
    }

    fn found(&mut self, problem: Problem) {
        self.findings.push(Finding { problem, blocks_rules: false });
    }

    fn value(&mut self, schema: &JSONSchemaProps, value: &Value, path: &str) {
        if let Some(expected) = type_mismatch(schema, value) {
            return self.blocking(Problem::expected(path, shown(value), expected));
        }
        if let Some(allowed) = schema.enum_.as_ref().filter(|allowed| !allowed.iter().any(|one| one.0 == *value)) {
            let allowed: Vec<_> = allowed.iter().map(|one| one.0.as_str().unwrap_or_default()).collect();
            return self.blocking(Problem::expected(path, shown(value), format!("one of {}", allowed.join(", "))));
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Array(items) => self.list(schema, items, path),
            Value::String(text) => self.text(schema, text, path),
            Value::Number(number) => self.number(schema, number.as_f64().unwrap_or_default(), path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, fields: &Map<String, Value>, path: &str) {
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            return;
        }
        for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name)) {
            self.blocking(Problem::at(below(path, name), "is missing; it is required"));
        }
        let count = i64::try_from(fields.len()).unwrap_or(i64::MAX);
        if schema.min_properties.is_some_and(|least| count < least) {
            self.found(Problem::at(path, "has too few entries; expected at least one"));
        }
        if let Some(most) = schema.max_properties.filter(|most| count > *most) {
            self.blocking(Problem::expected(path, format!("has {count} entries"), format!("at most {most}")));
        }
        for (name, value) in fields {
            let path = below(path, name);
            match (schema.properties.as_ref().and_then(|known| known.get(name)), &schema.additional_properties) {
                (Some(field), _) => self.value(field, value, &path),
                (None, Some(JSONSchemaPropsOrBool::Schema(values))) => self.value(values, value, &path),
                (None, _) => self.unknown(schema, &path),
            }
        }
    }

    fn unknown(&mut self, schema: &JSONSchemaProps, path: &str) {
        let known: Vec<_> = schema.properties.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
        self.found(Problem::expected(path, "is no field that exists here", format!("one of {}", known.join(", "))));
    }

    fn list(&mut self, schema: &JSONSchemaProps, items: &[Value], path: &str) {
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(least) = schema.min_items.filter(|least| count < *least) {
            self.found(Problem::expected(path, format!("has {count} entries"), format!("at least {least}")));
        }
        if let Some(most) = schema.max_items.filter(|most| count > *most) {
            return self.blocking(Problem::expected(path, format!("has {count} entries"), format!("at most {most}")));
        }
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            for (index, value) in items.iter().enumerate() {
                self.value(item, value, &format!("{path}[{index}]"));
            }
        }
        if let Some(keys) = &schema.x_kubernetes_list_map_keys {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let key: Vec<_> = keys.iter().map(|key| item.get(key).map(Value::to_string)).collect();
                if !seen.insert(key) {
                    self.found(Problem::at(
                        format!("{path}[{index}]"),
                        format!("has the same {} as another", keys.join(", ")),
                    ));
                }
            }
        }
    }

    fn text(&mut self, schema: &JSONSchemaProps, text: &str, path: &str) {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if schema.min_length.is_some_and(|least| length < least) {
            self.found(Problem::at(path, "is empty"));
        }
        if let Some(most) = schema.max_length.filter(|most| length > *most) {
            return self.blocking(Problem::expected(
                path,
                format!("has {length} characters"),
                format!("at most {most}"),
            ));
        }
        let fits = |pattern: &String| self.patterns.get(pattern).is_none_or(|regex| regex.is_match(text));
        if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !fits(pattern)) {
            self.found(Problem::expected(path, format!("`{text}`"), schema::words_for(pattern)));
        }
        if schema.format.as_deref() == Some("date-time") && !is_time(text) {
            self.blocking(Problem::expected(
                path,
                format!("`{text}`"),
                "a time such as `2026-03-01T10:00:00Z` (RFC 3339)",
            ));
        }
    }

    fn number(&mut self, schema: &JSONSchemaProps, number: f64, path: &str) {
        if let Some(least) = schema.minimum.filter(|least| number < *least) {
            self.found(Problem::expected(path, format!("`{number}`"), format!("at least {least}")));
        }
        if let Some(most) = schema.maximum.filter(|most| number > *most) {
            self.found(Problem::expected(path, format!("`{number}`"), format!("at most {most}")));
        }
    }
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// RFC 3339 as the server reads it; chrono would take a space in place of the `T` too.
fn is_time(text: &str) -> bool {
    let separated = text.as_bytes().get(10).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'T'));
    separated && DateTime::parse_from_rfc3339(text).is_ok()
}

/// What was expected, if the value is of another type.
fn type_mismatch(schema: &JSONSchemaProps, value: &Value) -> Option<&'static str> {
    let (fits, expected) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a text"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (value.is_i64() || value.is_u64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        _ => return None,
    };
    (!fits).then_some(expected)
}
