//! Loading YAML documents into the store, as `kubectl apply` would bring them, status included.
//!
//! Refuses to know files; text comes in, objects stand.

use std::sync::Arc;

use serde_json::Value;

use crate::memkube::{call::Call, object, server::Server, status::Failure};

/// Why a document could not be loaded; all before it stand.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not YAML.
    #[error("the text is not YAML: {source}")]
    Syntax {
        /// What the parser says, with the place.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// A document names a kind that is not served.
    #[error("document {document}: no kind {kind:?} in {api_version:?}")]
    UnknownKind {
        /// Counted from 1, empty documents included.
        document: usize,
        /// Its apiVersion.
        api_version: String,
        /// Its kind.
        kind: String,
    },
    /// The server refused a document.
    #[error("document {document}: {failure}")]
    Refused {
        /// Counted from 1, empty documents included.
        document: usize,
        /// What the server says.
        failure: Box<Failure>,
    },
}

/// Loads every document; what exists already is replaced.
pub(crate) fn load(server: &Arc<Server>, yaml: &str, manager: &str) -> Result<usize, Error> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|source| Error::Syntax { source: Box::new(source) })?;
    let filled = documents.into_iter().enumerate().filter(|(_, document)| !document.is_null());
    let mut loaded = 0;
    for (index, document) in filled {
        load_one(server, index + 1, document, manager)?;
        loaded += 1;
    }
    Ok(loaded)
}

fn load_one(server: &Arc<Server>, document: usize, mut sent: Value, manager: &str) -> Result<(), Error> {
    let text = |field: &str| sent.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let mut store = server.store();
    let Some(found) = store.kinds.by_object(&api_version, &kind) else {
        return Err(Error::UnknownKind { document, api_version, kind });
    };
    let namespace = match (found.kind.namespaced, object::meta_str(&sent, "namespace")) {
        (false, _) => String::new(),
        (true, "") => "default".to_owned(),
        (true, namespace) => namespace.to_owned(),
    };
    let has_status = found.kind.status && sent.get("status").is_some();
    let name = object::name(&sent).to_owned();
    let call = Call { served: found, namespace, name, subresource: None, manager: manager.to_owned() };
    let refused = |failure| Error::Refused { document, failure: Box::new(failure) };
    let existing = store.get(&call.served.kind, &call.namespace, &call.name);
    let mut session = server.session(&mut store, false);
    let stored = match existing {
        Some(old) => {
            object::set_meta(&mut sent, "resourceVersion", object::meta(&old, "resourceVersion").cloned());
            session.replace(&call, sent.clone()).map_err(refused)?.0
        }
        None => session.create(&call, sent.clone()).map_err(refused)?,
    };
    if has_status {
        object::set_meta(&mut sent, "resourceVersion", object::meta(&stored, "resourceVersion").cloned());
        let through_status = Call { subresource: Some("status".to_owned()), ..call };
        session.replace(&through_status, sent).map_err(refused)?;
    }
    Ok(())
}
