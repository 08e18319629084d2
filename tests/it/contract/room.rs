//! A scenario's place: a namespace, the suite's own kind, raw requests and masks.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::{
    Api, Client,
    api::DynamicObject,
    client::Body,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

pub(super) const GROUP: &str = "contract.tradeguard.io";

/// Long enough for a busy real server.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Room {
    pub(super) client: Client,
    pub(super) namespace: String,
}

/// An answer as it came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
}

impl Answer {
    /// The body of a success.
    #[track_caller]
    pub(super) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {}", self.code, self.body);
        self.body
    }

    /// (code, reason, message) of a failure.
    #[track_caller]
    pub(super) fn failure(&self) -> (u16, &str, &str) {
        assert_eq!(self.body["kind"], "Status", "{}", self.body);
        assert_eq!(self.body["code"], self.code, "{}", self.body);
        (self.code, self.body["reason"].as_str().unwrap_or_default(), self.body["message"].as_str().unwrap_or_default())
    }
}

impl Room {
    /// A namespace nobody had before, not even an earlier run against the same server.
    pub(super) async fn open(client: &Client) -> Self {
        let mut room = Self { client: client.clone(), namespace: String::new() };
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "contract-"}});
        let made = room.send(Method::POST, "/api/v1/namespaces", "application/json", &body).await.ok();
        made["metadata"]["name"].as_str().unwrap().clone_into(&mut room.namespace);
        room
    }

    /// Leaves no objects behind; the namespace goes where a controller for that runs.
    pub(super) async fn close(&self) {
        self.send(Method::DELETE, &self.widgets(), "application/json", &Value::Null).await;
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        self.send(Method::DELETE, &path, "application/json", &Value::Null).await;
    }

    /// The path of the suite's collection, or of the named thing in it.
    pub(super) fn widgets(&self) -> String {
        format!("/apis/{GROUP}/v1/namespaces/{}/widgets", self.namespace)
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.widgets())
    }

    pub(super) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(super) async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        self.answer(request.body(Body::from(bytes)).unwrap()).await
    }

    pub(super) async fn answer(&self, request: Request<Body>) -> Answer {
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    pub(super) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        self.answer(request).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, "application/json", body).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, "application/json", body).await
    }

    pub(super) async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.send(Method::DELETE, path, "application/json", options).await
    }

    pub(super) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", body).await
    }

    pub(super) async fn json_patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, "application/json-patch+json", body).await
    }

    pub(super) async fn apply(&self, path: &str, manager: &str, config: &Value) -> Answer {
        let path = format!("{path}?fieldManager={manager}");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", config).await
    }

    pub(super) async fn force(&self, path: &str, manager: &str, config: &Value) -> Answer {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", config).await
    }

    /// Creates a widget with this spec.
    pub(super) async fn make(&self, name: &str, spec: Value) -> Value {
        self.post(&self.widgets(), &widget(name, spec)).await.ok()
    }

    pub(super) fn api(&self) -> (Api<DynamicObject>, ApiResource) {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Widget"), "widgets");
        (Api::namespaced_with(self.client.clone(), &self.namespace, &resource), resource)
    }
}

#[allow(clippy::needless_pass_by_value)] // callers write the spec in place
pub(super) fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Managers with what they own, without times: `(manager, operation, subresource, fields)`.
pub(super) fn owners(object: &Value) -> Vec<(String, String, String, Value)> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut owners: Vec<_> = entries
        .map(|entry| {
            (text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"), entry["fieldsV1"].clone())
        })
        .collect();
    owners
        .sort_by_key(|(manager, operation, subresource, _)| (manager.clone(), operation.clone(), subresource.clone()));
    owners
}

/// Makes the suite's kind served; a definition of an earlier run is taken over.
pub(super) async fn install_definition(client: &Client) {
    let room = Room { client: client.clone(), namespace: String::new() };
    let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = room.post(collection, &definition("widgets", "Widget")).await;
    assert!(matches!(answer.code, 201 | 409), "{answer:?}");
    room.wait_established("widgets").await;
}

impl Room {
    pub(super) async fn wait_established(&self, plural: &str) {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}");
        let served = format!("/apis/{GROUP}/v1/{plural}");
        let established = async {
            loop {
                let definition = self.get(&path).await.body;
                let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let is_true = |one: &Value| one["type"] == "Established" && one["status"] == "True";
                if conditions.iter().any(is_true) && self.get(&served).await.code == 200 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, established).await.expect("the definition is established in time");
    }
}

/// The suite's own kind, with one of everything that matters.
pub(super) fn definition(plural: &str, kind: &str) -> Value {
    let text = || json!({"type": "string"});
    let condition = json!({"type": "object", "required": ["type", "status"],
        "properties": {"type": text(), "status": text(), "reason": text()}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "note": text(),
            "replicas": {"type": "integer"},
            "tags": {"type": "array", "items": text(), "x-kubernetes-list-type": "set"},
            "plain": {"type": "array", "items": text()},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "byName": {"type": "object", "additionalProperties": text()},
        }},
        "status": {"type": "object", "properties": {
            "phase": text(),
            "replicas": {"type": "integer"},
            "selector": text(),
            "conditions": {"type": "array", "items": condition,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [&plural[..2]]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
                "selectableFields": [{"jsonPath": ".spec.note"}],
            }],
        },
    })
}
