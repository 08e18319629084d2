# METADATA
# title: Service levels
# description: |
#   Audit's own view of a service, whatever its owner promised: a finding where a reading is above audit's ceiling, and
#   where the owner's threshold is so lax that a breach of the ceiling would go unnoticed. The ceilings are data, so
#   that they change without a change of rules. Findings only: nothing here asks for an action.
package compliance.audit.service_levels

import data.compliance.audit.limits.ceilings

# The entrypoint.
verdict := {
	"breached": count(findings) > 0,
	"severity": severity,
	"reasons": (findings | unmeasured),
	"pods": [],
}

severity := "critical" if {
	some finding in findings
	finding.code == "above_ceiling"
} else := "warning" if {
	count(findings) > 0
} else := "none"

# A number and the ceiling, in one unit: strings sort after numbers, and seconds say nothing of ratios.
comparable(number, ceiling) if {
	is_number(number.value)
	number.unit == ceiling.unit
}

findings contains finding if {
	some signal, ceiling in ceilings
	reading := input.readings[signal]
	comparable(reading, ceiling)
	reading.value > ceiling.value
	finding := {
		"code": "above_ceiling",
		"signal": signal,
		"observed": reading.value,
		"threshold": ceiling.value,
	}
}

findings contains finding if {
	some signal, ceiling in ceilings
	threshold := input.thresholds[signal]
	comparable(threshold, ceiling)
	threshold.value > ceiling.value
	finding := {
		"code": "threshold_above_ceiling",
		"signal": signal,
		"observed": threshold.value,
		"threshold": ceiling.value,
	}
}

# Named, and no finding: without a reading the engine makes the verdict unknown.
unmeasured contains {"code": "no_reading", "signal": signal} if {
	some signal, _ in ceilings
	input.readings[signal]
	not measured(signal)
}

measured(signal) if is_number(input.readings[signal].value)
