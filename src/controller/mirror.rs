//! The objects that show a source's policies to kubectl and carry their status.
//!
//! A mirror is written, never read: what it says is put back when somebody edits it, and what is judged is the text of
//! the source. It is another object for each life of its policy, so its uid and its finalizer work as those of an object
//! that was applied by hand.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::api::AnyPolicy;
use crate::api::marks::{FIELD_MANAGER, MANAGED_BY_LABEL, PART_ANNOTATION, REVISION_ANNOTATION, SOURCE_ANNOTATION};
use crate::controller::backoff::Backoff;
use crate::controller::definitions::{InForce, PartId};
use crate::controller::engine::{Done, Engine};
use crate::controller::report;
use crate::controller::sourcing::SOURCE;
use crate::decide::Freeze;
use crate::model::policy::PolicyKey;
use crate::model::reason::Reason;

/// The writing of mirrors, by policy; only those that were written lately are in it.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    work: BTreeMap<PolicyKey, Work>,
}

#[derive(Debug, Default)]
struct Work {
    running: bool,
    backoff: Backoff,
    not_before: Option<DateTime<Utc>>,
    /// When it was put back last; after a long peace the next edit is answered at once.
    put_back_at: Option<DateTime<Utc>>,
}

/// How long nobody must have edited a mirror for the pauses to begin anew.
const PEACE: TimeDelta = TimeDelta::minutes(5);

/// What came of writing or deleting a mirror.
pub(crate) struct Mirrored {
    key: PolicyKey,
    /// It was not what it should be though we had written it: somebody else writes it too.
    put_back: bool,
    result: Result<(), kube::Error>,
}

/// The part that an object says it mirrors; none for an object that was applied by hand.
pub(crate) fn mirrored_part(object: &AnyPolicy) -> Option<PartId> {
    let annotations = object.metadata().annotations.as_ref()?;
    let source = annotations.get(SOURCE_ANNOTATION)?.clone();
    Some(match annotations.get(PART_ANNOTATION)?.split_once('/') {
        Some((namespace, name)) => PartId { source, namespace: namespace.to_owned(), name: name.to_owned() },
        None => PartId::repository(&source),
    })
}

/// What was done to a mirror's text by somebody else.
fn was_edited(object: &AnyPolicy, in_force: InForce<'_>) -> bool {
    let of_same_revision = object
        .metadata()
        .annotations
        .as_ref()
        .is_some_and(|written| written.get(REVISION_ANNOTATION) == Some(&in_force.active.texts.revision));
    of_same_revision && mirrored_part(object).as_ref() == Some(in_force.id)
}

/// Whether the object is what the text asks for.
fn is_true(object: &AnyPolicy, in_force: InForce<'_>) -> bool {
    let has = |wanted: &BTreeMap<String, String>, found: Option<&BTreeMap<String, String>>| {
        wanted.iter().all(|(key, value)| found.and_then(|found| found.get(key)) == Some(value))
    };
    let (labels, annotations) = marks(in_force);
    has(&labels, object.metadata().labels.as_ref())
        && has(&annotations, object.metadata().annotations.as_ref())
        && object.spec_json() == in_force.definition.object.spec_json()
}

/// Labels and annotations of a mirror: the author's and ours.
fn marks(in_force: InForce<'_>) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let metadata = in_force.definition.object.metadata();
    let mut labels = metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY_LABEL.to_owned(), FIELD_MANAGER.to_owned());
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.insert(SOURCE_ANNOTATION.to_owned(), in_force.id.source.clone());
    annotations.insert(PART_ANNOTATION.to_owned(), in_force.id.part());
    annotations.insert(REVISION_ANNOTATION.to_owned(), in_force.active.texts.revision.clone());
    (labels, annotations)
}

impl Engine {
    /// The policies whose objects say that they mirror this part, whether or not it still defines them.
    pub(crate) fn mirrors_of(&self, id: &PartId) -> Vec<PolicyKey> {
        let all = self.registry.iter();
        all.filter(|(_, governed)| mirrored_part(&governed.object).as_ref() == Some(id))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Looks at every object that mirrors something: what it mirrors may have gone while nobody acted.
    pub(crate) fn review_mirrors(&mut self, now: DateTime<Utc>) {
        let all = self.registry.iter();
        let mirrors: Vec<PolicyKey> =
            all.filter(|(_, governed)| mirrored_part(&governed.object).is_some()).map(|(key, _)| key.clone()).collect();
        for key in mirrors {
            self.reconcile(&key, now);
        }
    }

    /// Writes every mirror that is missing or not true.
    pub(crate) fn keep_mirrors(&mut self, now: DateTime<Utc>) {
        for key in self.definitions.keys() {
            self.keep_mirror(&key, now);
        }
    }

    /// Writes the mirror of the text in force, unless it is there and true.
    pub(crate) fn keep_mirror(&mut self, key: &PolicyKey, now: DateTime<Utc>) {
        let object = self.object(key);
        let Some(in_force) = self.definitions.winner(key) else { return };
        let being_deleted = object.as_ref().is_some_and(AnyPolicy::is_being_deleted);
        if being_deleted || object.as_ref().is_some_and(|object| is_true(object, in_force)) {
            return;
        }
        let put_back = object.as_ref().is_some_and(|object| was_edited(object, in_force));
        let (labels, annotations) = marks(in_force);
        let spec = in_force.definition.object.spec_json();
        if !self.begin(key, now) {
            return;
        }
        if put_back {
            let note = "the policy was edited by hand; its source's text was put back";
            warn!(reconciler = SOURCE, request = %key, policy = key.name, "{note}");
            self.record_event(key, true, Reason::PutBack, "Mirror", note.to_owned());
        }
        let client = self.parts.client.clone();
        self.tasks.spawn({
            let key = key.clone();
            async move {
                let result = write(client, &key, object, labels, annotations, spec).await;
                Done::Mirrored(Box::new(Mirrored { key, put_back, result }))
            }
        });
    }

    /// Deletes the mirror of a policy that no source defines any more; its finalizer undoes its effects.
    pub(crate) fn drop_mirror(&mut self, key: &PolicyKey, object: &AnyPolicy, now: DateTime<Utc>) {
        if object.is_being_deleted() || !self.begin(key, now) {
            return;
        }
        info!(reconciler = SOURCE, request = %key, policy = key.name, "no source defines the policy any more");
        let (client, uid) = (self.parts.client.clone(), object.uid().to_owned());
        let key = key.clone();
        self.tasks.spawn(async move {
            let api = api(client, &key);
            // An object of that name that somebody has made since is not ours to delete.
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(uid), resource_version: None }),
                ..DeleteParams::default()
            };
            let result = match api.delete(&key.name, &params).await {
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
                other => other.map(drop),
            };
            Done::Mirrored(Box::new(Mirrored { key, put_back: false, result }))
        });
    }

    /// Whether a write may begin; one at a time, by the actor, and not while it is waited after a failure.
    fn begin(&mut self, key: &PolicyKey, now: DateTime<Utc>) -> bool {
        if !self.acts() || self.freeze == Freeze::All {
            return false;
        }
        let work = self.mirrors.work.entry(key.clone()).or_default();
        if work.running || work.not_before.is_some_and(|at| now < at) {
            return false;
        }
        work.running = true;
        work.not_before = None;
        true
    }

    /// Takes in what came of a write. What the watch shows next says whether another is needed.
    pub(crate) fn mirrored(&mut self, mirrored: Mirrored, now: DateTime<Utc>) {
        let Mirrored { key, put_back, result } = mirrored;
        let jitter = self.parts.random.f64();
        let work = self.mirrors.work.entry(key.clone()).or_default();
        work.running = false;
        let pause = match &result {
            Ok(()) if !put_back => {
                self.mirrors.work.remove(&key);
                return self.reconcile(&key, now);
            }
            // Somebody who keeps writing it is answered ever more slowly.
            Ok(()) => {
                if work.put_back_at.replace(now).is_none_or(|before| now - before > PEACE) {
                    work.backoff.reset();
                }
                work.backoff.after_failure(jitter)
            }
            Err(error) => {
                debug!(request = %key, %error, "the mirror was not written");
                work.backoff.after_failure(jitter)
            }
        };
        work.not_before = Some(now + pause);
        let clock = self.parts.clock;
        self.tasks.spawn(async move {
            clock.sleep(pause).await;
            Done::Look(key)
        });
    }
}

fn api(client: Client, key: &PolicyKey) -> Api<DynamicObject> {
    let resource: ApiResource = report::resource(key.kind);
    Api::namespaced_with(client, &key.namespace, &resource)
}

/// Creates the object, or replaces text and marks of the one that is there.
async fn write(
    client: Client,
    key: &PolicyKey,
    found: Option<AnyPolicy>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: Value,
) -> Result<(), kube::Error> {
    let api = api(client, key);
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let Some(found) = found else {
        let resource = report::resource(key.kind);
        let mut object = DynamicObject::new(&key.name, &resource).within(&key.namespace).data(json!({ "spec": spec }));
        object.metadata.labels = Some(labels);
        object.metadata.annotations = Some(annotations);
        return match api.create(&params, &object).await {
            // The watch will show it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other.map(drop),
        };
    };
    let mut object = api.get(&key.name).await?;
    if object.uid().as_deref() != Some(found.uid()) {
        return Ok(());
    }
    object.labels_mut().extend(labels);
    // The author's own marks that a later text leaves out stay: they might be somebody else's.
    object.annotations_mut().extend(annotations);
    object.data["spec"] = spec;
    api.replace(&key.name, &params, &object).await.map(drop)
}

/// The parts that hold a policy's name beside the winner, in words, for the status of their source.
pub(crate) fn holder_in_words(winner: Option<InForce<'_>>, by_hand: bool, of: &PartId) -> Option<String> {
    match winner {
        Some(winner) if by_hand && !winner.adopts() => Some("an object applied by hand".to_owned()),
        Some(winner) if winner.id != of => Some(format!("{} of the source {}", winner.id.part(), winner.id.source)),
        _ => None,
    }
}
