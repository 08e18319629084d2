//! How a stored object looks at the address it was asked for: its apiVersion, and the two vocabularies of Events.
//!
//! Refuses to know how objects are stored or changed.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::memkube::{
    kinds::{Served, View},
    object,
    route::Form,
};

/// (core/v1, events.k8s.io/v1): the same field under its two names.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

impl Served {
    /// The apiVersion of this address.
    pub(crate) fn api_version(&self) -> String {
        match self.view {
            View::Plain => self.kind.api_version(&self.version),
            View::NewEvents => format!("events.k8s.io/{}", self.version),
        }
    }

    /// The group of this address; Events are stored under one and shown under two.
    pub(crate) fn group(&self) -> &str {
        match self.view {
            View::Plain => &self.kind.group,
            View::NewEvents => "events.k8s.io",
        }
    }

    /// A stored object as this address shows it.
    pub(crate) fn present<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        if self.view == View::Plain && self.version == self.kind.storage {
            return Cow::Borrowed(stored);
        }
        let mut shown = stored.clone();
        if self.view == View::NewEvents {
            rename(&mut shown, EVENT_FIELDS.iter().copied());
        }
        object::set_field(&mut shown, "apiVersion", Some(self.api_version().into()));
        Cow::Owned(shown)
    }

    /// What a client sent to this address, in the words of storage.
    pub(crate) fn accept(&self, mut sent: Value) -> Value {
        if self.view == View::NewEvents {
            rename(&mut sent, EVENT_FIELDS.iter().map(|(old, new)| (*new, *old)));
        }
        object::set_field(&mut sent, "apiVersion", Some(self.kind.api_version(&self.kind.storage).into()));
        object::set_field(&mut sent, "kind", Some(self.kind.kind.as_str().into()));
        sent
    }
}

/// A presented object reduced to the asked form.
pub(crate) fn in_form(shown: Cow<'_, Value>, form: Form) -> Cow<'_, Value> {
    match form {
        Form::Full => shown,
        Form::Metadata => Cow::Owned(json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": shown.get("metadata").cloned().unwrap_or_else(|| json!({})),
        })),
    }
}

fn rename<'a>(object: &mut Value, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in pairs {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memkube::kinds::Registry;

    #[test]
    fn an_event_reads_in_both_vocabularies_and_comes_back_the_same() {
        let registry = Registry::builtin();
        let new = registry.serve("events.k8s.io", "v1", "events").unwrap();
        let sent =
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "x"}, "note": "hello"});
        let stored = new.accept(sent.clone());
        assert_eq!(stored["involvedObject"]["name"], "x");
        assert_eq!(stored["message"], "hello");
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(*new.present(&stored), sent);
    }
}
