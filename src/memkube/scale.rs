//! The scale subresource: an object seen as a number of replicas with a selector.
//!
//! Refuses to know who scales; it only reads and sets the paths that the kind names.

use serde_json::{Map, Value, json};

use crate::memkube::{kinds::Scale, object};

/// The autoscaling/v1 Scale of an object.
pub(crate) fn of(scale: &Scale, stored: &Value) -> Value {
    let number = |path: &str| object::at_path(stored, path).cloned().unwrap_or_else(|| 0.into());
    let metadata: Map<String, Value> = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object::meta(stored, field)?.clone())))
        .collect();
    let mut shown = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(&scale.replicas)}, "status": {"replicas": number(&scale.status_replicas)},
    });
    let selector = scale.selector.as_deref().and_then(|path| object::at_path(stored, path)).map(selector_text);
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        shown["status"]["selector"] = selector.into();
    }
    shown
}

/// The object with the replicas that a sent Scale wants, guarded by the Scale's resourceVersion.
pub(crate) fn lay_over(scale: &Scale, stored: &Value, sent: &Value) -> Value {
    let mut new = stored.clone();
    let wanted = object::at_path(sent, "spec.replicas").cloned().unwrap_or_else(|| 0.into());
    object::set_path(&mut new, &scale.replicas, wanted);
    for field in ["resourceVersion", "uid"] {
        object::set_meta(&mut new, field, object::meta(sent, field).cloned());
    }
    new
}

/// A selector in its text form: text as it is, a LabelSelector spelled out.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let equal = equal.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let expressions = expressions.filter_map(|expression| {
        let key = expression.get("key")?.as_str()?;
        let values = object::strings(expression.get("values")).join(",");
        match expression.get("operator")?.as_str()? {
            "In" => Some(format!("{key} in ({values})")),
            "NotIn" => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.to_owned()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    });
    equal.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_selector_is_spelled_out() {
        let scale = Scale {
            replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            selector: Some(".spec.selector".to_owned()),
        };
        let stored = json!({"metadata": {"name": "a"}, "spec": {"replicas": 3, "selector": {
            "matchLabels": {"app": "order"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": "Exists"}],
        }}});
        let shown = of(&scale, &stored);
        assert_eq!(shown["status"]["selector"], "app=order,tier in (a,b),x");
        assert_eq!(shown["spec"]["replicas"], 3);
        assert_eq!(lay_over(&scale, &stored, &json!({"spec": {"replicas": 5}}))["spec"]["replicas"], 5);
    }
}
