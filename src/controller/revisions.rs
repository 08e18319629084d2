//! The revisions of each ConfigMap that were in force, kept as ControllerRevisions beside it: for a person who rolls back,
//! and for an engine that starts while the newest text is broken.
//!
//! They hold the text as it came; its digest is their revision, so a copy that somebody altered is no revision at all.
//! They go with their ConfigMap.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tracing::{debug, warn};

use crate::api::marks::{
    FIELD_MANAGER, MANAGED_BY_LABEL, PART_ANNOTATION, REVISION_ANNOTATION, SOURCE_LABEL, WRITTEN_ANNOTATION,
};
use crate::api::policy_source::HISTORY;
use crate::controller::definitions::PartId;
use crate::controller::engine::{Done, Engine};
use crate::sources::config_map;
use crate::sources::snapshot::Texts;

impl Engine {
    /// The revisions of a part that are kept, the one that came into force last first.
    pub(crate) fn revisions_of(&self, id: &PartId) -> Vec<Texts> {
        // A repository is its own history.
        if id.is_repository() {
            return Vec::new();
        }
        self.kept(id).iter().filter_map(|kept| texts(kept)).collect()
    }

    fn kept(&self, id: &PartId) -> Vec<Arc<ControllerRevision>> {
        let part = id.part();
        let all = self.parts.caches.revisions.in_namespace(&id.namespace);
        let mut kept: Vec<_> =
            all.into_iter().filter(|kept| kept.annotations().get(PART_ANNOTATION) == Some(&part)).collect();
        kept.sort_by_key(|kept| Reverse(kept.revision));
        kept
    }

    /// Keeps what is in force of every part: whoever acted before may not have come to it.
    pub(crate) fn keep_revisions(&mut self) {
        let active: Vec<_> =
            self.definitions.parts().filter_map(|(id, part)| Some((id.clone(), part.active.clone()?))).collect();
        for (id, active) in active {
            self.keep_revision(&id, &active.texts);
        }
    }

    /// Kept revisions in these namespaces changed: status lists them, and a pin may wait for one.
    pub(crate) fn list_revisions(&mut self, namespaces: &BTreeSet<String>) {
        let sources: BTreeSet<String> = self
            .definitions
            .parts()
            .filter(|(id, _)| namespaces.contains(&id.namespace))
            .map(|(id, _)| id.source.clone())
            .collect();
        self.source_status.want_all(sources.into_iter());
    }

    /// Keeps what came into force as the newest revision, and of the earlier ones no more than status lists.
    pub(crate) fn keep_revision(&mut self, id: &PartId, texts: &Texts) {
        if !self.acts() || id.is_repository() {
            return;
        }
        let kept = self.kept(id);
        let Some(owner) = self.parts.caches.policy_maps.get(&id.namespace, &id.name) else { return };
        if kept.first().is_some_and(|newest| newest.annotations().get(REVISION_ANNOTATION) == Some(&texts.revision)) {
            return;
        }
        let number = kept.first().map_or(1, |newest| newest.revision.saturating_add(1));
        let again = kept.iter().any(|kept| kept.annotations().get(REVISION_ANNOTATION) == Some(&texts.revision));
        let others = kept.iter().filter(|kept| kept.annotations().get(REVISION_ANNOTATION) != Some(&texts.revision));
        let surplus: Vec<String> = others.skip(HISTORY).map(|kept| kept.name_any()).collect();
        let revision = revision(id, texts, &owner, number);
        let (client, namespace) = (self.parts.client.clone(), id.namespace.clone());
        self.tasks.spawn(async move {
            if let Err(error) = write(client, &namespace, &revision, again, &surplus).await {
                // The text is in force all the same; only a roll-back to it is not to be had.
                warn!(%error, revision = revision.name_any(), "a revision was not kept");
            }
            Done::Nothing
        });
    }
}

async fn write(
    client: Client,
    namespace: &str,
    revision: &ControllerRevision,
    again: bool,
    surplus: &[String],
) -> Result<(), kube::Error> {
    let api = Api::<ControllerRevision>::namespaced(client, namespace);
    let name = revision.name_any();
    if again {
        // The content is the same by its name; only its place in the order changes, as with a ReplicaSet's.
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(&name, &params, &Patch::Merge(json!({ "revision": revision.revision }))).await?;
    } else {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match api.create(&params, revision).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => drop(other?),
        }
    }
    for name in surplus {
        if let Err(error) = api.delete(name, &DeleteParams::default()).await {
            debug!(%error, name, "an old revision was not deleted");
        }
    }
    Ok(())
}

fn revision(id: &PartId, texts: &Texts, owner: &ConfigMap, number: i64) -> ControllerRevision {
    let written = texts.changed_at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let annotations =
        [(PART_ANNOTATION, id.part()), (REVISION_ANNOTATION, texts.revision.clone()), (WRITTEN_ANNOTATION, written)];
    let labels = [(SOURCE_LABEL, id.source.clone()), (MANAGED_BY_LABEL, FIELD_MANAGER.to_owned())];
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", id.name, texts.revision)),
            namespace: Some(id.namespace.clone()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
            owner_references: owner.metadata.uid.clone().map(|uid| {
                vec![OwnerReference {
                    api_version: ConfigMap::api_version(&()).into_owned(),
                    kind: ConfigMap::kind(&()).into_owned(),
                    name: id.name.clone(),
                    uid,
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        revision: number,
        data: Some(RawExtension(config_map::content(texts))),
    }
}

/// The texts of a kept revision, if they are what its name says.
fn texts(kept: &ControllerRevision) -> Option<Texts> {
    let named = kept.annotations().get(REVISION_ANNOTATION)?;
    let files = config_map::files(serde_json::from_value(kept.data.as_ref()?.0.clone()).ok()?);
    let written = kept.annotations().get(WRITTEN_ANNOTATION)?;
    let changed_at = DateTime::parse_from_rfc3339(written).ok()?.to_utc();
    let is_whole = config_map::revision(&files) == *named;
    if !is_whole {
        warn!(revision = kept.name_any(), "a kept revision was altered and is left alone");
    }
    is_whole.then(|| Texts { revision: named.clone(), changed_at, files })
}
