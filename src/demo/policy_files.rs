//! A user's own policies from a folder, kept in step with the world while the demo runs.
//!
//! The folder is looked at a few times a second. A file that cannot be used is told about once and changes nothing; the
//! others are not affected. A file `latency_budget.rego` takes the place of the shipped rule.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;
use tokio::sync::watch;

use super::world::{NAMESPACE, World};
use crate::api::documents;
use crate::model::problem::Problem;
use crate::rego::Rule;

/// The name of a rule file that replaces the shipped latency rule.
pub const RULE_FILE: &str = "latency_budget.rego";

/// What each file held when it was last applied.
pub struct PolicyFiles {
    folder: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
    applied: BTreeMap<PathBuf, Vec<Value>>,
}

impl PolicyFiles {
    /// The files of `folder`; nothing is read yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), files: BTreeMap::new(), applied: BTreeMap::new() }
    }

    /// Brings the world in step with the folder; what cannot be used is returned.
    pub async fn sync(&mut self, world: &World, rule: &watch::Sender<Rule>) -> Vec<Problem> {
        let found = match read_folder(&self.folder) {
            Ok(found) => found,
            Err(problem) => return vec![problem],
        };
        let mut problems = Vec::new();
        let changed: Vec<PathBuf> = found
            .iter()
            .filter(|(path, bytes)| self.files.get(*path) != Some(*bytes))
            .map(|(p, _)| p.clone())
            .collect();
        let gone: Vec<PathBuf> = self.files.keys().filter(|path| !found.contains_key(*path)).cloned().collect();
        for path in &changed {
            if let Some(bytes) = found.get(path) {
                problems.extend(self.take(world, rule, path, bytes).await);
            }
        }
        for path in &gone {
            if path.ends_with(RULE_FILE) {
                rule.send_replace(Rule::shipped_latency_budget());
            }
            for object in self.applied.remove(path).unwrap_or_default() {
                problems.extend(delete(world, path, &object).await.err());
            }
        }
        self.files = found;
        problems
    }

    async fn take(&mut self, world: &World, rule: &watch::Sender<Rule>, path: &Path, bytes: &[u8]) -> Vec<Problem> {
        let name = path.display().to_string();
        if path.ends_with(RULE_FILE) {
            let text = String::from_utf8_lossy(bytes);
            return match Rule::compile_shipped_from(&text) {
                Ok(compiled) => {
                    rule.send_replace(compiled);
                    Vec::new()
                }
                Err(error) => vec![Problem::at(name, error.to_string())],
            };
        }
        let objects = match documents::parse_documents(&name, bytes) {
            Ok(objects) => objects,
            Err(problem) => return vec![problem],
        };
        let mut problems = Vec::new();
        let mut applied = Vec::new();
        for object in objects {
            match apply(world, path, &object).await {
                Ok(()) => applied.push(object),
                Err(problem) => problems.push(problem),
            }
        }
        let before = self.applied.remove(path).unwrap_or_default();
        let left_out = before.iter().filter(|old| !applied.iter().any(|new| is_same_object(old, new)));
        // What the file could not bring this time stays as it was; only what it no longer names goes.
        if problems.is_empty() {
            for object in left_out {
                problems.extend(delete(world, path, object).await.err());
            }
            self.applied.insert(path.to_owned(), applied);
        } else {
            self.applied.insert(path.to_owned(), before);
        }
        problems
    }
}

fn is_same_object(a: &Value, b: &Value) -> bool {
    a["kind"] == b["kind"] && a["metadata"]["name"] == b["metadata"]["name"]
}

fn read_folder(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, Problem> {
    let cannot = |error: std::io::Error| Problem::at(folder.display().to_string(), format!("cannot be read: {error}"));
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let is_policy = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_policy || path.ends_with(RULE_FILE) {
            // An editor may be replacing it right now: the next look finds it.
            if let Ok(bytes) = std::fs::read(&path) {
                files.insert(path, bytes);
            }
        }
    }
    Ok(files)
}

/// Applies an object, as `kubectl apply --server-side` would.
pub async fn apply(world: &World, path: &Path, object: &Value) -> Result<(), Problem> {
    let (api, name) = api_of(world, path, object)?;
    let params = PatchParams::apply("kubectl").force();
    api.patch(&name, &params, &Patch::Apply(object)).await.map(drop).map_err(|error| refused(path, &error))
}

async fn delete(world: &World, path: &Path, object: &Value) -> Result<(), Problem> {
    let (api, name) = api_of(world, path, object)?;
    api.delete(&name, &DeleteParams::default()).await.map(drop).map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &kube::Error) -> Problem {
    let message = match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    Problem::at(path.display().to_string(), message)
}

fn api_of(world: &World, path: &Path, object: &Value) -> Result<(Api<DynamicObject>, String), Problem> {
    let text = |field: &'static str, value: &Value| {
        value.as_str().map(str::to_owned).ok_or_else(|| {
            Problem::expected(path.display().to_string(), format!("{field} is missing"), "a Kubernetes object")
        })
    };
    let api_version = text("apiVersion", &object["apiVersion"])?;
    let kind = text("kind", &object["kind"])?;
    let name = text("metadata.name", &object["metadata"]["name"])?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let client = world.memkube.client("kubectl");
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE);
    let api = match kind.as_str() {
        "Tenant" | "PolicySource" | "Namespace" => Api::all_with(client, &resource),
        _ => Api::namespaced_with(client, namespace, &resource),
    };
    Ok((api, name))
}
