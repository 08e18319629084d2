//! From the files of one revision to its policies: read as a whole, or refused as a whole with everything that is wrong.
//!
//! The checks are those that an API server would make ([`crate::api::admission`]); whether a policy makes sense to the
//! engine is `decide::validate`'s to say, and whether its rule compiles, the gate's.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::api::AnyPolicy;
use crate::api::documents::{self, Positions};
use crate::model::policy::PolicyKey;
use crate::model::problem::Problem;

/// One part of a source as it was written: the files of a ConfigMap, or of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Texts {
    /// What people call this content: the first digits of its digest, or the commit.
    pub(crate) revision: String,
    /// When it was written, by the clock of whoever took it in.
    pub(crate) changed_at: DateTime<Utc>,
    /// Name to content, as it came.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

/// The policies of one revision, each with the file that it stands in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) revision: String,
    pub(crate) changed_at: DateTime<Utc>,
    pub(crate) policies: BTreeMap<PolicyKey, Text>,
}

/// One policy as its file has it, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) file: String,
    /// Which document of the file, from 0.
    pub(crate) document: usize,
    pub(crate) object: AnyPolicy,
}

/// For which namespaces a part may define policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Its own, which its policies need not name.
    Own(String),
    /// These, the tenant's.
    Among(BTreeSet<String>),
    /// Any.
    Cluster,
}

/// Reads every file. The paths of problems begin with the file's name.
pub(crate) fn read(texts: &Texts, scope: &Scope) -> Result<Snapshot, Vec<Problem>> {
    let mut policies = BTreeMap::new();
    let mut problems = Vec::new();
    for (file, bytes) in &texts.files {
        if !is_yaml(file) {
            problems.push(Problem::expected(file, "is no policy file", "a name that ends with .yaml, .yml or .json"));
            continue;
        }
        let documents = match documents::parse_documents(file, bytes) {
            Ok(documents) => documents,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for (number, document) in documents.into_iter().enumerate() {
            match admit(document, scope) {
                Ok(object) => {
                    let key = object.key();
                    let text = Text { file: file.clone(), document: number, object };
                    if let Some(earlier) = policies.insert(key.clone(), text) {
                        let kind = key.kind.as_str();
                        let found = format!("defines {kind} {} again, as {} does", key.name, earlier.file);
                        problems.push(Problem::expected(file, found, "each policy once"));
                    }
                }
                Err(found) => problems.extend(in_file(texts, file, number, &found)),
            }
        }
    }
    if problems.is_empty() {
        Ok(Snapshot { revision: texts.revision.clone(), changed_at: texts.changed_at, policies })
    } else {
        Err(problems)
    }
}

/// Findings about fields of a document, with file, line and column in front.
pub(crate) fn in_file(texts: &Texts, file: &str, document: usize, problems: &[Problem]) -> Vec<Problem> {
    let text = texts.files.get(file).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default();
    let positions = Positions::of(text);
    let placed = problems.iter().map(|problem| {
        let place = positions.at(document, &problem.path).map(|place| format!(":{}:{}", place.line, place.column));
        Problem::at(format!("{file}{}", place.unwrap_or_default()), problem.to_string())
    });
    placed.collect()
}

/// How many policies these files mean to hold, also where they cannot be read: the lines that name a kind of policy.
pub(crate) fn meant_policies(texts: &Texts) -> u32 {
    let is_kind = |line: &str| {
        let value =
            line.trim_start_matches(['-', ' ']).strip_prefix("kind:").map(|rest| rest.trim().trim_matches(['"', '\'']));
        value.is_some_and(|kind| crate::model::policy::PolicyKind::parse(kind).is_some())
    };
    let lines = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).lines().filter(|line| is_kind(line)).count();
    u32::try_from(texts.files.values().map(lines).sum::<usize>()).unwrap_or(u32::MAX)
}

fn is_yaml(file: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|ending| file.ends_with(ending))
}

/// What a person may write into metadata.
const WRITTEN: [&str; 4] = ["name", "namespace", "labels", "annotations"];

fn admit(mut document: Value, scope: &Scope) -> Result<AnyPolicy, Vec<Problem>> {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Scope::Own(namespace) = scope {
            metadata.entry("namespace").or_insert_with(|| json!(namespace));
        }
        let found = metadata.get("namespace").and_then(Value::as_str);
        let expected = match (scope, found) {
            (Scope::Own(own), found) if found != Some(own) => {
                Some(format!("`{own}`, or none: it defines policies for its own namespace only"))
            }
            (_, None) => Some("the namespace that the policy is for".to_owned()),
            (Scope::Among(names), Some(found)) if !names.contains(found) => Some(format!(
                "a namespace of the source's tenant: {}",
                names.iter().cloned().collect::<Vec<_>>().join(", ")
            )),
            _ => None,
        };
        if let Some(expected) = expected {
            let found = metadata.get("namespace").map_or_else(|| "is missing".to_owned(), Value::to_string);
            return Err(vec![Problem::expected("metadata.namespace", found, expected)]);
        }
        // What a server fills in is no text of the author's; written here it would only mislead.
        if let Some(field) = metadata.keys().find(|field| !WRITTEN.contains(&field.as_str())) {
            let expected = format!("only {} in a file", WRITTEN.join(", "));
            return Err(vec![Problem::expected(format!("metadata.{field}"), "is set", expected)]);
        }
    }
    if document.get("status").is_some() {
        return Err(vec![Problem::expected("status", "is set", "a policy without status: the engine writes it")]);
    }
    AnyPolicy::from_json(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: policy.trade.io/v1alpha2
kind: LatencyBudgetPolicy
metadata: {name: checkout}
spec:
  targetRef: {apiVersion: trade.io/v1, kind: OrderService, name: checkout}
  thresholds: {p99: 800ms, duration: 2m}
  actions: [{type: circuit-breaker, config: {timeout: 30s, fallback: cache-only}}]
";

    fn texts(files: &[(&str, &str)]) -> Texts {
        Texts {
            revision: "r".into(),
            changed_at: DateTime::UNIX_EPOCH,
            files: files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect(),
        }
    }

    fn refused(files: &[(&str, &str)]) -> Vec<String> {
        read(&texts(files), &Scope::Own("lab".into())).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_document_of_every_file_is_a_policy_of_the_namespace() {
        let second = GOOD.replace("name: checkout}\nspec", "name: quotes}\nspec");
        let snapshot = read(&texts(&[("a.yaml", GOOD), ("b.yml", &second)]), &Scope::Own("lab".into())).unwrap();
        let keys: Vec<_> = snapshot.policies.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["lab/checkout", "lab/quotes"]);
    }

    #[test]
    fn one_bad_file_refuses_the_whole_and_every_finding_names_its_file() {
        let bad = GOOD.replace("2m", "1h30").replace("checkout", "quotes");
        let syntax = "a: [1, 2\nb: 3\n";
        let found = refused(&[("a.yaml", GOOD), ("b.yaml", &bad), ("c.yaml", syntax), ("d.txt", "x")]);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[0].starts_with("b.yaml:6:38: spec.thresholds.duration: `1h30` "), "{found:#?}");
        assert!(found[1].starts_with("c.yaml:2:"), "{found:#?}");
        assert!(found[2].starts_with("d.txt: is no policy file"), "{found:#?}");
    }

    #[test]
    fn another_namespace_a_second_definition_and_a_servers_fields_are_refused() {
        let elsewhere = GOOD.replace("{name: checkout}\n", "{name: checkout, namespace: trading}\n");
        assert_eq!(
            refused(&[("a.yaml", &elsewhere)]),
            [
                "a.yaml:3:39: metadata.namespace: \"trading\"; expected `lab`, or none: it defines policies for its own namespace only"
            ]
        );
        let twice = refused(&[("a.yaml", GOOD), ("b.yaml", GOOD)]);
        assert_eq!(
            twice,
            ["b.yaml: defines LatencyBudgetPolicy checkout again, as a.yaml does; expected each policy once"]
        );
        let owned = GOOD.replace("{name: checkout}\n", "{name: checkout, finalizers: [x]}\n");
        assert!(refused(&[("a.yaml", &owned)])[0].starts_with("a.yaml:3:28: metadata.finalizers: is set"));
    }

    #[test]
    fn policies_of_a_repository_name_a_namespace_that_its_tenant_has() {
        let named = GOOD.replace("{name: checkout}\n", "{name: checkout, namespace: trading}\n");
        let read = |text: &str, scope: &Scope| {
            let read = super::read(&texts(&[("a.yaml", text)]), scope);
            read.map(|snapshot| snapshot.policies.len()).map_err(|problems| problems[0].to_string())
        };
        let among = Scope::Among(BTreeSet::from(["trading".to_owned(), "clearing".to_owned()]));
        assert_eq!((read(&named, &Scope::Cluster), read(&named, &among)), (Ok(1), Ok(1)));
        let missing = read(GOOD, &Scope::Cluster).unwrap_err();
        assert!(
            missing.ends_with("metadata.namespace: is missing; expected the namespace that the policy is for"),
            "{missing}"
        );
        let foreign = read(&named.replace("trading}", "kube-system}"), &among).unwrap_err();
        assert!(
            foreign.contains("\"kube-system\"; expected a namespace of the source's tenant: clearing, trading"),
            "{foreign}"
        );
    }

    #[test]
    fn policies_are_counted_in_files_that_cannot_be_read() {
        let broken = format!("{GOOD}---\n{GOOD}---\nkind: Tenant\nx: [\n");
        assert_eq!(meant_policies(&texts(&[("a.yaml", &broken)])), 2);
    }
}
