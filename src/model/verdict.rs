//! What a rule said about readings.

use serde::{Deserialize, Serialize};

use super::reading::{PodName, SignalName};
use super::reason::Reason;

/// ok, breached or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Every signal is within its threshold.
    Ok,
    /// The rule says that the policy is breached.
    Breached,
    /// Nothing can be said, for this reason.
    Unknown(Reason),
}

impl Outcome {
    /// `ok`, `breached` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Breached => "breached",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// How bad a breach is. The order is that of severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is wrong.
    #[default]
    None,
    /// Above a threshold.
    Warning,
    /// Far above a threshold.
    Critical,
}

/// One reason of a verdict, as the rule gave it: codes and the values it was given, no prose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleReason {
    /// `above_threshold`, `no_reading` and the like.
    pub code: String,
    /// The signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalName>,
    /// The Pod, where the reason is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodName>,
    /// The value, in base units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<f64>,
    /// The threshold, in base units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// A verdict with all that explains it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// ok, breached or unknown.
    pub outcome: Outcome,
    /// How bad.
    pub severity: Severity,
    /// The rule's reasons.
    pub reasons: Vec<RuleReason>,
    /// Pods that the rule holds responsible; only such as were in its input, worst first.
    pub suspects: Vec<PodName>,
    /// Actions that the rule asks for instead of the written ones, unchecked.
    pub actions: Option<serde_json::Value>,
    /// True when the missing reading came from a backend that works but has no data, so that `onNoData` applies.
    pub no_data: bool,
}

impl Verdict {
    /// A verdict that says nothing, and why.
    pub fn unknown(reason: Reason) -> Self {
        Self {
            outcome: Outcome::Unknown(reason),
            severity: Severity::None,
            reasons: Vec::new(),
            suspects: Vec::new(),
            actions: None,
            no_data: false,
        }
    }
}
