//! Data of several files as one tree.
//!
//! Source: `insertData` in `v1/bundle/bundle.go` and `internal/merge/merge.go` of OPA 1.22.4: objects merge, and a clash in
//! which either side is no object is an error even where both values are equal.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::json::{Json, write_object};

/// What was merged so far. Objects are opened only where a second file reaches into them.
pub(super) enum Tree<'a> {
    Leaf(Json<'a>),
    Node(BTreeMap<Cow<'a, str>, Tree<'a>>),
}

/// The path at which two files bring a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Clash(pub(super) String);

impl<'a> Tree<'a> {
    pub(super) fn new() -> Self {
        Self::Node(BTreeMap::new())
    }

    /// Puts a document under a path. One without a path must be an object.
    pub(super) fn insert(&mut self, keys: &[&'a str], document: Json<'a>) -> Result<(), Clash> {
        self.put(keys, document, &mut Vec::new())
    }

    fn put(&mut self, keys: &[&'a str], document: Json<'a>, passed: &mut Vec<String>) -> Result<(), Clash> {
        let Some(node) = self.opened() else { return Err(Clash(passed.join("."))) };
        let Some((key, rest)) = keys.split_first() else {
            let Json::Object(fields) = document else { return Err(Clash(passed.join("."))) };
            for (key, value) in fields.into_sorted() {
                match node.get_mut(&key) {
                    None => {
                        node.insert(key, Self::Leaf(value));
                    }
                    Some(tree) => {
                        passed.push(key.into_owned());
                        tree.put(&[], value, passed)?;
                        passed.pop();
                    }
                }
            }
            return Ok(());
        };
        match node.get_mut(*key) {
            None => {
                let inner = rest.iter().rev().fold(Self::Leaf(document), |inner, key| {
                    Self::Node(BTreeMap::from([(Cow::Borrowed(*key), inner)]))
                });
                node.insert(Cow::Borrowed(key), inner);
                Ok(())
            }
            Some(tree) => {
                passed.push((*key).to_owned());
                tree.put(rest, document, passed)
            }
        }
    }

    /// As an object that can be added to; none where it is no object.
    fn opened(&mut self) -> Option<&mut BTreeMap<Cow<'a, str>, Self>> {
        if let Self::Leaf(Json::Object(fields)) = self {
            let fields = std::mem::take(fields).into_sorted();
            *self = Self::Node(fields.into_iter().map(|(key, value)| (key, Self::Leaf(value))).collect());
        }
        match self {
            Self::Node(node) => Some(node),
            Self::Leaf(_) => None,
        }
    }

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Leaf(value) => value.write(out),
            Self::Node(node) => {
                write_object(node.iter().map(|(key, tree)| (key.as_ref(), tree)), out, |tree, out| tree.write(out));
            }
        }
    }

    /// In canonical JSON.
    pub(super) fn canonical(&self) -> String {
        let mut bytes = Vec::new();
        self.write(&mut |piece| bytes.extend_from_slice(piece));
        // Every piece is text.
        String::from_utf8(bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::json;

    fn merged(documents: &[(&[&'static str], &'static str)]) -> Result<String, Clash> {
        let mut tree = Tree::new();
        for (keys, text) in documents {
            tree.insert(keys, json::parse(text.as_bytes(), 1_000).unwrap())?;
        }
        Ok(tree.canonical())
    }

    #[test]
    fn objects_merge_at_any_depth_and_in_any_order() {
        let whole = r#"{"a":{"b":{"x":1,"y":[2]},"c":3},"d":{}}"#;
        let parts: [(&[&str], &str); 4] = [
            (&["a", "b"], r#"{"x":1}"#),
            (&[], r#"{"a":{"c":3},"d":{}}"#),
            (&["a"], r#"{"b":{"y":[2]}}"#),
            (&["d"], "{}"),
        ];
        for turn in 0..parts.len() {
            let mut turned = parts;
            turned.rotate_left(turn);
            assert_eq!(merged(&turned).unwrap(), whole);
            turned.reverse();
            assert_eq!(merged(&turned).unwrap(), whole);
        }
    }

    #[test]
    fn a_clash_is_told_with_its_path() {
        for (documents, at) in [
            ([(&["a"][..], "1"), (&["a"][..], "1")], "a"),
            ([(&["a"], "{}"), (&["a"], "1")], "a"),
            ([(&["a"], "[]"), (&["a", "b"], "1")], "a"),
            ([(&["a", "b"], "{\"c\":1}"), (&[], "{\"a\":{\"b\":{\"c\":1}}}")], "a.b.c"),
        ] {
            assert_eq!(merged(&documents), Err(Clash(at.to_owned())));
        }
    }

    #[test]
    fn many_files_in_one_large_object_take_no_longer_for_its_size() {
        let keys: Vec<String> = (0..60_000).map(|index| format!("\"z{index:06}\":0")).collect();
        let large = format!("{{{}}}", keys.join(","));
        let names: Vec<String> = (0..20_000).map(|index| format!("a{index}")).collect();
        let mut tree = Tree::new();
        tree.insert(&[], json::parse(large.as_bytes(), 1_000_000).unwrap()).unwrap();
        for name in &names {
            tree.insert(&[name], json::parse(b"{\"x\":1}", 10).unwrap()).unwrap();
        }
        assert!(tree.canonical().starts_with(r#"{"a0":{"x":1},"a1":"#));
    }
}
