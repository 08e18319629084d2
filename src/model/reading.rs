//! What was measured, or why nothing was.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::quantity::BaseUnit;
use super::reason::Reason;

/// The name of a signal in a policy: `p99`, `error_ratio`.
pub type SignalName = String;

/// The name of a Pod, within the namespace at hand.
pub type PodName = String;

/// One usable answer for a signal. The value is finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// In base units.
    pub value: f64,
    /// The base unit of `value`.
    pub unit: BaseUnit,
    /// How old the newest sample behind it is, in seconds.
    pub age_seconds: f64,
    /// How many series it was computed from.
    pub series: u32,
    /// How many requests it rests on, where a count is to be had.
    pub requests: Option<f64>,
}

/// Why a signal has no reading. None of these is zero, ok or breached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoReading {
    /// The backend answered, without a series.
    NoData,
    /// The backend answered with NaN.
    NaN,
    /// The backend answered with an infinity.
    Inf,
    /// The newest sample is older than `staleAfter`.
    Stale,
    /// Fewer requests than `minRequests`.
    TooFewRequests,
    /// Several series where one is meant.
    Several,
    /// The backend said that its answer is partial.
    Partial,
    /// The buckets of several Pods do not fit together.
    IncompatibleBuckets,
    /// The answer is not of the kind that was asked for (wrong result type, no JSON, cut off).
    BadAnswer,
    /// The backend refused the query (HTTP 400, 422).
    QueryError,
    /// The backend failed (HTTP 5xx, refused connection).
    BackendError,
    /// No answer in time.
    Timeout,
    /// The query is not asked at all: the target has no Pods, the template does not exist and the like.
    NotMeasured,
}

impl NoReading {
    /// Every variant, for catalogues and tests.
    pub const ALL: [Self; 13] = [
        Self::NoData,
        Self::NaN,
        Self::Inf,
        Self::Stale,
        Self::TooFewRequests,
        Self::Several,
        Self::Partial,
        Self::IncompatibleBuckets,
        Self::BadAnswer,
        Self::QueryError,
        Self::BackendError,
        Self::Timeout,
        Self::NotMeasured,
    ];

    /// The reason that conditions, rules and metrics show.
    pub fn reason(self) -> Reason {
        match self {
            Self::NoData => Reason::NoData,
            Self::NaN => Reason::NaN,
            Self::Inf => Reason::Inf,
            Self::Stale => Reason::Stale,
            Self::TooFewRequests => Reason::TooFewRequests,
            Self::Several => Reason::Several,
            Self::Partial => Reason::Partial,
            Self::IncompatibleBuckets => Reason::IncompatibleBuckets,
            Self::BadAnswer => Reason::BadAnswer,
            Self::QueryError => Reason::QueryError,
            Self::BackendError => Reason::BackendError,
            Self::Timeout => Reason::Timeout,
            Self::NotMeasured => Reason::NotMeasured,
        }
    }

    /// The variant with this CamelCase name, as readings files write it.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.reason().as_str() == name)
    }

    /// True where a working backend had nothing to say, so that `onNoData` applies. A failing backend, a bad
    /// query and an ambiguous answer always hold.
    pub fn is_no_data(self) -> bool {
        matches!(self, Self::NoData | Self::NaN | Self::Stale | Self::TooFewRequests)
    }
}

/// One signal's answer.
pub type Signal = Result<Reading, NoReading>;

/// The answers of one subject (a target, a Pod, a probe), by signal name.
pub type Readings = BTreeMap<SignalName, Signal>;

/// The name of a set of Pods whose readings are taken together ([`SUBSET_PROBE`]).
pub type GroupName = String;

/// The group of Pods behind the destinations that traffic was diverted from: the probe of a half-open route.
pub const SUBSET_PROBE: &str = "subset";

/// A query as it was sent, for status and `explain`. Shared: thousands of policies may rest on one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentQuery {
    /// Name of the backend.
    pub backend: Arc<str>,
    /// The text as sent.
    pub text: Arc<str>,
}

/// Everything that one round measured for one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The evaluation time that the queries carried.
    pub at: chrono::DateTime<chrono::Utc>,
    /// Of the whole target.
    pub readings: Readings,
    /// Of single Pods, where the series carry the Pod; only Pods that exist.
    pub pods: BTreeMap<PodName, Readings>,
    /// Of sets of Pods taken together, as asked for.
    pub groups: BTreeMap<GroupName, Readings>,
    /// What was sent.
    pub queries: Vec<SentQuery>,
    /// What people should know though it is no reason for "no reading" (`ThresholdAboveBuckets` and the like).
    pub notes: Vec<Reason>,
}

impl Observation {
    /// Nothing measured: every signal has the same reason.
    pub fn blank(
        at: chrono::DateTime<chrono::Utc>,
        signals: impl IntoIterator<Item = SignalName>,
        why: NoReading,
    ) -> Self {
        Self {
            at,
            readings: signals.into_iter().map(|name| (name, Err(why))).collect(),
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            queries: Vec::new(),
            notes: Vec::new(),
        }
    }
}
