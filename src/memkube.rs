//! A small Kubernetes API in memory, for the demo and the tests.
//!
//! It answers what kube-rs controllers ask, the way the real API server does: `tests/it/contract` runs one suite against
//! both. It stands below `kube::Client` as a tower service, so the code above it is the code of production. It knows nothing
//! of TradeGuard: kinds come from CustomResourceDefinitions or are registered, validation comes in as a hook.
//!
//! Reading order: `route` takes a request apart, `server` finds kind and verb, `writes` and `delete` change the `store`
//! under one mutex, `list` and `watch` read it, `service` makes HTTP of the answers.

use std::{fmt, sync::Arc};

use serde_json::{Value, json};

pub use admission::{Admission, AdmissionRequest, Operation};
pub use kinds::{Kind, Scale};
pub use meter::{Access, Counts, Verb};
pub use seed::Error as SeedError;
pub use serve::Listener;
pub use service::{Body, MemKubeService};
pub use status::{Cause, Failure, FieldError};

use crate::clock::Clock;
use call::Call;
use server::Server;
use store::Store;

mod admission;
mod call;
mod crd;
mod delete;
mod discovery;
pub mod fault;
mod fields;
mod guards;
mod kinds;
mod list;
mod managed;
mod metadata;
mod meter;
mod object;
mod patch;
mod route;
mod scale;
mod schema;
mod seed;
mod selector;
mod serve;
mod server;
mod service;
mod shape;
mod status;
mod store;
mod view;
mod watch;
mod writes;

/// What a memkube is made with.
#[derive(Clone)]
pub struct Options {
    /// The wall time of timestamps; also where resource versions begin, so that they never go backwards over a restart.
    pub clock: Clock,
    /// Where uids and generated names come from.
    pub seed: u64,
    /// How many changes are kept for watches; a watch from before them ends with 410.
    pub history: usize,
    /// Validation and defaults of the caller's.
    pub admission: Option<Admission>,
    /// Whether dependants go with their owners, as under a controller manager.
    pub garbage_collection: bool,
}

impl Options {
    /// Ten thousand changes of history, garbage collection, no admission.
    pub fn new(clock: Clock) -> Self {
        Self { clock, seed: 0, history: 10_000, admission: None, garbage_collection: true }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("seed", &self.seed).field("history", &self.history).finish_non_exhaustive()
    }
}

/// A Kubernetes API in memory; clones share it.
#[derive(Clone)]
pub struct MemKube {
    server: Arc<Server>,
}

impl fmt::Debug for MemKube {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemKube").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl MemKube {
    /// An empty API with the built-in kinds and the namespaces `default` and `kube-system`.
    pub fn new(options: Options) -> Self {
        let start = u64::try_from(options.clock.now().timestamp_millis()).unwrap_or_default() << 10;
        let store = Store::new(start, options.seed, options.history);
        let memkube = Self { server: Arc::new(Server::new(options, store)) };
        for name in ["default", "kube-system"] {
            memkube.add_namespace(name);
        }
        memkube
    }

    /// Makes a namespace; one that exists stays as it is.
    pub fn add_namespace(&self, name: &str) {
        let mut store = self.server.store();
        let served = store.kinds.serve("", "v1", "namespaces").expect("namespaces are a built-in kind");
        let call = Call {
            served,
            namespace: String::new(),
            name: name.to_owned(),
            subresource: None,
            manager: "memkube".to_owned(),
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        // The only failure is that it exists.
        let _ = self.server.session(&mut store, false).create(&call, namespace);
    }

    /// The API as a tower service under a client's name, which counters and field managers use.
    pub fn service(&self, client: &str) -> MemKubeService {
        MemKubeService::new(Arc::clone(&self.server), client)
    }

    /// A Kubernetes client under a name, with the default namespace `default`. Needs a tokio runtime.
    pub fn client(&self, name: &str) -> kube::Client {
        kube::Client::new(self.service(name), "default")
    }

    /// Serves one more kind, without a CustomResourceDefinition.
    pub fn register(&self, kind: Kind) {
        self.server.store().kinds.register(kind);
    }

    /// Loads YAML documents, in order; returns how many. What exists is replaced, status is written too.
    pub fn load(&self, yaml: &str) -> Result<usize, SeedError> {
        seed::load(&self.server, yaml, "memkube")
    }

    /// Forgets the history of changes: watches and pages from before now answer 410.
    pub fn compact(&self) {
        self.server.store().compact();
    }

    /// The newest resource version; it grows by one with each change.
    pub fn version(&self) -> u64 {
        self.server.store().version()
    }

    /// Who asked for what so far.
    pub fn counts(&self) -> Counts {
        self.server.counts()
    }

    /// Every stored object as it stands, for assertions on bytes.
    pub fn everything(&self) -> Vec<Arc<Value>> {
        self.server.store().everything().map(|(_, _, object)| Arc::clone(object)).collect()
    }
}

#[cfg(test)]
mod tests;
