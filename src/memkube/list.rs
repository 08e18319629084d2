//! Listing: selectors, pages of one consistent version, and the list object.
//!
//! Refuses to know watches.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value, json};

use crate::memkube::{
    kinds::Served,
    object,
    route::{Form, Query},
    selector::Selector,
    status::{Cause, Failure, FieldError},
    store::{Place, Store},
    view,
};

/// What a list or watch asks for.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) served: Served,
    pub(crate) namespace: String,
    pub(crate) selector: Selector,
    pub(crate) form: Form,
}

impl Scope {
    pub(crate) fn new(served: Served, namespace: &str, query: &Query, form: Form) -> Result<Self, Failure> {
        let selector =
            Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), &served.kind.selectable)?;
        Ok(Self { served, namespace: namespace.to_owned(), selector, form })
    }

    /// Whether an object belongs to the answer.
    pub(crate) fn holds(&self, namespace: &str, stored: &Value) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace)
            && (self.selector.is_empty() || self.selector.matches(&self.served.present(stored)))
    }

    /// An object as the answer shows it.
    pub(crate) fn show<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        view::in_form(self.served.present(stored), self.form)
    }
}

/// Answers a list request.
pub(crate) fn list(store: &Store, scope: &Scope, query: &Query) -> Result<Value, Failure> {
    check_options(query)?;
    let from = Start::parse(store, query)?;
    let objects: Vec<(Place, Arc<Value>)> = if from.version == store.version() {
        let all = store.list(&scope.served.kind, &scope.namespace);
        all.map(|(place, object)| (place.clone(), Arc::clone(object))).collect()
    } else {
        store.at_version(&scope.served.kind, from.version)?.into_iter().collect()
    };
    let mut chosen = objects
        .into_iter()
        .filter(|(place, _)| from.after.as_ref().is_none_or(|after| place > after))
        .filter(|(place, object)| scope.holds(&place.0, object));
    let limit = query.number("limit")?.filter(|limit| *limit > 0).map_or(usize::MAX, |limit| limit as usize);
    let page: Vec<(Place, Arc<Value>)> = chosen.by_ref().take(limit).collect();
    let left = chosen.count();
    let mut metadata = json!({"resourceVersion": from.version.to_string()});
    if scope.served.kind.custom && scope.form == Form::Full {
        metadata["continue"] = "".into();
    }
    if let (true, Some((last, _))) = (left > 0, page.last()) {
        metadata["continue"] = continue_token(from.version, last).into();
        if scope.selector.is_empty() {
            metadata["remainingItemCount"] = left.into();
        }
    }
    let items: Vec<Value> = page.iter().map(|(_, object)| item(scope, object)).collect();
    let (api_version, kind) = match scope.form {
        Form::Full => (scope.served.api_version(), format!("{}List", scope.served.kind.kind)),
        Form::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned()),
    };
    Ok(json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}))
}

/// Items of built-in lists carry no type of their own, custom resources do.
fn item(scope: &Scope, stored: &Value) -> Value {
    let shown = scope.show(stored);
    if scope.served.kind.custom || scope.form == Form::Metadata {
        return shown.into_owned();
    }
    let fields =
        shown.as_object().into_iter().flatten().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion"));
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

fn check_options(query: &Query) -> Result<(), Failure> {
    let matching = query.text("resourceVersionMatch");
    let version = query.text("resourceVersion");
    let forbidden = |detail: &str| vec![FieldError::new("resourceVersionMatch", Cause::Forbidden, None, detail)];
    let errors = match (matching, version) {
        ("", _) => Vec::new(),
        (_, "") => forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("Exact", "0") => forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ("Exact" | "NotOlderThan", _) => Vec::new(),
        (other, _) => {
            let detail = "supported values: \"Exact\", \"NotOlderThan\", \"\"";
            vec![FieldError::new("resourceVersionMatch", Cause::NotSupported, Some(other.into()), detail)]
        }
    };
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

/// Where a list begins: at which version, after which place.
struct Start {
    version: u64,
    after: Option<Place>,
}

impl Start {
    fn parse(store: &Store, query: &Query) -> Result<Self, Failure> {
        let asked = query.text("resourceVersion");
        let token = query.text("continue");
        if !token.is_empty() {
            if !matches!(asked, "" | "0") {
                return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
            }
            let (version, after) =
                parse_token(token).ok_or_else(|| Failure::bad_request("continue key is not valid"))?;
            return Ok(Self { version, after: Some(after) });
        }
        let newest = Self { version: store.version(), after: None };
        if matches!(asked, "" | "0") {
            return Ok(newest);
        }
        let version: u64 = asked.parse().map_err(|_| {
            Failure::bad_request(format!(
                "invalid resource version \"{asked}\": strconv.ParseUint: parsing \"{asked}\": invalid syntax"
            ))
        })?;
        if version > store.version() {
            return Err(too_large(version, store.version()));
        }
        let exact = query.text("resourceVersionMatch") == "Exact";
        Ok(if exact { Self { version, after: None } } else { newest })
    }
}

/// A version of the future: the client is ahead of this server.
fn too_large(asked: u64, current: u64) -> Failure {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    Failure::new(504, "Timeout", message).retry_after(1).cause(
        "ResourceVersionTooLarge",
        "Too large resource version",
        None,
    )
}

/// `version.namespace.name`; namespaces have no dots, names may. Opaque to clients.
fn continue_token(version: u64, (namespace, name): &Place) -> String {
    format!("{version}.{namespace}.{name}")
}

fn parse_token(token: &str) -> Option<(u64, Place)> {
    let mut parts = token.splitn(3, '.');
    let version = parts.next()?.parse().ok()?;
    Some((version, (parts.next()?.to_owned(), parts.next()?.to_owned())))
}

/// The names in an answer, for collections that are deleted.
pub(crate) fn chosen_places(store: &Store, scope: &Scope) -> Vec<Place> {
    let all = store.list(&scope.served.kind, &scope.namespace);
    all.filter(|((namespace, _), object)| scope.holds(namespace, object))
        .map(|(_, object)| (object::meta_str(object, "namespace").to_owned(), object::name(object).to_owned()))
        .collect()
}
