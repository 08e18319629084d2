//! What the watches last saw, by namespace and name; every room of the controller reads the cluster from here.
//!
//! A relist is collected aside and swapped in whole, so readers never see a half-filled namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use parking_lot::RwLock;
use tokio::sync::watch;

type ByName<K> = BTreeMap<String, Arc<K>>;
type ByNamespace<K> = BTreeMap<String, ByName<K>>;

/// Objects of one kind. Cluster-scoped ones have the empty namespace.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    inner: RwLock<Inner<K>>,
    synced: watch::Sender<bool>,
}

#[derive(Debug)]
struct Inner<K> {
    live: ByNamespace<K>,
    relist: Option<ByNamespace<K>>,
}

/// What an event touched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Nothing that readers can see yet.
    Nothing,
    /// One object.
    One {
        /// Its namespace, empty if cluster-scoped.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Possibly every object.
    All,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { inner: RwLock::new(Inner { live: BTreeMap::new(), relist: None }), synced: watch::Sender::new(false) }
    }
}

impl<K: ResourceExt> Cache<K> {
    /// The object, if the watch saw it.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.inner.read().live.get(namespace)?.get(name).cloned()
    }

    /// All objects of a namespace, by name.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.inner.read().live.get(namespace).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.inner.read().live.values().flat_map(|objects| objects.values().cloned()).collect()
    }

    /// Whether a first list came in whole.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Takes in what a watch reports.
    pub(crate) fn feed(&self, event: Event<K>) -> Touched {
        let mut inner = self.inner.write();
        match event {
            Event::Init => {
                inner.relist = Some(BTreeMap::new());
                Touched::Nothing
            }
            Event::InitApply(object) => {
                if let Some(relist) = &mut inner.relist {
                    insert(relist, object);
                }
                Touched::Nothing
            }
            Event::InitDone => {
                if let Some(relist) = inner.relist.take() {
                    inner.live = relist;
                }
                drop(inner);
                self.synced.send_replace(true);
                Touched::All
            }
            Event::Apply(object) => {
                let touched = touched_by(&object);
                insert(&mut inner.live, object);
                touched
            }
            Event::Delete(object) => {
                let touched = touched_by(&object);
                let namespace = object.namespace().unwrap_or_default();
                if let Some(objects) = inner.live.get_mut(&namespace) {
                    objects.remove(&object.name_any());
                }
                touched
            }
        }
    }

    /// Marks the cache as complete though nothing was listed: the cluster does not serve this kind.
    pub(crate) fn absent(&self) {
        self.synced.send_replace(true);
    }
}

fn touched_by<K: ResourceExt>(object: &K) -> Touched {
    Touched::One { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
}

fn insert<K: ResourceExt>(objects: &mut ByNamespace<K>, object: K) {
    let namespace = object.namespace().unwrap_or_default();
    objects.entry(namespace).or_default().insert(object.name_any(), Arc::new(object));
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;

    use super::*;

    fn config_map(name: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta { namespace: Some("ns".into()), name: Some(name.into()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        }
    }

    #[test]
    fn a_relist_is_swapped_in_whole() {
        let cache = Cache::default();
        cache.feed(Event::Apply(config_map("old")));
        cache.feed(Event::Init);
        cache.feed(Event::InitApply(config_map("new")));
        assert!(cache.get("ns", "old").is_some(), "readers see the old list until the new one is complete");
        assert!(!cache.is_synced());
        assert_eq!(cache.feed(Event::InitDone), Touched::All);
        assert!(cache.get("ns", "old").is_none());
        assert_eq!(cache.in_namespace("ns").len(), 1);
        assert!(cache.is_synced());
    }
}
