use super::*;

const POLICY: &str = "\
apiVersion: policy.trade.io/v1alpha2
kind: LatencyBudgetPolicy
metadata: {name: checkout}
spec:
  targetRef: {apiVersion: trade.io/v1, kind: OrderService, name: checkout}
  thresholds: {p99: 800ms, duration: 2m}
  actions: [{type: circuit-breaker, config: {timeout: 30s, fallback: cache-only}}]
";

/// What is said of a folder with these files, and with which exit code.
fn linted(files: &[(&str, &str)]) -> (Exit, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = Streams { out: &mut out, err: &mut err };
    let args = Args { paths: vec![folder.path().to_owned()], config: None, output: Output::Text };
    let exit = run(&args, &mut streams).unwrap();
    let prefix = format!("{}/", folder.path().display());
    let lines = String::from_utf8(out).unwrap().replace(&prefix, "");
    (exit, lines.lines().map(str::to_owned).collect())
}

fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let (exit, found) = linted(files);
    assert_eq!(exit == Exit::No, !found.is_empty());
    found
}

#[test]
fn what_is_well_gives_no_finding_and_what_is_not_ours_is_passed_over() {
    let foreign = "apiVersion: v1\nkind: ConfigMap\ndata: {a.yaml: '['}\n";
    let rule = "package lab\n\nverdict := {\"breached\": false}\n";
    assert_eq!(findings(&[("p.yaml", POLICY), ("c.yaml", foreign), ("r.rego", rule), ("n.txt", "[")]), [""; 0]);
}

#[test]
fn a_field_is_found_at_its_line_and_column() {
    let [found] = &findings(&[("p.yaml", &POLICY.replace("2m", "1h30"))])[..] else { panic!() };
    assert!(found.starts_with("p.yaml:6:38: spec.thresholds.duration: `1h30` has no unit"), "{found}");
    let [found] = &findings(&[("p.yaml", &POLICY.replace("cache-only", "read-only"))])[..] else { panic!() };
    assert!(found.starts_with("p.yaml:7:70: spec.actions[0].config.fallback: "), "{found}");
    let [found] = &findings(&[(
        "t.yaml",
        "apiVersion: policy.trade.io/v1alpha2\nkind: Tenant\nmetadata: {name: a}\nspec:\n  class: boss\n",
    )])[..] else {
        panic!()
    };
    assert!(found.starts_with("t.yaml:5:10: spec.class: "), "{found}");
}

#[test]
fn a_config_map_is_held_to_what_its_source_would_say() {
    let indented: String = POLICY.replace("2m", "-5m").lines().map(|line| format!("    {line}\n")).collect();
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: limits, namespace: lab, labels: {{policy.trade.io/source: lab}}}}\n\
         data:\n  a.yaml: |\n{indented}"
    );
    let [found] = &findings(&[("m.yaml", &map)])[..] else { panic!() };
    assert!(found.starts_with("m.yaml: data: a.yaml:6:38: spec.thresholds.duration: `-5m`"), "{found}");
}

#[test]
fn rego_and_broken_yaml_are_found_with_their_line() {
    let found = findings(&[("r.rego", "package lab\n\nverdict := {\n"), ("s.yaml", "a: 1\nb: [1, 2\nc: 3\n")]);
    assert!(found[0].starts_with("r.rego:"), "{found:?}");
    assert!(found[1].starts_with("s.yaml:"), "{found:?}");
}
