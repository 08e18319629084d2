package tradeguard.latency_budget_test

import data.tradeguard.latency_budget

seconds(value) := {"value": value, "unit": "s", "ageSeconds": 3, "series": 1}

asked(thresholds, readings, pods) := {
	"policy": {"kind": "LatencyBudgetPolicy"},
	"tenant": {"name": "default"},
	"target": {"kind": "OrderService"},
	"thresholds": {signal: {"value": value, "unit": "s"} | some signal, value in thresholds},
	"readings": readings,
	"pods": pods,
	"phase": "Healthy",
	"now": "2026-01-01T00:00:00.000Z",
}

test_below_the_threshold_is_ok if {
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": seconds(0.4)}, {})
	verdict == {"breached": false, "severity": "none", "reasons": set(), "pods": set()}
}

test_equal_to_the_threshold_is_ok if {
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": seconds(0.8)}, {})
	not verdict.breached
}

test_above_the_threshold_is_a_warning if {
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": seconds(1.2)}, {})
	verdict.breached
	verdict.severity == "warning"
	verdict.reasons == {{"code": "above_threshold", "signal": "p99", "observed": 1.2, "threshold": 0.8}}
}

test_twice_the_threshold_is_critical if {
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": seconds(1.6)}, {})
	verdict.severity == "critical"
}

test_a_missing_reading_is_named_and_is_no_breach if {
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": {"reason": "NoData"}}, {})
	not verdict.breached
	verdict.reasons == {{"code": "no_reading", "signal": "p99"}}
}

test_a_breach_stands_beside_a_missing_reading if {
	readings := {"p50": {"reason": "NoData"}, "p99": seconds(1.2)}
	verdict := latency_budget.verdict with input as asked({"p50": 0.1, "p99": 0.8}, readings, {})
	verdict.breached
	count(verdict.reasons) == 2
}

test_another_unit_is_compared_with_nothing if {
	readings := {"p99": {"value": 1200, "unit": "1", "ageSeconds": 3, "series": 1}}
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, readings, {})
	not verdict.breached
	verdict.reasons == {{"code": "unit_mismatch", "signal": "p99"}}
}

test_text_is_no_number if {
	readings := {"p99": {"value": "1.2", "unit": "s", "ageSeconds": 3, "series": 1}}
	verdict := latency_budget.verdict with input as asked({"p99": 0.8}, readings, {})
	not verdict.breached
}

test_slow_pods_are_suspects_while_the_whole_is_slow if {
	pods := {"a": {"p99": seconds(3)}, "b": {"p99": seconds(0.1)}, "c": {"p99": {"reason": "NoData"}}}
	slow := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": seconds(1.2)}, pods)
	slow.pods == {"a"}
	expected := {"code": "pod_above_threshold", "signal": "p99", "pod": "a", "observed": 3, "threshold": 0.8}
	expected in slow.reasons
	within := latency_budget.verdict with input as asked({"p99": 0.8}, {"p99": seconds(0.7)}, pods)
	within.pods == set()
}

test_without_thresholds_nothing_is_breached if {
	verdict := latency_budget.verdict with input as asked({}, {"p99": seconds(9)}, {})
	verdict == {"breached": false, "severity": "none", "reasons": set(), "pods": set()}
}
