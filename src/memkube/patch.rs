//! JSON Patch and JSON Merge Patch as the API server applies them.
//!
//! Refuses to know what the patched object means; strategic merge is not offered.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::memkube::status::Failure;

/// More operations than this are refused, as by the real server.
const MAX_OPERATIONS: usize = 10_000;

/// Media types of patches that need nothing but the patched value.
pub(crate) const VIEW_TYPES: [&str; 2] = ["application/json-patch+json", "application/merge-patch+json"];

/// Applies a merge patch (RFC 7386).
pub(crate) fn merge(object: &Value, patch: &Value) -> Result<Value, Failure> {
    if !patch.is_object() {
        return Err(Failure::bad_request("error decoding patch: a merge patch must be an object"));
    }
    let mut patched = object.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}

/// Applies a JSON patch (RFC 6902) whose `test` lets null stand for an absent key.
pub(crate) fn json(object: &Value, patch: &Value) -> Result<Value, Failure> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > MAX_OPERATIONS {
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(Failure::new(413, "RequestEntityTooLarge", message));
    }
    let patch: Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = object.clone();
    for operation in &patch.0 {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && is_absent_key(&patched, test.path.as_str())
        {
            continue;
        }
        json_patch::patch(&mut patched, std::slice::from_ref(operation)).map_err(|_| rejected())?;
    }
    Ok(patched)
}

fn rejected() -> Failure {
    Failure::new(422, "Invalid", "the server rejected our request due to an error in our request")
}

/// Whether the parent of the pointer's last element is a map without it.
fn is_absent_key(object: &Value, pointer: &str) -> bool {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return false };
    let key = last.replace("~1", "/").replace("~0", "~");
    object.pointer(parent).and_then(Value::as_object).is_some_and(|map| !map.contains_key(&key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_tests_an_absent_key_and_nothing_else() {
        let object = json!({"metadata": {"name": "a"}});
        let test = |path: &str, value: Value| json(&object, &json!([{"op": "test", "path": path, "value": value}]));
        assert!(test("/metadata/finalizers", Value::Null).is_ok());
        assert_eq!(test("/metadata/name", Value::Null).unwrap_err().code, 422);
        assert_eq!(test("/metadata/labels/app", Value::Null).unwrap_err().code, 422);
        assert_eq!(test("/metadata/finalizers", json!([])).unwrap_err().code, 422);
    }

    #[test]
    fn malformed_patches_are_bad_requests_and_failed_ones_invalid() {
        let object = json!({"a": 1});
        assert_eq!(json(&object, &json!({"op": "add"})).unwrap_err().code, 400);
        assert_eq!(json(&object, &json!([{"op": "grow", "path": "/a"}])).unwrap_err().code, 400);
        assert_eq!(json(&object, &json!([{"op": "remove", "path": "/b"}])).unwrap_err().code, 422);
        assert_eq!(merge(&object, &json!([])).unwrap_err().code, 400);
    }
}
