//! Failures as the API server words them: the `Status` object, its reason, details and causes.
//!
//! Refuses to know when a request fails; it only knows how a failure looks on the wire.

use serde_json::{Map, Value, json};

use crate::memkube::kinds::Kind;

/// Why a field was refused; the names are those of Kubernetes' `StatusCause.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The value breaks a rule.
    Invalid,
    /// A needed value is missing.
    Required,
    /// The value is not one of a closed set.
    NotSupported,
    /// The value stands twice where it may stand once.
    Duplicate,
    /// The value may not be given here.
    Forbidden,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value is longer than allowed.
    TooLong,
    /// There are more items than allowed.
    TooMany,
}

impl Cause {
    fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn phrase(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// One refused field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path from the object's root, for example `spec.thresholds.duration`.
    pub field: String,
    /// The class of the refusal.
    pub cause: Cause,
    /// The refused value; left out of the message where the class never shows one.
    pub value: Option<Value>,
    /// What is expected, as a sentence without the field.
    pub detail: String,
}

impl FieldError {
    /// A refusal of `value` at `field`.
    pub fn new(field: impl Into<String>, cause: Cause, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), cause, value, detail: detail.into() }
    }

    fn message(&self) -> String {
        let shows_value = !matches!(self.cause, Cause::Required | Cause::Forbidden | Cause::TooLong | Cause::TooMany);
        let head = match &self.value {
            Some(value) if shows_value => format!("{}: {}", self.cause.phrase(), shown(value)),
            _ => self.cause.phrase().to_owned(),
        };
        if self.detail.is_empty() { head } else { format!("{head}: {}", self.detail) }
    }
}

/// Go prints `%#v` of strings quoted and of other values bare; JSON text is the same for those.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

/// A failed request; becomes a `Status` object with the HTTP code of the same number.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The HTTP status code.
    pub code: u16,
    /// The CamelCase reason clients branch on.
    pub reason: &'static str,
    /// The sentence for people.
    pub message: String,
    details: Map<String, Value>,
}

impl Failure {
    /// A failure without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Map::new() }
    }

    /// Sets `details.retryAfterSeconds` (and with it the `Retry-After` header).
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.insert("retryAfterSeconds".to_owned(), seconds.into());
        self
    }

    pub(crate) fn cause(mut self, reason: &str, message: &str, field: Option<&str>) -> Self {
        let mut cause = json!({"reason": reason, "message": message});
        if let Some(field) = field {
            cause["field"] = field.into();
        }
        if let Some(Value::Array(causes)) = self.details.get_mut("causes") {
            causes.push(cause);
        } else {
            self.details.insert("causes".to_owned(), json!([cause]));
        }
        self
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.details.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource())).about(
            &kind.group,
            &kind.plural,
            name,
        )
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.resource())).about(
            &kind.group,
            &kind.plural,
            name,
        )
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message).about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn other_uid(kind: &Kind, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(kind, name, &why)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", kind.resource())).about(
            &kind.group,
            &kind.plural,
            name,
        )
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let lines: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        let text = match lines.as_slice() {
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let full_kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let failure = Self::new(422, "Invalid", format!("{full_kind} \"{name}\" is invalid: {text}"));
        errors.iter().fold(failure.about(group, kind, name), |failure, error| {
            failure.cause(error.cause.reason(), &error.message(), Some(&error.field))
        })
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The `Retry-After` header's value, where the failure has one.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}
