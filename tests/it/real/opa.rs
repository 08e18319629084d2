//! `opa` itself: the shipped rules' own tests, the case list, and the published input schema.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tradeguard::rego::Rule;

use crate::rego_cases::{cases, numbers_as_floats};
use crate::support::parts;

/// Runs `opa` in the repository; panics with what it wrote unless it ends well.
fn opa(arguments: &[&str]) -> String {
    let output = Command::new(parts::binary("opa"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .expect("opa starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "opa {arguments:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_shipped_rules_own_tests_pass() {
    let report: Value = serde_json::from_str(&opa(&["test", "--format", "json", "policies/"])).unwrap();
    let tests = report.as_array().unwrap();
    assert!(tests.len() >= 10 && tests.iter().all(|test| test.get("fail").is_none()), "{report}");
}

#[test]
fn the_shipped_rules_are_strict_formatted_and_fit_the_input_schema() {
    opa(&["check", "--strict", "--schema", "docs/schemas/input.schema.json", "policies/"]);
    assert_eq!(opa(&["fmt", "--list", "policies/"]), "");
}

#[test]
fn opa_gives_our_answers_on_the_case_list() {
    let cases = cases();
    // The method itself is not general enough over the input's lifetime.
    #[allow(clippy::redundant_closure_for_method_calls)]
    let inputs: Vec<Value> = cases.iter().map(|case| case.ask(|input| input.to_json())).collect();
    let directory = parts::directory("opa");
    let data = directory.join("cases.json");
    std::fs::write(&data, json!({"inputs": inputs}).to_string()).unwrap();
    let query =
        "[answer | some asked in data.inputs; answer := data.tradeguard.latency_budget.verdict with input as asked]";
    let answers = opa(&["eval", "--format", "raw", "--data", "policies/", "--data", path(&data), query]);
    let answers: Vec<Value> = serde_json::from_str(&answers).unwrap();
    assert_eq!(answers.len(), cases.len());
    let rule = Rule::shipped_latency_budget();
    for rule in [&rule, &rule.interpreted()] {
        for (case, answer) in cases.iter().zip(&answers) {
            let ours = case.ask(|input| rule.output(input)).unwrap();
            assert_eq!(comparable(&ours), comparable(answer), "{}", case.name);
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("the target directory has a plain name")
}

/// Sets have no order in JSON, and `3` is `3.0`.
fn comparable(output: &Value) -> Value {
    let mut output = numbers_as_floats(output.clone());
    for field in ["reasons", "pods"] {
        if let Some(Value::Array(items)) = output.get_mut(field) {
            items.sort_by_key(Value::to_string);
        }
    }
    output
}
