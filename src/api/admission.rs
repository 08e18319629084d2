//! What the API server checks when one of our objects is written, without a server: `eval`, `test`, the demo and
//! bundles refuse the same input at the same path.
//!
//! The schemas and CEL rules are those of [`super::crd`], so nothing is stated twice. In the server's order: drop nulls,
//! apply defaults, walk the schema, then CEL. One thing is stricter: an unknown field is an error here, as it is for
//! `kubectl apply` (the server itself prunes it).

mod defaults;
mod walk;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::core::cel::{CompiledSchema, compile_schema, validate_compiled};
use regex::Regex;
use serde_json::{Map, Value};

use super::{API_VERSION, crd};
use crate::model::problem::Problem;
use crate::model::time;

/// Checks an object of one of our kinds, with defaults applied first. Every finding carries the path of its field as
/// the API server writes it.
pub fn check(object: &Value) -> Result<(), Vec<Problem>> {
    admit(&mut object.clone())
}

/// Like [`check`], and leaves the object as the API server would store it: nulls dropped, defaults filled in.
pub fn admit(object: &mut Value) -> Result<(), Vec<Problem>> {
    admit_over(object, None)
}

/// Like [`admit`], for a write over `old`. CEL rules are skipped where the spec is the same, as the server skips them on
/// what did not change; a status write costs no rules.
pub fn admit_update(object: &mut Value, old: &Value) -> Result<(), Vec<Problem>> {
    admit_over(object, Some(old))
}

fn admit_over(object: &mut Value, old: Option<&Value>) -> Result<(), Vec<Problem>> {
    let definition = Definition::of(object)?;
    defaults::apply(&definition.schema, object);
    let mut problems = metadata_problems(object);
    let walked = walk::problems(&definition.schema, &definition.patterns, object);
    // The server skips CEL where a rule might meet a value of the wrong shape; its rules then say nothing true.
    let blocked = walked.iter().any(|finding| finding.blocks_rules);
    problems.extend(walked.into_iter().map(|finding| finding.problem));
    let same_spec = old.is_some_and(|old| old.get("spec") == object.get("spec"));
    if !blocked && !same_spec {
        problems.extend(rule_problems(&definition.rules, object));
    }
    problems.sort();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Drops nulls and fills in the defaults of an object of one of our kinds; any other stays as it is.
pub fn apply_defaults(object: &mut Value) {
    if let Ok(definition) = Definition::of(object) {
        defaults::apply(&definition.schema, object);
    }
}

/// One kind, compiled.
struct Definition {
    kind: String,
    schema: JSONSchemaProps,
    patterns: BTreeMap<String, Regex>,
    rules: CompiledSchema,
}

static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| crd::all().into_iter().map(Definition::new).collect());

impl Definition {
    fn new(crd: crd::Crd) -> Self {
        let version = crd.spec.versions.into_iter().next();
        let schema = version
            .and_then(|version| version.schema?.open_api_v3_schema)
            .expect("every definition of ours has one version with a schema");
        let mut patterns = BTreeMap::new();
        collect_patterns(&schema, &mut patterns);
        let json = serde_json::to_value(&schema).expect("a schema is plain data");
        Self { kind: crd.spec.names.kind, patterns, rules: compile_schema(&json), schema }
    }

    fn of(object: &Value) -> Result<&'static Self, Vec<Problem>> {
        let Some(fields) = object.as_object() else {
            return Err(vec![Problem::at("", "expected an object with apiVersion, kind, metadata and spec")]);
        };
        let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != API_VERSION {
            return Err(vec![Problem::expected("apiVersion", format!("`{api_version}`"), format!("`{API_VERSION}`"))]);
        }
        DEFINITIONS.iter().find(|definition| definition.kind == kind).ok_or_else(|| {
            let kinds: Vec<_> = DEFINITIONS.iter().map(|definition| definition.kind.as_str()).collect();
            vec![Problem::expected("kind", format!("`{kind}`"), format!("one of {}", kinds.join(", ")))]
        })
    }
}

fn collect_patterns(schema: &JSONSchemaProps, patterns: &mut BTreeMap<String, Regex>) {
    if let Some(pattern) = &schema.pattern {
        let regex = Regex::new(pattern).expect("the patterns of our schemas are valid");
        patterns.insert(pattern.clone(), regex);
    }
    for child in walk::children(schema) {
        collect_patterns(child, patterns);
    }
}

/// Metadata that people write; the server fills in and checks the rest.
const METADATA: [&str; 14] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

fn metadata_problems(object: &Value) -> Vec<Problem> {
    static SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").expect("a valid pattern")
    });
    let empty = Map::new();
    let metadata = match object.get("metadata") {
        None => &empty,
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return vec![Problem::expected("metadata", walk::shown(other), "an object")],
    };
    let mut problems: Vec<_> = metadata
        .keys()
        .filter(|field| !METADATA.contains(&field.as_str()))
        .map(|field| Problem::at(format!("metadata.{field}"), "is no field that metadata has"))
        .collect();
    let expected = "a DNS subdomain (lower case letters, digits, `-` and `.`, at most 253 characters)";
    match metadata.get("name") {
        Some(Value::String(name)) if name.len() <= 253 && SUBDOMAIN.is_match(name) => {}
        Some(other) => problems.push(Problem::expected("metadata.name", walk::shown(other), expected)),
        None if metadata.contains_key("generateName") => {}
        None => problems.push(Problem::at("metadata.name", format!("is missing; expected {expected}"))),
    }
    problems
}

fn rule_problems(rules: &CompiledSchema, object: &Value) -> Vec<Problem> {
    let Err(errors) = validate_compiled(rules, object, None) else {
        return Vec::new();
    };
    let problem = |path: String, message: String| {
        let found = walk::at(object, &path).filter(|value| !value.is_object() && !value.is_array());
        match found {
            // Durations can say more exactly what is wrong with them.
            Some(Value::String(text)) if message.ends_with(time::EXPECTED) => match time::parse_duration(text) {
                Err(error) => Problem::expected(path, error, time::EXPECTED),
                Ok(_) => Problem::at(path, message),
            },
            Some(value) => Problem::at(path, format!("{}: {message}", walk::shown(value))),
            None => Problem::at(path, message),
        }
    };
    errors.into_iter().map(|error| problem(error.field_path, error.message)).collect()
}

#[cfg(test)]
mod tests;
