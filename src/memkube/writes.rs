//! Creating and changing objects: what the API server does between decoding and committing.
//!
//! Refuses to know HTTP; one `Session` is one request's hold on the store.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::memkube::{
    Options,
    admission::{AdmissionRequest, Operation},
    crd,
    kinds::{Kind, Served},
    managed::{Managed, Owner, Reach},
    metadata, object, patch, schema,
    shape::Shape,
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

/// Whom and what a write addresses.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) served: Served,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: Option<String>,
    pub(crate) manager: String,
}

/// A patch with its media type settled.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Apply { config: Value, force: bool },
}

/// How a write's field ownership is found.
enum Ownership {
    /// By what changes.
    Update,
    /// Already settled by an apply.
    Applied(Managed),
}

impl Call {
    fn kind(&self) -> &Kind {
        &self.served.kind
    }

    fn shape(&self) -> Shape<'_> {
        match (self.kind().custom, self.kind().schema(&self.kind().storage)) {
            (true, schema) => Shape::Custom(schema),
            (false, _) => Shape::Builtin { parent: "", field: "" },
        }
    }

    fn reach(&self) -> Reach {
        match (self.subresource.as_deref(), self.kind().status) {
            (Some("status"), _) => Reach::StatusOnly,
            (_, true) => Reach::AllButStatus,
            (_, false) => Reach::Whole,
        }
    }

    fn owner(&self, applies: bool) -> Owner {
        Owner {
            applies,
            manager: self.manager.clone(),
            api_version: self.served.api_version(),
            subresource: self.subresource.clone().unwrap_or_default(),
        }
    }

    fn invalid(&self, errors: &[FieldError]) -> Failure {
        Failure::invalid(self.served.group(), &self.kind().kind, &self.name, errors)
    }
}

impl Session<'_> {
    /// POST to a collection.
    pub(crate) fn create(&mut self, call: &Call, body: Value) -> Result<Arc<Value>, Failure> {
        check_type(call, &body)?;
        self.create_accepted(call, call.served.accept(body), Ownership::Update)
    }

    /// PUT of an object or a subresource; the flag says whether it was created.
    pub(crate) fn replace(&mut self, call: &Call, body: Value) -> Result<(Arc<Value>, bool), Failure> {
        check_type(call, &body)?;
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
            (Some(old), Patch::Json(operations)) => {
                let patched = patch::json(&call.served.present(&old), &operations)?;
                (old, patched)
            }
            (Some(old), Patch::Merge(changes)) => {
                let patched = patch::merge(&call.served.present(&old), &changes)?;
                (old, patched)
            }
        };
        check_patched_type(call, &patched)?;
        Ok((self.update(call, &old, call.served.accept(patched), Ownership::Update)?, false))
    }

    fn apply(
        &mut self,
        call: &Call,
        old: Option<Arc<Value>>,
        mut config: Value,
        force: bool,
    ) -> Result<(Arc<Value>, bool), Failure> {
        check_apply(call, &config)?;
        check_type(call, &config)?;
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
            None if object::name(&config).is_empty() => return Err(nameless(&call.name)),
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
        if !call.name.is_empty() && !wanted.is_empty() && wanted != call.name {
            return Err(name_mismatch(&wanted, &call.name));
        }
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
        place_in_namespace(&call, &mut new)?;
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
        check_identity(call, old, &sent)?;
        let applied = match ownership {
            Ownership::Applied(managed) => Some(managed),
            Ownership::Update => None,
        };
        let requested = Managed::for_update(old, &sent, call.subresource.is_some());
        let mut new = assemble(call, old, sent);
        keep_system_fields(&mut new, old);
        check_finalizers(call, old, &new)?;
        self.complete(call, &mut new, Some(old))?;
        if kind.counts_generation {
            let moved = call.subresource.as_deref() != Some("status") && differs_outside_metadata(old, &new);
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
        refuse_if(call, &metadata::check(new, &kind.group))?;
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
    if call.kind().plural == "pods" && call.kind().group.is_empty() {
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

fn check_type(call: &Call, body: &Value) -> Result<(), Failure> {
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
fn check_patched_type(call: &Call, patched: &Value) -> Result<(), Failure> {
    let wanted = [("kind", call.kind().kind.clone()), ("apiVersion", call.served.api_version())];
    let errors = wanted.into_iter().filter_map(|(field, wanted)| {
        let value = patched.get(field).and_then(Value::as_str).unwrap_or_default();
        (value != wanted)
            .then(|| FieldError::new(field, Cause::Invalid, Some(value.into()), format!("must be {wanted}")))
    });
    refuse_if(call, &errors.collect::<Vec<_>>())
}

fn check_apply(call: &Call, config: &Value) -> Result<(), Failure> {
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

fn refuse_if(call: &Call, errors: &[FieldError]) -> Result<(), Failure> {
    if errors.is_empty() { Ok(()) } else { Err(call.invalid(errors)) }
}

fn nameless(addressed: &str) -> Failure {
    let why = "was undeterminable: name must be provided";
    Failure::bad_request(format!("the name of the object ({addressed} based on URL) {why}"))
}

fn name_mismatch(sent: &str, addressed: &str) -> Failure {
    Failure::bad_request(format!("the name of the object ({sent}) does not match the name on the URL ({addressed})"))
}

/// Names, uid and version of what was sent agree with what stands.
fn check_identity(call: &Call, old: &Value, sent: &Value) -> Result<(), Failure> {
    let kind = call.kind();
    match object::name(sent) {
        "" => return Err(nameless(&call.name)),
        name if name != call.name => return Err(name_mismatch(name, &call.name)),
        _ => {}
    }
    let namespace = object::meta_str(sent, "namespace");
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(namespace_mismatch());
    }
    refuse_if(call, &metadata::check_unchanged(sent, old))?;
    let version = object::meta_str(sent, "resourceVersion");
    if !version.is_empty() && version != "0" && version != object::meta_str(old, "resourceVersion") {
        return Err(Failure::modified(kind, &call.name));
    }
    Ok(())
}

fn namespace_mismatch() -> Failure {
    Failure::bad_request("the namespace of the provided object does not match the namespace sent on the request")
}

fn place_in_namespace(call: &Call, new: &mut Value) -> Result<(), Failure> {
    let sent = object::meta_str(new, "namespace");
    if !sent.is_empty() && sent != call.namespace {
        return Err(namespace_mismatch());
    }
    let namespace = Some(call.namespace.as_str()).filter(|name| !name.is_empty());
    object::set_meta(new, "namespace", namespace.map(Value::from));
    Ok(())
}

fn check_finalizers(call: &Call, old: &Value, new: &Value) -> Result<(), Failure> {
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
