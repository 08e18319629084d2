//! What must hold between a sent object, the address it was sent to and what stands there.
//!
//! Refuses to change anything; each function is one way a write is refused.

use serde_json::Value;

use crate::memkube::{
    call::Call,
    metadata, object,
    status::{Cause, Failure, FieldError},
};

/// The body is an object of the addressed kind.
pub(crate) fn check_type(call: &Call, body: &Value) -> Result<(), Failure> {
    if !body.is_object() {
        return Err(Failure::bad_request("the body of the request is not an object"));
    }
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (call.served.api_version(), &call.kind().kind);
    if text("kind").is_empty() && call.kind().custom {
        return Err(Failure::bad_request(format!("Object 'Kind' is missing in '{body}'")));
    }
    if !text("kind").is_empty() && text("kind") != kind {
        let group_version = body.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let message = format!(
            "{kind} in version \"{api_version}\" cannot be handled as a {kind}: the object is of kind {} in {group_version}",
            text("kind")
        );
        return Err(Failure::bad_request(message));
    }
    if !text("apiVersion").is_empty() && text("apiVersion") != api_version {
        let message = format!(
            "the API version in the data ({}) does not match the expected API version ({api_version})",
            text("apiVersion")
        );
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// A patch may not turn an object into another kind.
pub(crate) fn check_patched_type(call: &Call, patched: &Value) -> Result<(), Failure> {
    let wanted = [("kind", call.kind().kind.clone()), ("apiVersion", call.served.api_version())];
    let errors = wanted.into_iter().filter_map(|(field, wanted)| {
        let value = patched.get(field).and_then(Value::as_str).unwrap_or_default();
        (value != wanted)
            .then(|| FieldError::new(field, Cause::Invalid, Some(value.into()), format!("must be {wanted}")))
    });
    refuse_if(call, &errors.collect::<Vec<_>>())
}

/// What an apply may not say.
pub(crate) fn check_apply(call: &Call, config: &Value) -> Result<(), Failure> {
    if object::meta(config, "managedFields").is_some_and(|list| !list.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let version = config.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != call.served.api_version() {
        let message = format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            call.served.api_version()
        );
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// 422 with all errors, if there are any.
pub(crate) fn refuse_if(call: &Call, errors: &[FieldError]) -> Result<(), Failure> {
    if errors.is_empty() { Ok(()) } else { Err(call.invalid(errors)) }
}

/// The object has no name where the address gives one.
pub(crate) fn nameless(addressed: &str) -> Failure {
    let why = "was undeterminable: name must be provided";
    Failure::bad_request(format!("the name of the object ({addressed} based on URL) {why}"))
}

/// A named object agrees with the name it is addressed by.
pub(crate) fn check_name(call: &Call, sent: &str) -> Result<(), Failure> {
    if call.name.is_empty() || sent.is_empty() || sent == call.name {
        return Ok(());
    }
    let message = format!("the name of the object ({sent}) does not match the name on the URL ({})", call.name);
    Err(Failure::bad_request(message))
}

/// Names, uid and version of what was sent agree with what stands.
pub(crate) fn check_identity(call: &Call, old: &Value, sent: &Value) -> Result<(), Failure> {
    let kind = call.kind();
    if object::name(sent).is_empty() {
        return Err(nameless(&call.name));
    }
    check_name(call, object::name(sent))?;
    check_namespace(call, sent)?;
    refuse_if(call, &metadata::check_unchanged(sent, old))?;
    let version = object::meta_str(sent, "resourceVersion");
    if !version.is_empty() && version != "0" && version != object::meta_str(old, "resourceVersion") {
        return Err(Failure::modified(kind, &call.name));
    }
    Ok(())
}

/// The namespace of a new object is that of its address.
pub(crate) fn check_namespace(call: &Call, new: &Value) -> Result<(), Failure> {
    let sent = object::meta_str(new, "namespace");
    if sent.is_empty() || sent == call.namespace {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Failure::bad_request(message))
}

/// A deleting object takes no new finalizers.
pub(crate) fn check_finalizers(call: &Call, old: &Value, new: &Value) -> Result<(), Failure> {
    if !object::is_deleting(old) {
        return Ok(());
    }
    let before = object::finalizers(old);
    let added: Vec<String> =
        object::finalizers(new).into_iter().filter(|one| !before.contains(one)).map(|one| format!("{one:?}")).collect();
    if added.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    Err(call.invalid(&[FieldError::new("metadata.finalizers", Cause::Forbidden, None, detail)]))
}
