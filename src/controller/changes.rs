//! What changed since somebody last looked. Bounded by the number of objects, since a second change of the same
//! thing before the first was looked at adds nothing.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::policy::PolicyKey;

/// Collects marks from the watches; the loop takes them all at once.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    marks: Mutex<Marks>,
    notify: Notify,
}

/// What was marked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Policies whose object changed or vanished.
    pub(crate) policies: BTreeSet<PolicyKey>,
    /// Namespaces in which something that facts are made of changed.
    pub(crate) namespaces: BTreeSet<String>,
    /// Interventions that changed or vanished: (namespace, name).
    pub(crate) interventions: BTreeSet<(String, String)>,
    /// ConfigMaps with policies that changed or vanished: (namespace, name).
    pub(crate) config_maps: BTreeSet<(String, String)>,
    /// Namespaces in which a kept revision of a ConfigMap changed.
    pub(crate) revisions: BTreeSet<String>,
    /// PolicySources changed, or many ConfigMaps at once.
    pub(crate) sources: bool,
    /// Tenants or namespaces' labels changed.
    pub(crate) tenants: bool,
    /// The freeze changed.
    pub(crate) freeze: bool,
    /// A list came in whole: look at everything.
    pub(crate) everything: bool,
}

impl Changes {
    /// Marks something and wakes the loop.
    pub(crate) fn mark(&self, mark: impl FnOnce(&mut Marks)) {
        mark(&mut self.marks.lock());
        self.notify.notify_one();
    }

    /// Everything marked so far.
    pub(crate) fn take(&self) -> Marks {
        std::mem::take(&mut self.marks.lock())
    }

    /// Resolves when something was marked since the last time this resolved.
    pub(crate) async fn marked(&self) {
        self.notify.notified().await;
    }
}
