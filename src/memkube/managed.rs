//! Who owns which field: metadata.managedFields, kept by every write, and server-side apply with its conflicts.
//!
//! Refuses to know the rest of a write. Field sets are not kept per API version: a manager's set counts for every version.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::memkube::{
    fields::{self, Difference, Set},
    object,
    shape::Shape,
    status::Failure,
};

/// One owner: the identity by which managedFields tells entries apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) applies: bool,
    pub(crate) manager: String,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    fields: Set,
    time: Option<String>,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managed(BTreeMap<Owner, Entry>);

/// Which top-level fields a write through this address can own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The kind has no status subresource: everything.
    Whole,
    /// The main resource beside a status subresource: all but status.
    AllButStatus,
    /// The status subresource: status alone.
    StatusOnly,
    /// The status subresource of Pods, which takes metadata too.
    AllButSpec,
}

/// What an apply comes to.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Value,
    pub(crate) managed: Managed,
}

impl Managed {
    /// The owners that a write starts from: what the request names, else what the live object has.
    ///
    /// `[]` and `[{}]` in a request clear; a subresource cannot name any.
    pub(crate) fn for_update(live: &Value, request: &Value, through_subresource: bool) -> Self {
        let named = object::meta(request, "managedFields").filter(|_| !through_subresource);
        match named.and_then(Value::as_array).map(Vec::as_slice) {
            Some([]) => Self::default(),
            Some([only]) if only.as_object().is_some_and(serde_json::Map::is_empty) => Self::default(),
            Some(entries) => Self::decode(entries),
            None => Self::of(live),
        }
    }

    pub(crate) fn of(live: &Value) -> Self {
        object::meta(live, "managedFields")
            .and_then(Value::as_array)
            .map_or_else(Self::default, |list| Self::decode(list))
    }

    fn decode(entries: &[Value]) -> Self {
        let decoded = entries.iter().map(|entry| {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let owner = Owner {
                applies: text("operation") == "Apply",
                manager: text("manager"),
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let fields = entry.get("fieldsV1").map(Set::decode).unwrap_or_default();
            (owner, Entry { fields, time: Some(text("time")).filter(|time| !time.is_empty()) })
        });
        Self(decoded.collect())
    }

    /// The value of metadata.managedFields; absent when nobody owns anything.
    pub(crate) fn encode(&self) -> Option<Value> {
        let mut entries: Vec<(&Owner, &Entry)> = self.0.iter().collect();
        entries.sort_by_key(|(owner, entry)| (!owner.applies, entry.time.clone(), (*owner).clone()));
        let encoded: Vec<Value> = entries.into_iter().map(|(owner, entry)| encode_entry(owner, entry)).collect();
        (!encoded.is_empty()).then_some(Value::Array(encoded))
    }

    /// Notes what a create, update or patch by `owner` changed; it takes those fields from all others.
    pub(crate) fn update(
        &mut self,
        (live, new): (&Value, &Value),
        shape: Shape<'_>,
        owner: Owner,
        reach: Reach,
        now: DateTime<Utc>,
    ) {
        let mut difference = Difference::between(live, new, shape);
        restrict(&mut difference.changed, reach);
        let gone = difference.changed.union(&difference.removed);
        for (other, entry) in &mut self.0 {
            let lost = if *other == owner { &difference.removed } else { &gone };
            entry.fields = entry.fields.difference(lost);
        }
        if !difference.changed.is_empty() {
            let entry = self.0.entry(owner).or_insert(Entry { fields: Set::default(), time: None });
            entry.fields = entry.fields.union(&difference.changed);
            entry.time = Some(time_text(now));
        }
        self.0.retain(|_, entry| !entry.fields.is_empty());
    }

    /// Server-side apply: the live object with the configuration laid over it and without what the owner no longer names.
    pub(crate) fn apply(
        mut self,
        (live, config): (&Value, &Value),
        shape: Shape<'_>,
        owner: Owner,
        reach: Reach,
        force: bool,
        now: DateTime<Utc>,
    ) -> Result<Applied, Failure> {
        let mut set = Set::of(config, shape);
        restrict(&mut set, reach);
        let mut merged = live.clone();
        fields::merge(&mut merged, config, shape);
        let last = self.0.remove(&owner).unwrap_or(Entry { fields: Set::default(), time: None });
        let owned_now = self.0.values().fold(set.clone(), |all, entry| all.union(&entry.fields));
        last.fields.difference(&owned_now).remove_from(&mut merged, shape);

        let mut difference = Difference::between(live, &merged, shape);
        restrict(&mut difference.changed, reach);
        let conflicts = self.conflicts(&difference.changed);
        if !force && !conflicts.is_empty() {
            return Err(conflict_failure(&conflicts));
        }
        let gone = difference.changed.union(&difference.removed);
        for entry in self.0.values_mut() {
            entry.fields = entry.fields.difference(&gone);
        }
        self.0.retain(|_, entry| !entry.fields.is_empty());
        if !set.is_empty() {
            let time = if gone.is_empty() && last.time.is_some() { last.time } else { Some(time_text(now)) };
            self.0.insert(owner, Entry { fields: set, time });
        }
        Ok(Applied { object: merged, managed: self })
    }

    /// An object that nobody tracked so far belongs, as it stands, to whoever wrote it before the first apply.
    pub(crate) fn or_before_first_apply(mut self, live: &Value, shape: Shape<'_>, api_version: &str) -> Self {
        if self.0.is_empty() {
            let mut fields = Difference::between(&json!({}), live, shape).changed;
            restrict(&mut fields, Reach::Whole);
            let owner = Owner {
                applies: false,
                manager: "before-first-apply".to_owned(),
                api_version: api_version.to_owned(),
                subresource: String::new(),
            };
            let time = object::meta_str(live, "creationTimestamp").to_owned();
            self.0.insert(owner, Entry { fields, time: Some(time).filter(|time| !time.is_empty()) });
        }
        self
    }

    fn conflicts(&self, changed: &Set) -> Vec<(String, String)> {
        let mut conflicts = Vec::new();
        for (owner, entry) in &self.0 {
            let paths = entry.fields.intersection(changed).readable();
            conflicts.extend(paths.into_iter().map(|path| (describe(owner), path)));
        }
        conflicts
    }

    /// The same owners and fields, whatever the times.
    pub(crate) fn same_but_for_times(&self, other: &Self) -> bool {
        let owned = |managed: &Self| -> Vec<(Owner, Set)> {
            managed.0.iter().map(|(owner, entry)| (owner.clone(), entry.fields.clone())).collect()
        };
        owned(self) == owned(other)
    }
}

/// Fields nobody ever owns, and fields out of this address's reach.
fn restrict(set: &mut Set, reach: Reach) {
    set.retain_top(|element| match reach {
        Reach::Whole => !matches!(element, "f:apiVersion" | "f:kind"),
        Reach::AllButStatus => !matches!(element, "f:apiVersion" | "f:kind" | "f:status"),
        Reach::StatusOnly => element == "f:status",
        Reach::AllButSpec => matches!(element, "f:metadata" | "f:status"),
    });
    for field in
        ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"]
    {
        set.drop_below(&["f:metadata", &format!("f:{field}")]);
    }
    set.drop_member("f:metadata");
}

fn encode_entry(owner: &Owner, entry: &Entry) -> Value {
    let mut encoded = json!({
        "manager": owner.manager,
        "operation": if owner.applies { "Apply" } else { "Update" },
        "apiVersion": owner.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.encode(),
    });
    if let Some(time) = &entry.time {
        encoded["time"] = time.as_str().into();
    }
    if !owner.subresource.is_empty() {
        encoded["subresource"] = owner.subresource.as_str().into();
    }
    encoded
}

fn describe(owner: &Owner) -> String {
    let through = match owner.subresource.as_str() {
        "" => String::new(),
        subresource => format!(" with subresource {subresource:?}"),
    };
    let version = if owner.applies { String::new() } else { format!(" using {}", owner.api_version) };
    format!("{:?}{through}{version}", owner.manager)
}

fn conflict_failure(conflicts: &[(String, String)]) -> Failure {
    let message = match conflicts {
        [(owner, path)] => format!("Apply failed with 1 conflict: conflict with {owner}: {path}"),
        several => {
            let mut by_owner: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for (owner, path) in several {
                by_owner.entry(owner).or_default().push(format!("- {path}"));
            }
            let blocks =
                by_owner.into_iter().map(|(owner, paths)| format!("conflicts with {owner}:\n{}", paths.join("\n")));
            format!("Apply failed with {} conflicts: {}", several.len(), blocks.collect::<Vec<_>>().join("\n"))
        }
    };
    conflicts.iter().fold(Failure::new(409, "Conflict", message), |failure, (owner, path)| {
        failure.cause("FieldManagerConflict", &format!("conflict with {owner}"), Some(path))
    })
}

fn time_text(now: DateTime<Utc>) -> String {
    object::timestamp(now).as_str().unwrap_or_default().to_owned()
}
