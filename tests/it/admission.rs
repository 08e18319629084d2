//! What is refused when a custom resource is written. The same cases run here against our own checks and, in
//! `real::crds`, against a real API server, and must name the same fields.

use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};
use tradeguard::api::{AnyPolicy, admission, documents};
use tradeguard::model::problem::Problem;

/// One change to a good object, and what comes of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Values by JSON pointer.
    #[serde(default)]
    set: Map<String, Value>,
    /// JSON pointers.
    #[serde(default)]
    remove: Vec<String>,
    /// The fields that are refused; empty: accepted.
    #[serde(default)]
    pub(crate) refused: Vec<String>,
    /// The field that strict validation does not know.
    pub(crate) unknown: Option<String>,
}

static BASES: LazyLock<Vec<Value>> =
    LazyLock::new(|| documents::parse_documents("bases.yaml", include_bytes!("admission/bases.yaml")).unwrap());

impl Case {
    pub(crate) fn object(&self) -> Value {
        let mut object =
            BASES.iter().find(|base| base["kind"] == self.kind.as_str()).expect("a base of this kind").clone();
        for (pointer, value) in &self.set {
            let (parent, field) = pointer.rsplit_once('/').expect("a pointer has a slash");
            match object.pointer_mut(parent).unwrap_or_else(|| panic!("{}: no {parent}", self.name)) {
                Value::Array(items) => items[field.parse::<usize>().unwrap()] = value.clone(),
                parent => parent[field] = value.clone(),
            }
        }
        for pointer in &self.remove {
            let (parent, field) = pointer.rsplit_once('/').expect("a pointer has a slash");
            let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object above");
            parent.remove(field).unwrap_or_else(|| panic!("{}: no {pointer}", self.name));
        }
        object
    }

    /// Every field that is refused, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<_> = self.refused.iter().chain(&self.unknown).cloned().collect();
        paths.sort();
        paths
    }
}

pub(crate) fn cases() -> Vec<Case> {
    serde_saphyr::from_str(include_str!("admission/cases.yaml")).unwrap()
}

/// What our own checks say to each case; judged once for all tests.
static JUDGED: LazyLock<Vec<(Case, Vec<Problem>)>> = LazyLock::new(|| {
    let judge = |case: Case| {
        let problems = admission::check(&case.object()).err().unwrap_or_default();
        (case, problems)
    };
    cases().into_iter().map(judge).collect()
});

#[test]
fn bad_objects_are_refused_at_the_path_of_the_field_and_good_ones_are_not() {
    let mut wrong = Vec::new();
    for (case, problems) in JUDGED.iter() {
        let found: Vec<_> = problems.iter().map(|problem| problem.path.clone()).collect();
        if found != case.paths() {
            wrong.push(format!("{}: expected {:?}, found {problems:#?}", case.name, case.paths()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_accepted_can_be_read_and_drafted() {
    for (case, _) in JUDGED.iter().filter(|(case, problems)| problems.is_empty() && case.kind != "Tenant") {
        let policy = AnyPolicy::from_json(case.object()).unwrap_or_else(|found| panic!("{}: {found:?}", case.name));
        let draft = policy.draft(chrono::DateTime::UNIX_EPOCH);
        assert!(!draft.signals.is_empty() && !draft.duration.is_empty(), "{}", case.name);
    }
}

/// `UPDATE_GOLDEN=1 cargo test` writes the messages anew; read them then.
#[test]
fn messages_say_what_was_found_and_what_is_expected() {
    let said = |(case, problems): &(Case, Vec<Problem>)| {
        problems.iter().map(|problem| format!("{}\n  {problem}\n", case.name)).collect::<String>()
    };
    let said: String = JUDGED.iter().map(said).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/admission/messages.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &said).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), said);
}
