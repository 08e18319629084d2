package compliance.audit.service_levels_test

import data.compliance.audit.service_levels

ceilings := {
	"p99": {"value": 1.0, "unit": "s"},
	"error_ratio": {"value": 0.01, "unit": "ratio"},
}

seconds(value) := {"value": value, "unit": "s", "ageSeconds": 3, "series": 1}

verdict_of(thresholds, readings) := verdict if {
	asked := {"thresholds": thresholds, "readings": readings, "pods": {}}
	verdict := service_levels.verdict with data.compliance.audit.limits.ceilings as ceilings with input as asked
}

test_below_every_ceiling_there_is_no_finding if {
	verdict_of({"p99": seconds(0.8)}, {"p99": seconds(0.4)}) == {
		"breached": false,
		"severity": "none",
		"reasons": set(),
		"pods": [],
	}
}

test_equal_to_the_ceiling_is_within if {
	not verdict_of({}, {"p99": seconds(1.0)}).breached
}

test_a_reading_above_the_ceiling_is_critical if {
	verdict := verdict_of({"p99": seconds(0.8)}, {"p99": seconds(1.5)})
	verdict.breached
	verdict.severity == "critical"
	verdict.reasons == {{"code": "above_ceiling", "signal": "p99", "observed": 1.5, "threshold": 1.0}}
}

test_a_threshold_above_the_ceiling_is_a_warning if {
	verdict := verdict_of({"p99": seconds(3.0)}, {"p99": seconds(0.4)})
	verdict.breached
	verdict.severity == "warning"
	verdict.reasons == {{"code": "threshold_above_ceiling", "signal": "p99", "observed": 3.0, "threshold": 1.0}}
}

test_another_unit_is_compared_with_nothing if {
	not verdict_of({}, {"error_ratio": seconds(1.5)}).breached
}

test_a_signal_that_audit_does_not_know_is_no_finding if {
	not verdict_of({"p50": seconds(9)}, {"p50": seconds(9)}).breached
}

test_a_missing_reading_is_named_and_is_no_finding if {
	verdict := verdict_of({}, {"p99": {"reason": "NoData"}})
	not verdict.breached
	verdict.reasons == {{"code": "no_reading", "signal": "p99"}}
}
