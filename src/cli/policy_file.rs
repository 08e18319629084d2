//! A policy from a file, through the checks that it would meet in a cluster: the API server's, then the engine's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::api::{AnyPolicy, Tenant, admission, documents};
use crate::decide::{self, Entry, Surroundings};
use crate::model::problem::Problem;
use crate::model::tenant;

/// The largest file that is read at all; what is read is then checked against `documents::LARGEST`.
const LARGEST_READ: u64 = 16 << 20;

/// The one YAML document of a file.
pub(crate) fn document(path: &Path) -> Result<Value, Problem> {
    documents::parse_document(&path.display().to_string(), &bytes(path)?)
}

/// The bytes of a file, not more than can be meant.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Problem> {
    let name = path.display().to_string();
    let unread = |error: std::io::Error| Problem::at(&name, format!("cannot be read: {error}"));
    let size = fs::metadata(path).map_err(unread)?.len();
    if size > LARGEST_READ {
        return Err(Problem::expected(&name, format!("has {size} bytes"), format!("at most {}", documents::LARGEST)));
    }
    fs::read(path).map_err(unread)
}

/// A policy object as the API server would store it. One without a namespace lies in `default`.
pub(crate) fn admitted(mut object: Value) -> Result<AnyPolicy, Vec<Problem>> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("namespace").or_insert_with(|| json!("default"));
    }
    AnyPolicy::from_json(object)
}

/// A Tenant object from a file.
pub(crate) fn tenant(path: &Path) -> Result<tenant::Tenant, Vec<Problem>> {
    let mut object = document(path).map_err(|problem| vec![problem])?;
    if object.get("kind").and_then(Value::as_str) != Some("Tenant") {
        return Err(vec![Problem::expected(path.display().to_string(), "is no Tenant", "an object of kind Tenant")]);
    }
    admission::admit(&mut object)?;
    let tenant: Tenant =
        serde_json::from_value(object).map_err(|error| vec![Problem::at("spec", error.to_string())])?;
    Ok(tenant.to_model())
}

/// The policy, its tenant and its rule, compiled as the controller does. Where no configuration is given
/// (`surroundings.target_kinds` is empty), any target kind may be governed.
pub(crate) fn prepared(
    policy: &AnyPolicy,
    tenant: tenant::Tenant,
    mut surroundings: Surroundings,
    now: DateTime<Utc>,
) -> Result<Entry, Vec<Problem>> {
    let draft = policy.draft(now);
    if surroundings.target_kinds.is_empty() {
        let target = &draft.target_ref;
        surroundings.target_kinds = BTreeSet::from([(target.api_version.clone(), target.kind.clone())]);
    }
    let prepared = decide::prepare(&draft, &policy.spec_json(), &Arc::new(tenant), &Arc::new(surroundings));
    prepared.map_err(|invalid| invalid.problems)
}
