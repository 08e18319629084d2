//! Whether the tasks of this process still run: the wiring says so when one ends, `/readyz` reads it.

use tokio::sync::watch;

/// A handle that all tasks share. Once unwell it stays so: only a restart mends a dead task.
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<Option<String>>);

impl Default for Health {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Health {
    /// Something that must run has ended. The first reason is kept.
    pub fn fail(&self, why: impl Into<String>) {
        self.0.send_if_modified(|kept| {
            let first = kept.is_none();
            if first {
                *kept = Some(why.into());
            }
            first
        });
    }

    /// Why this instance is not ready, if it is not.
    pub fn unwell(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}
