# METADATA
# title: Latency budget
# description: |
#   Breached when the reading of any quantile is above its threshold. Equal is within. Readings and thresholds
#   arrive in base units; a reading whose unit is not the threshold's is compared with nothing.
#   The rule prints no computed numbers: it names codes, signals and Pods and repeats the values it was given.
package tradeguard.latency_budget

# The entrypoint.
verdict := {
	"breached": count(exceeded) > 0,
	"severity": severity,
	"reasons": reasons,
	"pods": suspects,
}

severity := "critical" if {
	count(far_exceeded) > 0
} else := "warning" if {
	count(exceeded) > 0
} else := "none"

# Signals of the whole target that are above their threshold.
exceeded contains signal if {
	some signal, threshold in input.thresholds
	above(input.readings[signal], threshold)
}

# Signals that are at twice their threshold or more.
far_exceeded contains signal if {
	some signal in exceeded
	input.readings[signal].value >= 2 * input.thresholds[signal].value
}

# Pods that are slow themselves, while the target as a whole is.
suspects contains pod if {
	some signal in exceeded
	some pod, readings in input.pods
	above(readings[signal], input.thresholds[signal])
}

reasons contains reason if {
	some signal in exceeded
	reason := {
		"code": "above_threshold",
		"signal": signal,
		"observed": input.readings[signal].value,
		"threshold": input.thresholds[signal].value,
	}
}

reasons contains reason if {
	some signal in exceeded
	some pod in suspects
	above(input.pods[pod][signal], input.thresholds[signal])
	reason := {
		"code": "pod_above_threshold",
		"signal": signal,
		"pod": pod,
		"observed": input.pods[pod][signal].value,
		"threshold": input.thresholds[signal].value,
	}
}

reasons contains reason if {
	some signal, _ in input.thresholds
	not measured(signal)
	reason := {"code": "no_reading", "signal": signal}
}

reasons contains reason if {
	some signal, threshold in input.thresholds
	measured(signal)
	input.readings[signal].unit != threshold.unit
	reason := {"code": "unit_mismatch", "signal": signal}
}

# Strings sort after numbers, so types come before the comparison.
above(reading, threshold) if {
	is_number(reading.value)
	is_number(threshold.value)
	reading.unit == threshold.unit
	reading.value > threshold.value
}

measured(signal) if is_number(input.readings[signal].value)
