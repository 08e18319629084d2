use std::fs;

use serde_json::Value;

use crate::cli::{Exit, tests::run};

const SEED: &str = include_str!("../../../deploy/examples/order-processing.yaml");

/// A case in which the seed policy meets a slow reading and is expected in this phase at once.
fn case(name: &str, phase: &str) -> String {
    let policy = SEED.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!(
        "name: {name}\npolicy:\n{policy}steps:\n- at: 0s\n  readings: {{p99: {{value: 1.2, unit: s}}}}\n  expect: {{phase: {phase}}}\n"
    )
}

#[test]
fn a_folder_of_cases_is_run_in_order_and_one_failure_is_exit_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("more")).unwrap();
    fs::write(dir.path().join("b.yaml"), case("the second", "Pending")).unwrap();
    fs::write(dir.path().join("a.yml"), case("the first", "Pending")).unwrap();
    fs::write(dir.path().join("notes.txt"), "no case").unwrap();
    let path = dir.path().to_str().unwrap();
    let (exit, out, err) = run(&["test", path]);
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""), "{out}");
    assert!(out.ends_with("2 of 2 cases passed\n"), "{out}");
    assert!(out.find("the first") < out.find("the second"), "{out}");

    fs::write(dir.path().join("more/c.yaml"), case("the third", "Active")).unwrap();
    let (exit, out, _) = run(&["test", path]);
    assert_eq!(exit, Exit::No);
    assert!(out.contains("Active") && out.contains("Pending"), "both sides are shown: {out}");
    let (exit, out, _) = run(&["test", path, "--output", "json"]);
    assert_eq!(exit, Exit::No);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&2.into(), &1.into()));
    assert_eq!(report["cases"][2]["differences"][0]["expected"], "Active");
}

#[test]
fn what_cannot_be_run_is_exit_two() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_eq!(run(&["test", path]).0, Exit::Usage, "a folder without a case");
    assert_eq!(run(&["test", "/nowhere"]).0, Exit::Usage, "no such file");
    fs::write(dir.path().join("a.yaml"), "name: a\nstep: []\n").unwrap();
    assert_eq!(run(&["test", path]).0, Exit::Usage, "an unknown field");
}
