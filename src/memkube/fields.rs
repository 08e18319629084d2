//! Sets of field paths in the wire form of managedFields (FieldsV1): building, comparing, removing.
//!
//! Refuses to know managers and conflicts. A path element is kept in its wire spelling (`f:name`, `k:{"type":"Ready"}`,
//! `v:"x"`), so a set is its own encoding.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::memkube::shape::{List, Shape};

/// A set of field paths, as a trie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(BTreeMap<String, Node>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    children: Set,
}

/// What differs between two objects.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub(crate) changed: Set,
    pub(crate) removed: Set,
}

impl Set {
    /// All fields that an applied configuration names.
    pub(crate) fn of(config: &Value, shape: Shape<'_>) -> Self {
        let mut set = Self::default();
        set.collect(config, shape, &mut Vec::new());
        set
    }

    fn collect(&mut self, value: &Value, shape: Shape<'_>, path: &mut Vec<String>) {
        match value {
            Value::Object(map) if !shape.is_atomic_map() && (path.is_empty() || !map.is_empty()) => {
                for (key, child) in map {
                    let (child_shape, declared) = shape.field(key);
                    path.push(field_element(key));
                    self.collect(child, child_shape, path);
                    if !declared {
                        self.insert(path);
                    }
                    path.pop();
                }
            }
            Value::Array(items) if shape.list() != List::Atomic => {
                for item in items {
                    path.push(item_element(item, shape));
                    self.collect(item, shape.items(), path);
                    self.insert(path);
                    path.pop();
                }
            }
            _ => self.insert(path),
        }
    }

    pub(crate) fn insert(&mut self, path: &[String]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = self;
        for element in parents {
            set = &mut set.0.entry(element.clone()).or_default().children;
        }
        set.0.entry(last.clone()).or_default().member = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(|node| !node.member && node.children.is_empty())
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        for (element, theirs) in &other.0 {
            let node = result.0.entry(element.clone()).or_default();
            node.member |= theirs.member;
            node.children = node.children.union(&theirs.children);
        }
        result
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && theirs)
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| mine && !theirs)
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let nothing = Node::default();
        let nodes = self.0.iter().filter_map(|(element, mine)| {
            let theirs = other.0.get(element).unwrap_or(&nothing);
            let children = mine.children.combine(&theirs.children, keep);
            let member = keep(mine.member, theirs.member);
            (member || !children.0.is_empty()).then(|| (element.clone(), Node { member, children }))
        });
        Self(nodes.collect())
    }

    /// Keeps the paths under one top-level field only, or all but those.
    pub(crate) fn retain_top(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|element, _| keep(element));
    }

    /// Drops the path itself and everything below it.
    pub(crate) fn drop_below(&mut self, path: &[&str]) {
        match path {
            [] => {}
            [last] => drop(self.0.remove(*last)),
            [first, rest @ ..] => {
                if let Some(node) = self.0.get_mut(*first) {
                    node.children.drop_below(rest);
                    if !node.member && node.children.0.is_empty() {
                        self.0.remove(*first);
                    }
                }
            }
        }
    }

    /// Drops one top-level path itself, not those below it.
    pub(crate) fn drop_member(&mut self, element: &str) {
        if let Some(node) = self.0.get_mut(element) {
            node.member = false;
            if node.children.0.is_empty() {
                self.0.remove(element);
            }
        }
    }

    /// Every member as a readable path: `.metadata.labels.x`, `.status.conditions[type="Ready"].status`.
    pub(crate) fn readable(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.write_readable("", &mut paths);
        paths
    }

    fn write_readable(&self, prefix: &str, paths: &mut Vec<String>) {
        for (element, node) in &self.0 {
            let path = format!("{prefix}{}", readable_element(element));
            if node.member {
                paths.push(path.clone());
            }
            node.children.write_readable(&path, paths);
        }
    }

    /// FieldsV1.
    pub(crate) fn encode(&self) -> Value {
        let entries = self.0.iter().map(|(element, node)| {
            let mut inner = node.children.encode();
            if let (true, false, Value::Object(map)) = (node.member, node.children.0.is_empty(), &mut inner) {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.clone(), inner)
        });
        Value::Object(entries.collect())
    }

    /// Reads FieldsV1; whatever is not a map reads as a leaf.
    pub(crate) fn decode(fields: &Value) -> Self {
        let entries = fields.as_object().into_iter().flatten().filter(|(element, _)| *element != ".");
        let nodes = entries.map(|(element, inner)| {
            let children = Self::decode(inner);
            let member = children.0.is_empty() || inner.get(".").is_some();
            (element.clone(), Node { member, children })
        });
        Self(nodes.collect())
    }

    /// Removes the members from a value, and the containers that this leaves empty.
    pub(crate) fn remove_from(&self, value: &mut Value, shape: Shape<'_>) {
        match value {
            Value::Object(map) => {
                for (element, node) in &self.0 {
                    let Some(key) = element.strip_prefix("f:") else { continue };
                    if node.member {
                        map.remove(key);
                    } else if let Some(child) = map.get_mut(key) {
                        let before = child.clone();
                        node.children.remove_from(child, shape.field(key).0);
                        if *child != before && is_empty_container(child) {
                            map.remove(key);
                        }
                    }
                }
            }
            Value::Array(items) => {
                items.retain_mut(|item| match self.0.get(&item_element(item, shape)) {
                    Some(node) if node.member => false,
                    Some(node) => {
                        node.children.remove_from(item, shape.items());
                        true
                    }
                    None => true,
                });
            }
            _ => {}
        }
    }
}

fn is_empty_container(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn field_element(key: &str) -> String {
    format!("f:{key}")
}

/// The element that names an item of a keyed list or set.
fn item_element(item: &Value, shape: Shape<'_>) -> String {
    match shape.list() {
        List::Map(keys) => {
            let named = keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())));
            format!("k:{}", Value::Object(named.collect()))
        }
        List::Set | List::Atomic => format!("v:{item}"),
    }
}

fn readable_element(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", pairs.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        _ => element.to_owned(),
    }
}

impl Difference {
    /// Compares two states of an object, field by field as far as its shape is granular.
    pub(crate) fn between(old: &Value, new: &Value, shape: Shape<'_>) -> Self {
        let mut difference = Self::default();
        difference.walk(Some(old), Some(new), shape, &mut Vec::new());
        difference
    }

    fn walk<'a>(&mut self, old: Option<&'a Value>, new: Option<&'a Value>, shape: Shape<'a>, path: &mut Vec<String>) {
        let children = children_of(old, new, shape);
        if children.is_empty() {
            match (old, new) {
                (Some(_), None) => self.removed.insert(path),
                (old, new) if old != new => self.changed.insert(path),
                _ => {}
            }
            return;
        }
        for (element, (old, new, shape)) in children {
            path.push(element);
            self.walk(old, new, shape, path);
            path.pop();
        }
        match (old, new) {
            (None, Some(_)) if !shape.is_embedded() => self.changed.insert(path),
            (Some(_), None) if !shape.is_embedded() => self.removed.insert(path),
            _ => {}
        }
    }
}

type Pair<'a> = (Option<&'a Value>, Option<&'a Value>, Shape<'a>);

/// The granular children of two values side by side; none means that the two compare as a whole.
fn children_of<'a>(old: Option<&'a Value>, new: Option<&'a Value>, shape: Shape<'a>) -> BTreeMap<String, Pair<'a>> {
    let mut children: BTreeMap<String, Pair<'a>> = BTreeMap::new();
    let both_fit = |fits: fn(&Value) -> bool| [old, new].into_iter().flatten().all(fits);
    if both_fit(Value::is_object) && !shape.is_atomic_map() {
        for (key, value) in old.and_then(Value::as_object).into_iter().flatten() {
            children.insert(field_element(key), (Some(value), None, shape.field(key).0));
        }
        for (key, value) in new.and_then(Value::as_object).into_iter().flatten() {
            children.entry(field_element(key)).or_insert((None, None, shape.field(key).0)).1 = Some(value);
        }
    } else if both_fit(Value::is_array) && shape.list() != List::Atomic {
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            children.insert(item_element(item, shape), (Some(item), None, shape.items()));
        }
        for item in new.and_then(Value::as_array).into_iter().flatten() {
            children.entry(item_element(item, shape)).or_insert((None, None, shape.items())).1 = Some(item);
        }
    }
    children
}

/// Lays an applied configuration over the live object.
pub(crate) fn merge(live: &mut Value, config: &Value, shape: Shape<'_>) {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !shape.is_atomic_map() => {
            for (key, value) in config {
                match live.get_mut(key) {
                    Some(slot) => merge(slot, value, shape.field(key).0),
                    None => drop(live.insert(key.clone(), value.clone())),
                }
            }
        }
        (Value::Array(live), Value::Array(config)) if shape.list() != List::Atomic => {
            for item in config {
                let wanted = item_element(item, shape);
                match live.iter_mut().find(|one| item_element(one, shape) == wanted) {
                    Some(slot) => merge(slot, item, shape.items()),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, config) => *live = config.clone(),
    }
}
