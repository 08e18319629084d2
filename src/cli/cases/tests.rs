use super::*;

const CASE: &str = r"
name: a slow service
policy:
  apiVersion: policy.trade.io/v1alpha2
  kind: LatencyBudgetPolicy
  metadata: {name: order-processing}
  spec:
    targetRef: {apiVersion: trade.io/v1, kind: OrderService, name: core-trading}
    thresholds: {p99: 800ms, duration: 20s}
    actions: [{type: mode, config: {mode: cache-only}}]
steps:
  - at: 0s
    readings: {p99: {value: 1.2, unit: s}}
    expect: {phase: Pending, reasons: [above_threshold p99]}
  - at: 20s
    expect: {phase: Active, stands: {mode: cache-only}}
";

#[test]
fn a_case_that_goes_as_expected_passes() {
    let report = run(CASE, "slow.yaml");
    assert!(report.passed() && report.is_readable(), "{report}");
    assert_eq!(report.to_string(), "ok    a slow service (2 steps)\n");
}

#[test]
fn a_failure_shows_expected_and_actual_side_by_side() {
    let report =
        run(&CASE.replace("phase: Active, stands: {mode: cache-only}", "phase: Pending, stands: {}"), "slow.yaml");
    assert!(!report.passed() && report.is_readable());
    let shown = "\
FAIL  a slow service (2 steps)
      at 20s:
        phase        expected | actual
                     Pending  | Active
        stands       expected | actual
                     none     | mode: \"cache-only\"
";
    assert_eq!(report.to_string(), shown);
}

#[test]
fn what_is_no_case_is_refused_with_its_field() {
    for (from, to, told) in [
        ("at: 20s", "at: '20'", "steps[1].at: `20` has no unit"),
        ("at: 0s", "at: 30s", "steps[1].at: `20s` lies before the step before"),
        ("unit: s", "unit: parsec", "steps[0].readings.p99.unit: `parsec` is no unit"),
        ("{value: 1.2, unit: s}", "{reason: Tired}", "steps[0].readings.p99.reason: `Tired` is no reason"),
        ("{value: 1.2, unit: s}", "{}", "steps[0].readings.p99: has neither a value nor a reason"),
        ("phase: Active", "phaze: Active", "unknown field `phaze`"),
        ("duration: 20s", "duration: 1min", "spec.thresholds.duration"),
        ("name: a slow service\n", "", "missing field `name`"),
        ("steps:", "stepz:", "unknown field `stepz`"),
    ] {
        let report = run(&CASE.replace(from, to), "slow.yaml");
        assert!(!report.is_readable() && report.to_string().contains(told), "{from} → {to}: {report}");
    }
}

#[test]
fn a_file_may_hold_several_cases_and_none_is_an_error() {
    let report = run(&format!("{CASE}---{CASE}"), "slow.yaml");
    assert_eq!(report.cases.len(), 2);
    assert!(report.passed(), "{report}");
    assert!(!run("", "empty.yaml").is_readable());
}
