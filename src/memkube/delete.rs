//! Deleting: preconditions, finalizers, and what goes with an object (dependants, a namespace's content, instances).
//!
//! Refuses to know HTTP. Garbage is collected within the deleting request, so that a test never waits for it; where the
//! real server's collector is a controller of its own, this is one of its legal timings.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::memkube::{call::Call, crd, kinds::Kind, object, status::Failure, writes::Session};

const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
const ORPHAN_FINALIZER: &str = "orphan";

/// What becomes of dependants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

/// DeleteOptions, from body or query.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) propagation: Propagation,
}

impl DeleteOptions {
    /// Reads the options of a body, which may be absent, over those of the query.
    pub(crate) fn parse(body: Option<&Value>, policy_in_query: &str) -> Result<Self, Failure> {
        let text = |path: &str| body.and_then(|body| object::at_path(body, path)).and_then(Value::as_str);
        let policy = text("propagationPolicy").unwrap_or(policy_in_query);
        let propagation = match policy {
            "" | "Background" => Propagation::Background,
            "Foreground" => Propagation::Foreground,
            "Orphan" => Propagation::Orphan,
            other => return Err(Failure::bad_request(format!("unknown propagationPolicy {other:?}"))),
        };
        Ok(Self {
            uid: text("preconditions.uid").map(str::to_owned),
            version: text("preconditions.resourceVersion").map(str::to_owned),
            propagation,
        })
    }
}

/// What a deletion came to.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is gone.
    Gone(Arc<Value>),
    /// It waits for its finalizers.
    Waiting(Arc<Value>),
}

impl Session<'_> {
    /// DELETE of one object.
    pub(crate) fn delete(&mut self, call: &Call, options: &DeleteOptions) -> Result<Deleted, Failure> {
        let kind = Arc::clone(&call.served.kind);
        let Some(old) = self.store.get(&kind, &call.namespace, &call.name) else {
            return Err(Failure::not_found(&kind, &call.name));
        };
        check_preconditions(&kind, &call.name, &old, options)?;
        if self.dry_run {
            return Ok(Deleted::Gone(old));
        }
        Ok(self.delete_object(&kind, &old, options.propagation))
    }

    fn delete_object(&mut self, kind: &Kind, old: &Arc<Value>, propagation: Propagation) -> Deleted {
        let mut finalizers: Vec<String> = object::finalizers(old).into_iter().map(str::to_owned).collect();
        let own = self.own_finalizer(kind, old, propagation);
        finalizers.extend(own.map(str::to_owned).filter(|one| !object::finalizers(old).contains(&one.as_str())));
        if finalizers.is_empty() && !self.holds_content(kind, old) {
            let mut last = Value::clone(old);
            // Pods are deleted gracefully, with a grace of nothing where no kubelet runs them.
            if kind.is_pod() {
                self.stamp(&mut last);
            }
            return Deleted::Gone(self.remove(kind, last));
        }
        let marked = if object::is_deleting(old) && finalizers.len() == object::finalizers(old).len() {
            Arc::clone(old)
        } else {
            self.mark(kind, old, &finalizers)
        };
        self.clear_content(kind, &marked, propagation);
        match self.store.get(kind, object::meta_str(old, "namespace"), object::name(old)) {
            Some(left) => Deleted::Waiting(left),
            None => Deleted::Gone(marked),
        }
    }

    /// The finalizer that the server itself puts on an object whose content or dependants must go first.
    fn own_finalizer(&self, kind: &Kind, old: &Value, propagation: Propagation) -> Option<&'static str> {
        if crd::is_definition(kind) && self.has_instances(old) {
            return Some(crd::CLEANUP_FINALIZER);
        }
        let collects = self.options.garbage_collection;
        match propagation {
            Propagation::Foreground if collects && self.has_dependants(object::uid(old)) => Some(FOREGROUND_FINALIZER),
            Propagation::Orphan if collects && self.has_dependants(object::uid(old)) => Some(ORPHAN_FINALIZER),
            _ => None,
        }
    }

    fn mark(&mut self, kind: &Kind, old: &Value, finalizers: &[String]) -> Arc<Value> {
        let mut marked = old.clone();
        self.stamp(&mut marked);
        object::set_meta(&mut marked, "finalizers", Some(json!(finalizers)).filter(|_| !finalizers.is_empty()));
        if is_namespace(kind) {
            object::set_path(&mut marked, "status.phase", "Terminating".into());
        }
        self.commit(kind, marked)
    }

    /// The marks of a deletion that has begun; a second one changes nothing.
    fn stamp(&self, object: &mut Value) {
        if object::is_deleting(object) {
            return;
        }
        object::set_meta(object, "deletionTimestamp", Some(object::timestamp(self.now)));
        object::set_meta(object, "deletionGracePeriodSeconds", Some(0.into()));
        let generation = object::generation(object);
        if generation > 0 {
            object::set_meta(object, "generation", Some((generation + 1).into()));
        }
    }

    /// Deletes what must go before a marked object can.
    fn clear_content(&mut self, kind: &Kind, marked: &Value, propagation: Propagation) {
        if is_namespace(kind) {
            let inside = |object: &Value| object::meta_str(object, "namespace") == object::name(marked);
            let content = self.select(inside);
            self.delete_all(content);
            self.finish_namespace(object::name(marked));
        } else if crd::is_definition(kind) {
            let instances = crd::kind_of(marked);
            let of_kind = |object: &Value| instances.as_ref().is_some_and(|kind| is_instance(object, kind));
            let content = self.select(of_kind);
            self.delete_all(content);
            self.finish_definition(object::name(marked));
        } else if propagation == Propagation::Foreground {
            let uid = object::uid(marked).to_owned();
            let dependants = self.store.dependants(&uid);
            self.delete_all(dependants);
            self.finish_foreground(&uid);
        } else if propagation == Propagation::Orphan {
            self.orphan_dependants(object::uid(marked));
            self.drop_finalizer(kind, marked, ORPHAN_FINALIZER);
        }
    }

    /// Removes an object for good and lets what hung on it follow.
    pub(crate) fn remove(&mut self, kind: &Kind, last: Value) -> Arc<Value> {
        let gone = self.store.remove(kind, last);
        if crd::is_definition(kind)
            && let Some(served) = crd::kind_of(&gone)
        {
            self.store.kinds.remove(&served.group, &served.plural);
        }
        if self.options.garbage_collection {
            self.collect_garbage(object::uid(&gone));
            let owners: Vec<String> = object::owner_uids(&gone).map(str::to_owned).collect();
            for uid in &owners {
                self.finish_foreground(uid);
            }
        }
        self.finish_namespace(object::meta_str(&gone, "namespace"));
        self.finish_definition(&kind.resource());
        gone
    }

    /// Whether objects stand that must go first.
    pub(crate) fn holds_content(&self, kind: &Kind, object: &Value) -> bool {
        if is_namespace(kind) {
            return self.store.everything().any(|(_, (namespace, _), _)| namespace == object::name(object));
        }
        crd::is_definition(kind) && self.has_instances(object)
    }

    fn has_instances(&self, definition: &Value) -> bool {
        crd::kind_of(definition).is_some_and(|kind| self.store.list(&kind, "").next().is_some())
    }

    fn has_dependants(&self, uid: &str) -> bool {
        !self.store.dependants(uid).is_empty()
    }

    fn delete_all(&mut self, chosen: Vec<(Arc<Kind>, Arc<Value>)>) {
        for (kind, object) in chosen {
            // An earlier deletion may have taken it along.
            let place = (object::meta_str(&object, "namespace"), object::name(&object));
            if let Some(current) = self.store.get(&kind, place.0, place.1) {
                self.delete_object(&kind, &current, Propagation::Background);
            }
        }
    }

    fn select(&self, chosen: impl Fn(&Value) -> bool) -> Vec<(Arc<Kind>, Arc<Value>)> {
        let all = self.store.everything().filter(|(_, _, object)| chosen(object));
        all.filter_map(|((group, plural), _, object)| {
            Some((Arc::clone(self.store.kinds.get(group, plural)?), Arc::clone(object)))
        })
        .collect()
    }

    /// Deletes the dependants of a gone owner that have no owner left.
    fn collect_garbage(&mut self, gone: &str) {
        for (kind, object) in self.store.dependants(gone) {
            let has_owner = object::owner_uids(&object).any(|uid| self.store.by_uid(uid).is_some());
            if !has_owner && !object::is_deleting(&object) {
                self.delete_object(&kind, &object, Propagation::Background);
            }
        }
    }

    fn orphan_dependants(&mut self, uid: &str) {
        for (kind, object) in self.store.dependants(uid) {
            let mut freed = Value::clone(&object);
            let left: Vec<Value> = object::owners(&object).filter(|owner| owner["uid"] != uid).cloned().collect();
            object::set_meta(&mut freed, "ownerReferences", Some(Value::Array(left)));
            object::drop_empty_meta(&mut freed);
            self.commit(&kind, freed);
        }
    }

    fn finish_foreground(&mut self, uid: &str) {
        let Some((kind, owner)) = self.store.by_uid(uid) else { return };
        if object::finalizers(&owner).contains(&FOREGROUND_FINALIZER) && !self.has_dependants(uid) {
            self.drop_finalizer(&kind, &owner, FOREGROUND_FINALIZER);
        }
    }

    fn drop_finalizer(&mut self, kind: &Kind, object: &Value, finalizer: &str) {
        let mut freed = object.clone();
        let left: Vec<&str> = object::finalizers(object).into_iter().filter(|one| *one != finalizer).collect();
        let left = Some(json!(left)).filter(|_| !left.is_empty());
        let goes = left.is_none();
        object::set_meta(&mut freed, "finalizers", left);
        if goes {
            self.remove(kind, freed);
        } else {
            self.commit(kind, freed);
        }
    }

    fn finish_namespace(&mut self, name: &str) {
        let Some(kind) = self.store.kinds.get("", "namespaces").map(Arc::clone) else { return };
        let Some(namespace) = self.store.get(&kind, "", name) else { return };
        if object::is_deleting(&namespace)
            && object::finalizers(&namespace).is_empty()
            && !self.holds_content(&kind, &namespace)
        {
            let mut last = Value::clone(&namespace);
            object::set_path(&mut last, "spec.finalizers", json!([]));
            self.remove(&kind, last);
        }
    }

    fn finish_definition(&mut self, name: &str) {
        let Some(kind) = self.store.kinds.get("apiextensions.k8s.io", "customresourcedefinitions").map(Arc::clone)
        else {
            return;
        };
        let Some(definition) = self.store.get(&kind, "", name) else { return };
        let waits =
            object::is_deleting(&definition) && object::finalizers(&definition).contains(&crd::CLEANUP_FINALIZER);
        if waits && !self.has_instances(&definition) {
            self.drop_finalizer(&kind, &definition, crd::CLEANUP_FINALIZER);
        }
    }
}

fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

fn is_instance(object: &Value, kind: &Kind) -> bool {
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    group == kind.group && object.get("kind").and_then(Value::as_str) == Some(&kind.kind)
}

fn check_preconditions(kind: &Kind, name: &str, old: &Value, options: &DeleteOptions) -> Result<(), Failure> {
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != object::uid(old)) {
        return Err(Failure::other_uid(kind, name, uid, object::uid(old)));
    }
    let current = object::meta_str(old, "resourceVersion");
    if let Some(version) = options.version.as_deref().filter(|version| *version != current) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {current}"
        );
        return Err(Failure::conflict(kind, name, &why));
    }
    Ok(())
}
