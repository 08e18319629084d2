//! The hook by which others judge and complete what is written: schema defaults, validation, CEL.
//!
//! Refuses to know any rule itself.

use std::sync::Arc;

use serde_json::Value;

use crate::memkube::status::FieldError;

/// What is about to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It comes to be.
    Create,
    /// It changes, also through a subresource.
    Update,
}

/// One write in the eyes of admission, after metadata is settled and before anything is stored.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// What is about to happen.
    pub operation: Operation,
    /// The kind's group; empty for the core group.
    pub group: &'a str,
    /// The version the client wrote in.
    pub version: &'a str,
    /// The kind's name.
    pub kind: &'a str,
    /// The kind's `openAPIV3Schema`, where a CustomResourceDefinition gave one.
    pub schema: Option<&'a Value>,
    /// `status` or `scale`, where the write came through one.
    pub subresource: Option<&'a str>,
    /// The object to be; the hook may complete it.
    pub object: &'a mut Value,
    /// The object as it stands; absent on create.
    pub old: Option<&'a Value>,
}

/// Judges a write; errors become one 422 `Invalid` with a cause per field.
pub type Admission = Arc<dyn Fn(&mut AdmissionRequest<'_>) -> Result<(), Vec<FieldError>> + Send + Sync>;
