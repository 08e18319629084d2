//! The names of everything that we leave on objects of others, so that all of it can be found and removed.

/// On a policy, only while it holds something: its effects are undone before it goes.
pub const FINALIZER: &str = "policy.trade.io/effects";

/// The readiness gate by which a Pod is taken out of service without touching its labels.
pub const SERVING_GATE: &str = "policy.trade.io/serving";

/// On targets and Pods: the mode that the service shall run in. Absent means `normal`.
pub const MODE_ANNOTATION: &str = "policy.trade.io/mode";

/// On Pods whose mode we set: which Intervention did, and what was there before, as JSON.
pub const MODE_BEFORE_ANNOTATION: &str = "policy.trade.io/mode-before";

/// The mode of a service that nothing has changed.
pub const NORMAL_MODE: &str = "normal";

/// On an Intervention: the kind of its slot.
pub const SLOT_LABEL: &str = "policy.trade.io/slot";

/// On objects that we create.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY_LABEL`], and our name as a field manager.
pub const FIELD_MANAGER: &str = "tradeguard";

/// The ConfigMap whose key `mode` freezes the engine: `new` stops new and growing effects, `all` every write.
pub const FREEZE_CONFIG_MAP: &str = "tradeguard-freeze";

/// On a ConfigMap: the PolicySource that its policies belong to.
pub const SOURCE_LABEL: &str = "policy.trade.io/source";

/// On an object that mirrors a source's policy: the PolicySource.
pub const SOURCE_ANNOTATION: &str = "policy.trade.io/source";

/// On a mirror and on a kept revision: the part of the source, `namespace/name` of a ConfigMap.
pub const PART_ANNOTATION: &str = "policy.trade.io/part";

/// On a mirror and on a kept revision: which revision of the part it is.
pub const REVISION_ANNOTATION: &str = "policy.trade.io/revision";

/// On a kept revision: when its text was written (RFC 3339).
pub const WRITTEN_ANNOTATION: &str = "policy.trade.io/written-at";
