//! Counting who asked for what, so that tests can assert counts.
//!
//! Refuses to judge: refused and failed requests count too.

use std::collections::BTreeMap;

/// The verb of a request, as Kubernetes' authorisation names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object was read.
    Get,
    /// A collection was read.
    List,
    /// A watch was opened.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH, apply included.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// Whether the verb changes something.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// One kind of access.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// The name the client was made with.
    pub client: String,
    /// What was asked.
    pub verb: Verb,
    /// `plural.group`, with `/subresource` where one was addressed: `orderservices.trade.io/status`.
    pub resource: String,
}

/// A snapshot of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Access, u64>);

impl Counts {
    pub(crate) fn add(&mut self, access: Access) {
        *self.0.entry(access).or_default() += 1;
    }

    /// What was counted between an earlier snapshot and this one.
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = self.0.iter().map(|(access, count)| {
            (access.clone(), count.saturating_sub(earlier.0.get(access).copied().unwrap_or_default()))
        });
        Self(grown.filter(|(_, count)| *count > 0).collect())
    }

    /// The counters that a condition keeps.
    pub fn only(&self, keep: impl Fn(&Access) -> bool) -> Self {
        Self(self.0.iter().filter(|(access, _)| keep(access)).map(|(access, count)| (access.clone(), *count)).collect())
    }

    /// The counters of one client.
    pub fn by(&self, client: &str) -> Self {
        self.only(|access| access.client == client)
    }

    /// The counters of one resource (`plural.group`) with its subresources.
    pub fn of(&self, resource: &str) -> Self {
        self.only(|access| access.resource.split('/').next() == Some(resource))
    }

    /// Requests that write.
    pub fn writes(&self) -> u64 {
        self.only(|access| access.verb.writes()).total()
    }

    /// Gets and lists.
    pub fn reads(&self) -> u64 {
        self.only(|access| matches!(access.verb, Verb::Get | Verb::List)).total()
    }

    /// Watches opened.
    pub fn watches(&self) -> u64 {
        self.only(|access| access.verb == Verb::Watch).total()
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each counter, for messages of failed tests.
    pub fn iter(&self) -> impl Iterator<Item = (&Access, u64)> {
        self.0.iter().map(|(access, count)| (access, *count))
    }
}
