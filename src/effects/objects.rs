//! The few calls that effects make on objects of any kind, each with a deadline, and what their failures mean.
//!
//! Refuses to know slots. Every write is guarded: a merge patch by uid and resourceVersion, a JSON patch by its tests.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::error::{Error, Result};

/// Pages of a list.
const PAGE: u32 = 500;

/// How often releasing ownership is tried against other writers.
const TRIES: u32 = 3;

/// Access to the cluster's objects under one field manager.
pub(crate) struct Objects {
    client: Client,
    manager: String,
    deadline: Duration,
    served: Mutex<BTreeMap<(String, String), ApiResource>>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects")
            .field("manager", &self.manager)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// One object's place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) resource: ApiResource,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn pod(namespace: &str, name: &str) -> Self {
        Self { resource: ApiResource::erase::<Pod>(&()), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} {}/{}", self.resource.kind, self.namespace, self.name)
    }
}

impl Objects {
    pub(crate) fn new(client: Client, manager: &str, deadline: Duration) -> Self {
        Self { client, manager: manager.to_owned(), deadline, served: Mutex::default() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn manager(&self) -> &str {
        &self.manager
    }

    /// Waits for a call, but not longer than the deadline, and says what its failure means.
    pub(crate) async fn call<T>(
        &self,
        object: impl Fn() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(meaning_of(error, object())),
            Err(_) => Err(Error::Timeout { object: object() }),
        }
    }

    /// How a kind is addressed. Asked of the server once.
    pub(crate) async fn resource(&self, api_version: &str, kind: &str) -> Result<ApiResource> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(resource) = self.served.lock().await.get(&key) {
            return Ok(resource.clone());
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let not_served = || Error::NotServed { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let asked = kube::discovery::pinned_kind(&self.client, &gvk);
        let resource = match tokio::time::timeout(self.deadline, asked).await {
            Ok(Ok((resource, _))) => resource,
            Ok(Err(kube::Error::Discovery(_))) => return Err(not_served()),
            // By code: for a group that it does not have the server answers in plain text, without a reason.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Err(not_served()),
            Ok(Err(error)) => return Err(meaning_of(error, format!("the kinds of {api_version}"))),
            Err(_) => return Err(Error::Timeout { object: format!("the kinds of {api_version}") }),
        };
        self.served.lock().await.insert(key, resource.clone());
        Ok(resource)
    }

    /// The object as it stands at the server; none if there is none.
    pub(crate) async fn get(&self, place: &Place) -> Result<Option<DynamicObject>> {
        self.call(|| place.describe(), self.api(place).get_opt(&place.name)).await
    }

    pub(crate) async fn get_pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        self.call(|| format!("Pod {namespace}/{name}"), api.get_opt(name)).await
    }

    /// Changes labels or annotations of exactly the object that was read. A null takes a key away.
    pub(crate) async fn merge_metadata(&self, place: &Place, read: &Version, metadata: Value) -> Result<()> {
        let mut metadata = metadata;
        metadata["uid"] = json!(read.uid);
        metadata["resourceVersion"] = json!(read.resource_version);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        missing_is_conflict(
            self.call(|| place.describe(), self.api(place).patch(&place.name, &self.params(), &patch)).await,
        )
    }

    pub(crate) async fn json_patch(&self, place: &Place, operations: &[Value]) -> Result<()> {
        let patch: Patch<Value> = Patch::Json(decoded(operations));
        missing_is_conflict(
            self.call(|| place.describe(), self.api(place).patch(&place.name, &self.params(), &patch)).await,
        )
    }

    pub(crate) async fn json_patch_status(&self, place: &Place, operations: &[Value]) -> Result<()> {
        let patch: Patch<Value> = Patch::Json(decoded(operations));
        missing_is_conflict(
            self.call(|| place.describe(), self.api(place).patch_status(&place.name, &self.params(), &patch)).await,
        )
    }

    /// Deletes exactly this object; one that is gone already is fine.
    pub(crate) async fn delete(&self, place: &Place, uid: &str) -> Result<()> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.call(|| place.describe(), self.api(place).delete(&place.name, &params)).await {
            Ok(_) | Err(Error::Refused { code: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Metadata of every Pod of a namespace, page by page, from the server.
    pub(crate) async fn pods_of(&self, namespace: &str) -> Result<Vec<PartialObjectMeta<Pod>>> {
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), namespace);
        let mut pods = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = self.call(|| format!("the Pods of {namespace}"), api.list(&params)).await?;
            pods.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(pods),
            }
        }
    }

    /// Takes our entries out of an object's managedFields, so that whoever owned the fields before can have them back.
    ///
    /// Entries of subresources stay: what we wrote there still stands.
    pub(crate) async fn release_ownership(&self, place: &Place, uid: &str) -> Result<()> {
        let mut tries = 0;
        loop {
            let Some(object) = self.get(place).await?.filter(|object| object.metadata.uid.as_deref() == Some(uid))
            else {
                return Ok(());
            };
            let operations = release_patch(&object, &self.manager);
            if operations.is_empty() {
                return Ok(());
            }
            tries += 1;
            match self.json_patch(place, &operations).await {
                Err(Error::Conflict { .. }) if tries < TRIES => {}
                other => return other,
            }
        }
    }

    /// Whether an entry of ours is among an object's managedFields.
    pub(crate) fn owns_fields_of(&self, metadata: &ObjectMeta) -> bool {
        !our_entries(metadata, &self.manager).is_empty()
    }

    fn api(&self, place: &Place) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &place.namespace, &place.resource)
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() }
    }
}

/// Which version of which object was read: what a write is guarded by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl Version {
    pub(crate) fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

fn our_entries(metadata: &ObjectMeta, manager: &str) -> Vec<usize> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let is_ours = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager) && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    (0..entries.len()).filter(|&index| is_ours(&entries[index])).collect()
}

fn release_patch(object: &DynamicObject, manager: &str) -> Vec<Value> {
    let ours = our_entries(&object.metadata, manager);
    if ours.is_empty() {
        return Vec::new();
    }
    let version = &object.metadata.resource_version;
    let guard = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    // From the back, so that no index moves.
    let removals =
        ours.iter().rev().map(|index| json!({"op": "remove", "path": format!("/metadata/managedFields/{index}")}));
    std::iter::once(guard).chain(removals).collect()
}

/// What was read a moment ago is gone: like any other change in between, it is read again.
fn missing_is_conflict(patched: Result<DynamicObject>) -> Result<()> {
    match patched {
        Err(Error::Refused { object, code: 404, .. }) => Err(Error::Conflict { object }),
        other => other.map(drop),
    }
}

fn decoded(operations: &[Value]) -> json_patch::Patch {
    serde_json::from_value(Value::Array(operations.to_vec())).expect("our operations are RFC 6902")
}

/// A failed `test` of a JSON patch is 422 like an object that validation refuses, but names no fields.
fn meaning_of(error: kube::Error, object: String) -> Error {
    let kube::Error::Api(status) = error else {
        return Error::Unreachable { object, source: Box::new(error) };
    };
    let names_fields = status.details.as_ref().is_some_and(|details| !details.causes.is_empty());
    match status.code {
        409 => Error::Conflict { object },
        422 if !names_fields => Error::Conflict { object },
        408 | 429 | 500..=599 => Error::Unreachable { object, source: Box::new(kube::Error::Api(status)) },
        code => Error::Refused { object, code, message: status.message.clone() },
    }
}
