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

# Signals of the whole target that are above their threshold. Strings sort after numbers, so types come before the
# comparison.
exceeded contains signal if {
	some signal, threshold in input.thresholds
	reading := input.readings[signal]
	is_number(reading.value)
	reading.unit == threshold.unit
	reading.value > threshold.value
}

# Signals that are at twice their threshold or more.
far_exceeded contains signal if {
	some signal in exceeded
	input.readings[signal].value >= 2 * input.thresholds[signal].value
}

# Pods that are above a threshold themselves, while the target as a whole is.
slow_pods contains reason if {
	some signal in exceeded
	threshold := input.thresholds[signal]
	some pod, readings in input.pods
	reading := readings[signal]
	is_number(reading.value)
	reading.unit == threshold.unit
	reading.value > threshold.value
	reason := {
		"code": "pod_above_threshold",
		"signal": signal,
		"pod": pod,
		"observed": reading.value,
		"threshold": threshold.value,
	}
}

suspects contains reason.pod if some reason in slow_pods

reasons contains reason if {
	some signal in exceeded
	reason := {
		"code": "above_threshold",
		"signal": signal,
		"observed": input.readings[signal].value,
		"threshold": input.thresholds[signal].value,
	}
}

reasons contains reason if some reason in slow_pods

reasons contains {"code": "no_reading", "signal": signal} if {
	some signal, _ in input.thresholds
	not measured(signal)
}

reasons contains {"code": "unit_mismatch", "signal": signal} if {
	some signal, threshold in input.thresholds
	reading := input.readings[signal]
	is_number(reading.value)
	reading.unit != threshold.unit
}

# A rule of its own: inside a `not`, opa and the engine treat an undefined argument differently.
measured(signal) if is_number(input.readings[signal].value)
