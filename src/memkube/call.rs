//! Whom and what a write addresses, and who writes.
//!
//! Refuses to know the store.

use serde_json::Value;

use crate::memkube::{
    kinds::{Kind, Served},
    managed::{Owner, Reach},
    patch,
    shape::Shape,
    status::{Failure, FieldError},
};

/// Whom and what a write addresses.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) served: Served,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: Option<String>,
    pub(crate) manager: String,
}

/// A patch with its media type settled.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Apply { config: Value, force: bool },
}

impl Patch {
    /// A patched view of an object; an apply is none, it needs the owners.
    pub(crate) fn on(&self, shown: &Value) -> Result<Value, Failure> {
        match self {
            Self::Json(operations) => patch::json(shown, operations),
            Self::Merge(changes) => patch::merge(shown, changes),
            Self::Apply { .. } => Err(Failure::unsupported_media_type(&patch::VIEW_TYPES)),
        }
    }
}

impl Call {
    pub(crate) fn kind(&self) -> &Kind {
        &self.served.kind
    }

    pub(crate) fn shape(&self) -> Shape<'_> {
        match (self.kind().custom, self.kind().schema(&self.kind().storage)) {
            (true, schema) => Shape::Custom(schema),
            (false, _) => Shape::Builtin { parent: "", field: "" },
        }
    }

    pub(crate) fn reach(&self) -> Reach {
        match (self.subresource.as_deref(), self.kind().status) {
            (Some("status"), _) if self.kind().is_pod() => Reach::AllButSpec,
            (Some("status"), _) => Reach::StatusOnly,
            (_, true) => Reach::AllButStatus,
            (_, false) => Reach::Whole,
        }
    }

    pub(crate) fn owner(&self, applies: bool) -> Owner {
        Owner {
            applies,
            manager: self.manager.clone(),
            api_version: self.served.api_version(),
            subresource: self.subresource.clone().unwrap_or_default(),
        }
    }

    pub(crate) fn invalid(&self, errors: &[FieldError]) -> Failure {
        Failure::invalid(self.served.group(), &self.kind().kind, &self.name, errors)
    }
}
