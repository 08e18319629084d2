//! What is stored: objects, versions, and the history of changes that watches read.
//!
//! Refuses to know rules of writing; it commits what it is given and numbers it. All of it stands behind one mutex, and
//! nothing here waits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque, hash_map::Entry},
    sync::Arc,
};

use serde_json::Value;
use tokio::sync::watch;

use crate::memkube::{
    kinds::{Kind, Registry},
    object,
    status::Failure,
};

/// (group, plural)
pub(crate) type Resource = (String, String);

/// (namespace, name)
pub(crate) type Place = (String, String);

/// Where an object of any kind stands.
pub(crate) type Address = (Resource, Place);

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One committed change.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) resource: Resource,
    pub(crate) place: Place,
    pub(crate) change: Change,
    /// The new state; of a deletion, the last state with the version of the deletion.
    pub(crate) object: Arc<Value>,
    pub(crate) before: Option<Arc<Value>>,
}

/// The server's whole state.
pub(crate) struct Store {
    pub(crate) kinds: Registry,
    /// Makes uids and name suffixes; seeded, so that a run repeats.
    pub(crate) random: fastrand::Rng,
    objects: BTreeMap<Resource, BTreeMap<Place, Arc<Value>>>,
    by_uid: HashMap<String, Address>,
    /// Owner uid → who names it as an owner.
    dependants: HashMap<String, BTreeSet<Address>>,
    version: u64,
    history: VecDeque<Arc<Event>>,
    history_limit: usize,
    /// Watches from a version below this one have missed something.
    compacted: u64,
    wake: watch::Sender<u64>,
}

impl Store {
    /// An empty store whose versions start at `version`.
    pub(crate) fn new(version: u64, seed: u64, history_limit: usize) -> Self {
        Self {
            kinds: Registry::builtin(),
            random: fastrand::Rng::with_seed(seed),
            objects: BTreeMap::new(),
            by_uid: HashMap::new(),
            dependants: HashMap::new(),
            version,
            history: VecDeque::new(),
            history_limit,
            compacted: version,
            wake: watch::Sender::new(version),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Follows the newest version.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&resource_of(kind))?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Objects of a kind in the order of namespace and name; an empty namespace means all.
    pub(crate) fn list<'a>(
        &'a self,
        kind: &Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Place, &'a Arc<Value>)> {
        let all = self.objects.get(&resource_of(kind)).into_iter();
        let start = (namespace.to_owned(), String::new());
        all.flat_map(move |objects| objects.range(start.clone()..))
            .take_while(move |((in_namespace, _), _)| namespace.is_empty() || in_namespace == namespace)
    }

    /// A kind's objects as they stood at an earlier version, or nothing if history does not reach back so far.
    pub(crate) fn at_version(&self, kind: &Kind, version: u64) -> Result<BTreeMap<Place, Arc<Value>>, Failure> {
        if version < self.compacted {
            let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";
            return Err(Failure::expired(message));
        }
        let resource = resource_of(kind);
        let mut objects = self.objects.get(&resource).cloned().unwrap_or_default();
        let later = self.history.iter().rev().take_while(|event| event.version > version);
        for event in later.filter(|event| event.resource == resource) {
            match &event.before {
                Some(before) => objects.insert(event.place.clone(), Arc::clone(before)),
                None => objects.remove(&event.place),
            };
        }
        Ok(objects)
    }

    /// Every object of every kind.
    pub(crate) fn everything(&self) -> impl Iterator<Item = (&Resource, &Place, &Arc<Value>)> {
        self.objects
            .iter()
            .flat_map(|(resource, objects)| objects.iter().map(move |(place, object)| (resource, place, object)))
    }

    /// Stores a new state under the next version.
    pub(crate) fn put(&mut self, kind: &Kind, object: Value) -> Arc<Value> {
        self.commit(kind, object, false)
    }

    /// Removes an object; watches see its last state under the next version.
    pub(crate) fn remove(&mut self, kind: &Kind, last: Value) -> Arc<Value> {
        self.commit(kind, last, true)
    }

    fn commit(&mut self, kind: &Kind, mut object: Value, gone: bool) -> Arc<Value> {
        self.version += 1;
        object::set_meta(&mut object, "resourceVersion", Some(self.version.to_string().into()));
        let place = (object::meta_str(&object, "namespace").to_owned(), object::name(&object).to_owned());
        let resource = resource_of(kind);
        let object = Arc::new(object);
        let objects = self.objects.entry(resource.clone()).or_default();
        let before = if gone { objects.remove(&place) } else { objects.insert(place.clone(), Arc::clone(&object)) };
        self.index((resource.clone(), place.clone()), before.as_deref(), Some(&*object).filter(|_| !gone));
        let change = match (gone, &before) {
            (true, _) => Change::Deleted,
            (false, Some(_)) => Change::Modified,
            (false, None) => Change::Added,
        };
        let event = Event { version: self.version, resource, place, change, object: Arc::clone(&object), before };
        self.history.push_back(Arc::new(event));
        if self.history.len() > self.history_limit {
            self.forget_oldest();
        }
        self.wake.send_replace(self.version);
        object
    }

    /// Keeps uids and owners findable without looking at every object.
    fn index(&mut self, address: Address, before: Option<&Value>, now: Option<&Value>) {
        if let Some(before) = before {
            self.by_uid.remove(object::uid(before));
            for owner in object::owner_uids(before) {
                if let Entry::Occupied(mut dependants) = self.dependants.entry(owner.to_owned()) {
                    dependants.get_mut().remove(&address);
                    if dependants.get().is_empty() {
                        dependants.remove();
                    }
                }
            }
        }
        if let Some(now) = now {
            for owner in object::owner_uids(now) {
                self.dependants.entry(owner.to_owned()).or_default().insert(address.clone());
            }
            self.by_uid.insert(object::uid(now).to_owned(), address);
        }
    }

    /// The object of a uid with its kind.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<(Arc<Kind>, Arc<Value>)> {
        self.at(self.by_uid.get(uid)?)
    }

    /// Objects that name a uid as an owner.
    pub(crate) fn dependants(&self, uid: &str) -> Vec<(Arc<Kind>, Arc<Value>)> {
        self.dependants.get(uid).into_iter().flatten().filter_map(|address| self.at(address)).collect()
    }

    fn at(&self, ((group, plural), place): &Address) -> Option<(Arc<Kind>, Arc<Value>)> {
        let kind = self.kinds.get(group, plural)?;
        let object = self.objects.get(&resource_of(kind))?.get(place)?;
        Some((Arc::clone(kind), Arc::clone(object)))
    }

    fn forget_oldest(&mut self) {
        if let Some(event) = self.history.pop_front() {
            self.compacted = event.version;
        }
    }

    /// Forgets all history, as etcd's compaction does; watches from before now end with 410.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.version;
    }

    /// The changes after a version, oldest first.
    pub(crate) fn since(&self, version: u64) -> Result<impl Iterator<Item = &Arc<Event>>, Failure> {
        if version < self.compacted {
            let message = format!("too old resource version: {version} ({})", self.compacted);
            return Err(Failure::expired(message));
        }
        let first = self.history.partition_point(|event| event.version <= version);
        Ok(self.history.range(first..))
    }
}

pub(crate) fn resource_of(kind: &Kind) -> Resource {
    (kind.group.clone(), kind.plural.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, value: u32) -> Value {
        json!({"metadata": {"namespace": "a", "name": name}, "value": value})
    }

    #[test]
    fn an_earlier_version_shows_what_stood_then() {
        let kind = Kind::custom("g", "v1", "K", "ks");
        let mut store = Store::new(100, 1, 10);
        store.put(&kind, object("x", 1));
        let then = store.version();
        store.put(&kind, object("x", 2));
        store.put(&kind, object("y", 1));
        let last = store.get(&kind, "a", "x").unwrap();
        store.remove(&kind, Value::clone(&last));
        let objects = store.at_version(&kind, then).unwrap();
        let values: Vec<_> = objects.values().map(|object| object["value"].as_u64()).collect();
        assert_eq!(values, [Some(1)]);
        store.compact();
        assert_eq!(store.at_version(&kind, then).unwrap_err().code, 410);
    }

    #[test]
    fn history_is_bounded_and_says_what_it_forgot() {
        let kind = Kind::custom("g", "v1", "K", "ks");
        let mut store = Store::new(100, 1, 2);
        for value in 0..3 {
            store.put(&kind, object("x", value));
        }
        assert_eq!(store.since(101).unwrap().count(), 2);
        assert_eq!(store.since(100).err().map(|failure| failure.reason), Some("Expired"));
    }
}
