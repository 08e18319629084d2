//! What changed since somebody last looked. Bounded by the number of objects, since a second change of the same
//! thing before the first was looked at adds nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::model::policy::PolicyKey;

/// Collects marks from the watches; the loop takes them all at once.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    waiting: Mutex<Waiting>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    marks: Marks,
    /// When each of them was made.
    since: Vec<Instant>,
}

/// What was marked.
#[derive(Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks, each taken by somebody else")]
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

impl Marks {
    fn count(&self) -> usize {
        let Self { policies, namespaces, interventions, config_maps, revisions, .. } = self;
        let flags = [self.sources, self.tenants, self.freeze, self.everything];
        let objects = policies.len() + namespaces.len() + interventions.len() + config_maps.len() + revisions.len();
        objects + flags.into_iter().filter(|flag| *flag).count()
    }
}

impl Changes {
    /// Marks something and wakes the loop. Returns how many marks there are more than before.
    pub(crate) fn mark(&self, mark: impl FnOnce(&mut Marks)) -> usize {
        let mut waiting = self.waiting.lock();
        mark(&mut waiting.marks);
        let more = waiting.marks.count().saturating_sub(waiting.since.len());
        waiting.since.extend(std::iter::repeat_n(Instant::now(), more));
        drop(waiting);
        self.notify.notify_one();
        more
    }

    /// Everything marked so far, and how long each mark has waited.
    pub(crate) fn take(&self) -> (Marks, Vec<Duration>) {
        let Waiting { marks, since } = std::mem::take(&mut *self.waiting.lock());
        (marks, since.iter().map(Instant::elapsed).collect())
    }

    /// Resolves when something was marked since the last time this resolved.
    pub(crate) async fn marked(&self) {
        self.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_change_of_the_same_thing_adds_nothing_and_the_first_counts() {
        let changes = Changes::default();
        let trading = |marks: &mut Marks| {
            marks.namespaces.insert("trading".to_owned());
        };
        assert_eq!(changes.mark(trading), 1);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(changes.mark(trading), 0);
        assert_eq!(changes.mark(|marks| marks.everything = true), 1);
        let (marks, waited) = changes.take();
        assert!(marks.everything && marks.namespaces.len() == 1);
        assert_eq!(waited, [Duration::from_secs(2), Duration::ZERO]);
        assert_eq!(changes.take(), (Marks::default(), Vec::new()));
    }
}
