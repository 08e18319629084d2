//! One request from decoded to answered: routing by kind and verb onto the store.
//!
//! Refuses to know transport; `service` makes HTTP of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Method, header, request::Parts};
use serde_json::{Value, json};

use crate::memkube::{
    Options,
    call::{Call, Patch},
    delete::{DeleteOptions, Deleted},
    discovery,
    kinds::{Kind, Served},
    list::{self, Scope},
    meter::{Access, Counts, Verb},
    object,
    route::{Form, Query, Route, Target},
    scale,
    status::{Cause, Failure, FieldError},
    store::Store,
    view,
    watch::Watch,
    writes::Session,
};

/// Media types of patches that are offered.
const PATCH_TYPES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// A field manager's name is cut to this.
const MAX_MANAGER: usize = 128;

/// The state that all services of one memkube share.
pub(crate) struct Server {
    pub(crate) options: Options,
    store: Mutex<Store>,
    counts: Mutex<Counts>,
}

/// An answer before it is HTTP.
pub(crate) enum Reply {
    Json(u16, Value),
    Text(&'static str),
    Stream(Box<Watch>),
}

/// A request that addresses objects, with everything but the body settled.
struct Request<'a> {
    served: Served,
    target: Target,
    query: Query,
    form: Form,
    parts: &'a Parts,
    client: &'a str,
}

impl Server {
    pub(crate) fn new(options: Options, store: Store) -> Self {
        Self { options, store: Mutex::new(store), counts: Mutex::default() }
    }

    /// A panic elsewhere leaves the store whole: each change to it is one call.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A hold on the store for one write.
    pub(crate) fn session<'a>(&'a self, store: &'a mut Store, dry_run: bool) -> Session<'a> {
        Session { store, options: &self.options, now: self.options.clock.now(), dry_run }
    }

    /// Answers one request.
    pub(crate) fn answer(self: &Arc<Self>, client: &str, parts: &Parts, body: &Bytes) -> Result<Reply, Failure> {
        let document =
            |document: Option<Value>| document.map(|json| Reply::Json(200, json)).ok_or_else(Failure::unknown_path);
        match Route::parse(parts.uri.path()) {
            Route::Version => document(Some(discovery::version())),
            Route::Health => Ok(Reply::Text("ok")),
            Route::CoreVersions => document(Some(discovery::core_versions())),
            Route::Groups => document(Some(discovery::groups(&self.store().kinds))),
            Route::Group(name) => document(discovery::group(&self.store().kinds, &name)),
            Route::Resources { group, version } => {
                document(discovery::resources(&self.store().kinds, &group, &version))
            }
            Route::Objects(target) => self.objects(client, parts, body, target),
            Route::Unknown => Err(Failure::unknown_path()),
        }
    }

    fn objects(self: &Arc<Self>, client: &str, parts: &Parts, body: &Bytes, target: Target) -> Result<Reply, Failure> {
        let served = self.store().kinds.serve(&target.group, &target.version, &target.plural);
        let served = served.filter(|served| is_addressable(&served.kind, &target)).ok_or_else(Failure::unknown_path)?;
        let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let query = Query::parse(parts.uri.query());
        let request = Request { served, target, query, form: Form::accepted(accept)?, parts, client };
        self.count(&request);
        match (&parts.method, &request.target.name) {
            (&Method::GET, None) => self.collection(&request),
            (&Method::GET, Some(name)) if request.query.flag("watch") => self.watch_one(&request, name),
            (&Method::GET, Some(name)) => self.get(&request, name),
            (&Method::POST, None) => self.create(&request, body),
            (&Method::PUT, Some(_)) => self.replace(&request, body),
            (&Method::PATCH, Some(_)) => self.patch(&request, body),
            (&Method::DELETE, Some(_)) if request.target.subresource.is_none() => self.delete(&request, body),
            (&Method::DELETE, None) => self.delete_collection(&request, body),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn count(&self, request: &Request<'_>) {
        let Some(verb) = verb_of(request) else { return };
        let subresource = request.target.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        let resource = format!("{}{subresource}", request.served.kind.resource());
        let access = Access { client: request.client.to_owned(), verb, resource };
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).add(access);
    }

    fn collection(self: &Arc<Self>, request: &Request<'_>) -> Result<Reply, Failure> {
        let scope = request.scope()?;
        let store = self.store();
        if request.query.flag("watch") {
            return Ok(Reply::Stream(Box::new(Watch::open(self, &store, scope, &request.query)?)));
        }
        Ok(Reply::Json(200, list::list(&store, &scope, &request.query)?))
    }

    /// The old way to watch one object, kept by the real server.
    fn watch_one(self: &Arc<Self>, request: &Request<'_>, name: &str) -> Result<Reply, Failure> {
        let query = request.query.with("fieldSelector", &format!("metadata.name={name}"));
        let scope = Scope::new(request.served.clone(), &request.target.namespace, &query, request.form)?;
        let store = self.store();
        Ok(Reply::Stream(Box::new(Watch::open(self, &store, scope, &query)?)))
    }

    fn get(&self, request: &Request<'_>, name: &str) -> Result<Reply, Failure> {
        let kind = &request.served.kind;
        let stored = self.store().get(kind, &request.target.namespace, name);
        let stored = stored.ok_or_else(|| Failure::not_found(kind, name))?;
        Ok(request.reply(200, &stored))
    }

    fn create(&self, request: &Request<'_>, body: &Bytes) -> Result<Reply, Failure> {
        let body = parse_json(body)?;
        let dry_run = request.query.dry_run("CreateOptions")?;
        let call = request.call();
        let mut store = self.store();
        let created = self.session(&mut store, dry_run).create(&call, body)?;
        Ok(request.reply(201, &created))
    }

    fn replace(&self, request: &Request<'_>, body: &Bytes) -> Result<Reply, Failure> {
        let body = parse_json(body)?;
        let dry_run = request.query.dry_run("UpdateOptions")?;
        let call = request.call();
        let mut store = self.store();
        let body = match &request.scale() {
            Some(scale) => scale::lay_over(scale, &request.presented(&store, &call)?, &body),
            None => body,
        };
        let (stored, created) = self.session(&mut store, dry_run).replace(&call, body)?;
        Ok(request.reply(if created { 201 } else { 200 }, &stored))
    }

    fn patch(&self, request: &Request<'_>, body: &Bytes) -> Result<Reply, Failure> {
        let patch = parse_patch(request, body)?;
        let dry_run = request.query.dry_run("PatchOptions")?;
        let call = request.call();
        let mut store = self.store();
        if let Some(scale) = &request.scale() {
            let shown = request.presented(&store, &call)?;
            let patched = patch.on(&scale::of(scale, &shown))?;
            let body = scale::lay_over(scale, &shown, &patched);
            return Ok(request.reply(200, &self.session(&mut store, dry_run).replace(&call, body)?.0));
        }
        let (stored, created) = self.session(&mut store, dry_run).patch(&call, patch)?;
        Ok(request.reply(if created { 201 } else { 200 }, &stored))
    }

    fn delete(&self, request: &Request<'_>, body: &Bytes) -> Result<Reply, Failure> {
        let options = delete_options(request, body)?;
        let dry_run = request.query.dry_run("DeleteOptions")?;
        let call = request.call();
        let mut store = self.store();
        let kind = &request.served.kind;
        Ok(match self.session(&mut store, dry_run).delete(&call, &options)? {
            Deleted::Waiting(left) => request.reply(200, &left),
            Deleted::Gone(last) if returns_deleted(kind) => request.reply(200, &last),
            Deleted::Gone(last) => {
                let mut details = json!({"name": call.name, "kind": kind.plural, "uid": object::uid(&last)});
                if !request.served.group().is_empty() {
                    details["group"] = request.served.group().into();
                }
                Reply::Json(
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
                )
            }
        })
    }

    fn delete_collection(&self, request: &Request<'_>, body: &Bytes) -> Result<Reply, Failure> {
        let options = delete_options(request, body)?;
        let dry_run = request.query.dry_run("DeleteOptions")?;
        let scope = request.scope()?;
        let mut store = self.store();
        let answer = list::list(&store, &scope, &Query::default())?;
        for (namespace, name) in list::chosen_places(&store, &scope) {
            let call = Call { namespace, name, ..request.call() };
            match self.session(&mut store, dry_run).delete(&call, &options) {
                // Gone with an owner that was deleted a moment ago.
                Err(failure) if failure.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(Reply::Json(200, answer))
    }
}

impl Request<'_> {
    fn scope(&self) -> Result<Scope, Failure> {
        Scope::new(self.served.clone(), &self.target.namespace, &self.query, self.form)
    }

    fn call(&self) -> Call {
        Call {
            served: self.served.clone(),
            namespace: self.target.namespace.clone(),
            name: self.target.name.clone().unwrap_or_default(),
            subresource: self.target.subresource.clone(),
            manager: self.manager(),
        }
    }

    /// Who owns what this request sets: the named field manager, else the client by its User-Agent.
    fn manager(&self) -> String {
        let named = self.query.text("fieldManager");
        let agent =
            self.parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or(self.client);
        let manager = if named.is_empty() { agent.split('/').next().unwrap_or_default() } else { named };
        manager.chars().take(MAX_MANAGER).collect()
    }

    fn scale(&self) -> Option<crate::memkube::kinds::Scale> {
        self.served.kind.scale.clone().filter(|_| self.target.subresource.as_deref() == Some("scale"))
    }

    /// The addressed object as this address shows it.
    fn presented(&self, store: &Store, call: &Call) -> Result<Value, Failure> {
        let stored = store.get(&self.served.kind, &call.namespace, &call.name);
        let stored = stored.ok_or_else(|| Failure::not_found(&self.served.kind, &call.name))?;
        Ok(self.served.present(&stored).into_owned())
    }

    fn reply(&self, code: u16, stored: &Value) -> Reply {
        let shown = match self.scale() {
            Some(scale) => scale::of(&scale, stored),
            None => view::in_form(self.served.present(stored), self.form).into_owned(),
        };
        Reply::Json(code, shown)
    }
}

/// Whether the kind has what is addressed: a scope of that kind, the subresource.
fn is_addressable(kind: &Kind, target: &Target) -> bool {
    let scope_fits = match (kind.namespaced, target.namespace.is_empty(), &target.name) {
        (true, false, _) | (false, true, _) => true,
        // All namespaces can be listed together, single objects cannot be found so.
        (true, true, name) => name.is_none(),
        (false, false, _) => false,
    };
    let subresource_exists = match target.subresource.as_deref() {
        None => true,
        Some("status") => kind.status,
        Some("scale") => kind.scale.is_some(),
        Some(_) => false,
    };
    scope_fits && subresource_exists
}

fn verb_of(request: &Request<'_>) -> Option<Verb> {
    let watches = request.query.flag("watch");
    match (&request.parts.method, request.target.name.is_some()) {
        (&Method::GET, _) if watches => Some(Verb::Watch),
        (&Method::GET, true) => Some(Verb::Get),
        (&Method::GET, false) => Some(Verb::List),
        (&Method::POST, false) => Some(Verb::Create),
        (&Method::PUT, true) => Some(Verb::Update),
        (&Method::PATCH, true) => Some(Verb::Patch),
        (&Method::DELETE, true) => Some(Verb::Delete),
        (&Method::DELETE, false) => Some(Verb::DeleteCollection),
        _ => None,
    }
}

/// Kinds whose strategies answer a deletion with the object instead of a Status.
fn returns_deleted(kind: &Kind) -> bool {
    kind.group.is_empty() && matches!(kind.plural.as_str(), "pods" | "services" | "serviceaccounts")
}

fn delete_options(request: &Request<'_>, body: &Bytes) -> Result<DeleteOptions, Failure> {
    let body = if body.is_empty() { None } else { Some(parse_json(body)?) };
    DeleteOptions::parse(body.as_ref(), request.query.text("propagationPolicy"))
}

fn parse_patch(request: &Request<'_>, body: &Bytes) -> Result<Patch, Failure> {
    let content = request.parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    match content.unwrap_or_default().split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(Patch::Json(parse_json(body)?)),
        "application/merge-patch+json" => Ok(Patch::Merge(parse_json(body)?)),
        "application/apply-patch+yaml" => {
            if request.query.text("fieldManager").is_empty() {
                let error = FieldError::new("fieldManager", Cause::Required, None, "is required for apply patch");
                return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
            }
            Ok(Patch::Apply { config: parse_yaml(body)?, force: request.query.flag("force") })
        }
        _ => Err(Failure::unsupported_media_type(PATCH_TYPES)),
    }
}

fn parse_json(body: &Bytes) -> Result<Value, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("couldn't get version/kind; json parse error: {error}")))
}

/// Apply patches are YAML by media type and JSON in practice.
fn parse_yaml(body: &Bytes) -> Result<Value, Failure> {
    serde_json::from_slice(body).or_else(|_| {
        let text = std::str::from_utf8(body).map_err(|error| Failure::bad_request(error.to_string()))?;
        serde_saphyr::from_str(text).map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))
    })
}
