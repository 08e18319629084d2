//! Creating and changing objects: what the API server does between decoding and committing.
//!
//! Refuses to know HTTP; one `Session` is one request's hold on the store.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::memkube::{
    Options,
    admission::{AdmissionRequest, Operation},
    call::{Call, Patch},
    crd, guards,
    kinds::Kind,
    managed::Managed,
    metadata, object, schema,
    status::{Cause, Failure, FieldError},
    store::Store,
};

/// Letters of generated name suffixes: no vowels, no look-alikes.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A generated name's base is cut to this, so that the whole has 63 characters.
const GENERATED_BASE: usize = 58;

/// How often the server retries a generated name that is taken.
const NAME_TRIES: usize = 8;

/// One request's exclusive hold on the store.
pub(crate) struct Session<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) options: &'a Options,
    pub(crate) now: DateTime<Utc>,
    /// Everything but the commit.
    pub(crate) dry_run: bool,
}

/// How a write's field ownership is found.
enum Ownership {
    /// By what changes.
    Update,
    /// Already settled by an apply.
    Applied(Managed),
}

impl Session<'_> {
    /// POST to a collection.
    pub(crate) fn create(&mut self, call: &Call, body: Value) -> Result<Arc<Value>, Failure> {
        guards::check_type(call, &body)?;
        self.create_accepted(call, call.served.accept(body), Ownership::Update)
    }

    /// PUT of an object or a subresource; the flag says whether it was created.
    pub(crate) fn replace(&mut self, call: &Call, body: Value) -> Result<(Arc<Value>, bool), Failure> {
        guards::check_type(call, &body)?;
        let body = call.served.accept(body);
        let Some(old) = self.store.get(call.kind(), &call.namespace, &call.name) else {
            if call.kind().creates_on_put && call.subresource.is_none() {
                return Ok((self.create_accepted(call, body, Ownership::Update)?, true));
            }
            return Err(Failure::not_found(call.kind(), &call.name));
        };
        if call.kind().needs_version && object::meta_str(&body, "resourceVersion").is_empty() {
            let detail = "must be specified for an update";
            let error = FieldError::new("metadata.resourceVersion", Cause::Invalid, Some(json!(0)), detail);
            // This one failure names the resource where all others name the kind.
            return Err(Failure::invalid(call.served.group(), &call.kind().plural, &call.name, &[error]));
        }
        let uid = object::uid(&body);
        if !uid.is_empty() && uid != object::uid(&old) {
            return Err(Failure::other_uid(call.kind(), &call.name, uid, object::uid(&old)));
        }
        Ok((self.update(call, &old, body, Ownership::Update)?, false))
    }

    /// PATCH of an object or a subresource; the flag says whether it was created.
    pub(crate) fn patch(&mut self, call: &Call, patch: Patch) -> Result<(Arc<Value>, bool), Failure> {
        let old = self.store.get(call.kind(), &call.namespace, &call.name);
        let (old, patched) = match (old, patch) {
            (old, Patch::Apply { config, force }) => return self.apply(call, old, config, force),
            (None, _) => return Err(Failure::not_found(call.kind(), &call.name)),
            (Some(old), patch) => {
                let patched = patch.on(&call.served.present(&old))?;
                (old, patched)
            }
        };
        guards::check_patched_type(call, &patched)?;
        Ok((self.update(call, &old, call.served.accept(patched), Ownership::Update)?, false))
    }

    fn apply(
        &mut self,
        call: &Call,
        old: Option<Arc<Value>>,
        mut config: Value,
        force: bool,
    ) -> Result<(Arc<Value>, bool), Failure> {
        guards::check_apply(call, &config)?;
        guards::check_type(call, &config)?;
        config = call.served.accept(config);
        schema::drop_nulls(&mut config);
        if let Some(schema) = call.kind().schema(&call.kind().storage) {
            schema::prune(&mut config, schema);
        }
        let live = match &old {
            Some(old) => Value::clone(old),
            None if call.subresource.is_some() => return Err(Failure::not_found(call.kind(), &call.name)),
            None if !object::uid(&config).is_empty() => {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    object::uid(&config)
                );
                return Err(Failure::conflict(call.kind(), &call.name, &why));
            }
            None if object::name(&config).is_empty() => return Err(guards::nameless(&call.name)),
            None => json!({"metadata": {}}),
        };
        let managed = match &old {
            Some(old) => Managed::of(old).or_before_first_apply(old, call.shape(), &call.served.api_version()),
            None => Managed::default(),
        };
        let owner = call.owner(true);
        let applied = managed.apply((&live, &config), call.shape(), owner, call.reach(), force, self.now)?;
        let ownership = Ownership::Applied(applied.managed);
        match old {
            Some(old) => Ok((self.update(call, &old, applied.object, ownership)?, false)),
            None => Ok((self.create_accepted(call, applied.object, ownership)?, true)),
        }
    }

    fn create_accepted(&mut self, call: &Call, mut new: Value, ownership: Ownership) -> Result<Arc<Value>, Failure> {
        let kind = call.kind();
        let mut call = call.clone();
        let wanted = object::name(&new).to_owned();
        guards::check_name(&call, &wanted)?;
        if call.name.is_empty() {
            call.name = wanted;
        }
        if !object::meta_str(&new, "resourceVersion").is_empty() {
            return Err(Failure::new(
                500,
                "InternalError",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        guards::check_namespace(&call, &new)?;
        let namespace = Some(call.namespace.as_str()).filter(|name| !name.is_empty());
        object::set_meta(&mut new, "namespace", namespace.map(Value::from));
        if call.name.is_empty() {
            call.name = self.generate_name(&call, &new)?;
        }
        object::set_meta(&mut new, "name", Some(call.name.as_str().into()));
        self.check_namespace(&call)?;
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            object::set_meta(&mut new, field, None);
        }
        let uid = uuid::Builder::from_random_bytes(self.store.random.u128(..).to_be_bytes()).into_uuid();
        object::set_meta(&mut new, "uid", Some(uid.to_string().into()));
        object::set_meta(&mut new, "creationTimestamp", Some(object::timestamp(self.now)));
        object::set_meta(&mut new, "generation", kind.counts_generation.then(|| 1.into()));
        let requested = Managed::for_update(&Value::Null, &new, false);
        object::drop_empty_meta(&mut new);
        if kind.status {
            object::set_field(&mut new, "status", None);
        }
        complete_builtin(kind, &mut new);
        self.complete(&call, &mut new, None)?;
        let managed = match ownership {
            Ownership::Applied(managed) => managed,
            Ownership::Update => {
                let mut managed = requested;
                object::set_meta(&mut new, "managedFields", None);
                managed.update(
                    (&json!({"metadata": {}}), &new),
                    call.shape(),
                    call.owner(false),
                    call.reach(),
                    self.now,
                );
                managed
            }
        };
        object::set_meta(&mut new, "managedFields", managed.encode());
        if self.store.get(kind, &call.namespace, &call.name).is_some() {
            return Err(Failure::already_exists(kind, &call.name));
        }
        if self.dry_run {
            return Ok(Arc::new(new));
        }
        Ok(self.commit(kind, new))
    }

    fn update(
        &mut self,
        call: &Call,
        old: &Arc<Value>,
        sent: Value,
        ownership: Ownership,
    ) -> Result<Arc<Value>, Failure> {
        let kind = call.kind();
        guards::check_identity(call, old, &sent)?;
        let applied = match ownership {
            Ownership::Applied(managed) => Some(managed),
            Ownership::Update => None,
        };
        let requested = Managed::for_update(old, &sent, call.subresource.is_some());
        let mut new = assemble(call, old, sent);
        keep_system_fields(&mut new, old);
        guards::check_finalizers(call, old, &new)?;
        self.complete(call, &mut new, Some(old))?;
        if kind.counts_generation {
            let counts =
                differs_outside_metadata(old, &new) || (kind.counts_annotations() && differs_in_annotations(old, &new));
            let moved = call.subresource.as_deref() != Some("status") && counts;
            object::set_meta(&mut new, "generation", Some((object::generation(old) + i64::from(moved)).into()));
        }
        object::set_meta(&mut new, "managedFields", None);
        let managed = applied.unwrap_or_else(|| {
            let mut managed = requested;
            if managed != Managed::default() {
                managed.update((old, &new), call.shape(), call.owner(false), call.reach(), self.now);
            }
            managed
        });
        object::set_meta(&mut new, "managedFields", managed.encode());
        if is_unchanged(old, &new, &managed) {
            return Ok(Arc::clone(old));
        }
        if self.dry_run {
            return Ok(Arc::new(new));
        }
        if object::is_deleting(&new) && object::finalizers(&new).is_empty() && !self.holds_content(kind, &new) {
            return Ok(self.remove(kind, new));
        }
        Ok(self.commit(kind, new))
    }

    /// Prunes, defaults and asks admission.
    fn complete(&self, call: &Call, new: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
        let kind = call.kind();
        guards::refuse_if(call, &metadata::check(new, &kind.group))?;
        if let Some(schema) = kind.schema(&kind.storage) {
            schema::prune(new, schema);
            schema::default(new, schema);
        }
        crd::complete(kind, new, self.now).map_err(|errors| call.invalid(&errors))?;
        let Some(admission) = &self.options.admission else { return Ok(()) };
        let mut request = AdmissionRequest {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            group: &kind.group,
            version: &call.served.version,
            kind: &kind.kind,
            schema: kind.schema(&kind.storage),
            subresource: call.subresource.as_deref(),
            object: new,
            old,
        };
        admission(&mut request).map_err(|errors| call.invalid(&errors))
    }

    /// Stores an object and lets what depends on it follow.
    pub(crate) fn commit(&mut self, kind: &Kind, object: Value) -> Arc<Value> {
        let stored = self.store.put(kind, object);
        if crd::is_definition(kind) {
            crd::register(&mut self.store.kinds, &stored);
        }
        stored
    }

    fn generate_name(&mut self, call: &Call, new: &Value) -> Result<String, Failure> {
        let base = object::meta_str(new, "generateName");
        if base.is_empty() {
            let detail = "name or generateName is required";
            return Err(call.invalid(&[FieldError::new("metadata.name", Cause::Required, None, detail)]));
        }
        let base: String = base.chars().take(GENERATED_BASE).collect();
        let mut name = base.clone();
        for _ in 0..NAME_TRIES {
            let letters = (0..5).filter_map(|_| self.store.random.choice(SUFFIX_LETTERS.iter()));
            name = format!("{base}{}", letters.map(|letter| char::from(*letter)).collect::<String>());
            if self.store.get(call.kind(), &call.namespace, &name).is_none() {
                return Ok(name);
            }
        }
        Err(Failure::already_exists(call.kind(), &name).retry_after(1))
    }

    fn check_namespace(&self, call: &Call) -> Result<(), Failure> {
        let kind = call.kind();
        if !kind.namespaced {
            return Ok(());
        }
        let namespaces = self.store.kinds.get("", "namespaces").map(Arc::clone);
        let Some(namespaces) = namespaces else { return Ok(()) };
        match self.store.get(&namespaces, "", &call.namespace) {
            None => Err(Failure::not_found(&namespaces, &call.namespace)),
            Some(namespace) if object::is_deleting(&namespace) => {
                let why = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    call.namespace
                );
                let message = format!("namespace {} is being terminated", call.namespace);
                let failure = Failure::forbidden(kind, &call.name, &why);
                Err(failure.cause("NamespaceTerminating", &message, Some("metadata.namespace")))
            }
            Some(_) => Ok(()),
        }
    }
}

/// What of a write through this address reaches the object.
fn assemble(call: &Call, old: &Value, mut sent: Value) -> Value {
    if call.subresource.as_deref() != Some("status") {
        if call.kind().status {
            object::set_field(&mut sent, "status", old.get("status").cloned());
        }
        return sent;
    }
    let mut new = old.clone();
    let status = sent.get_mut("status").map(Value::take).filter(|status| !status.is_null());
    object::set_field(&mut new, "status", status);
    // Pods take labels, annotations and finalizers through /status too, other kinds do not.
    if call.kind().is_pod() {
        object::set_field(&mut new, "metadata", sent.get_mut("metadata").map(Value::take));
    }
    new
}

/// Puts back what no client may change.
fn keep_system_fields(new: &mut Value, old: &Value) {
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "selfLink",
    ] {
        object::set_meta(new, field, object::meta(old, field).cloned());
    }
    object::drop_empty_meta(new);
}

fn is_unchanged(old: &Value, new: &Value, managed: &Managed) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        object::set_meta(&mut object, "managedFields", None);
        object
    };
    Managed::of(old).same_but_for_times(managed) && bare(old) == bare(new)
}

fn differs_outside_metadata(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        map
    };
    rest(old) != rest(new)
}

fn differs_in_annotations(old: &Value, new: &Value) -> bool {
    object::meta(old, "annotations") != object::meta(new, "annotations")
}

/// What the strategies of built-in kinds add on create.
fn complete_builtin(kind: &Kind, new: &mut Value) {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => {
            let name = object::name(new).to_owned();
            object::meta_map(new, "labels").insert("kubernetes.io/metadata.name".to_owned(), name.into());
            object::map_at(new, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
            object::set_field(new, "status", Some(json!({"phase": "Active"})));
        }
        ("", "pods") => object::set_field(new, "status", Some(json!({"phase": "Pending"}))),
        _ => {}
    }
}
