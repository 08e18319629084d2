//! JSON as OPA's digest needs it: numbers keep their spelling, of duplicate keys the last wins, nothing may follow.
//!
//! serde_json reads numbers into machine ones and loses `1.0` and `1e3`, which hash otherwise than `1` and `1000`.
//! Texts are borrowed from the source, so that a value costs no more than its place in the tree.
//!
//! Source of the canonical form: `v1/bundle/hash.go` of OPA 1.22.4, and Go's `encoding/json` without HTML escaping.

mod parse;

use std::borrow::Cow;

use super::refusal::shown;

pub(super) use parse::parse;

/// How deep values may be nested, and data as a whole; the readers that follow allow 128.
pub(super) const DEEPEST: usize = 120;

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Line and column from 1, where known.
    pub(super) at: Option<(usize, usize)>,
    pub(super) message: String,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// As spelled.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Fields<'a>),
}

/// Fields of an object, ordered by the UTF-8 bytes of their keys, each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    sorted: Vec<(Cow<'a, str>, Json<'a>)>,
}

impl<'a> Fields<'a> {
    /// Of duplicates the last stays.
    pub(super) fn of(mut fields: Vec<(Cow<'a, str>, Json<'a>)>) -> Self {
        // Later ones first, so that the first of equals is the last written.
        fields.reverse();
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        fields.dedup_by(|(one, _), (other, _)| one == other);
        Self { sorted: fields }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Json<'a>> {
        let place = self.sorted.binary_search_by(|(name, _)| name.as_ref().cmp(key)).ok()?;
        self.sorted.get(place).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.sorted.iter().map(|(name, value)| (name.as_ref(), value))
    }

    pub(super) fn into_sorted(self) -> Vec<(Cow<'a, str>, Json<'a>)> {
        self.sorted
    }
}

impl<'a> Json<'a> {
    pub(super) fn as_object(&self) -> Option<&Fields<'a>> {
        match self {
            Self::Object(fields) => Some(fields),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The canonical form, piece by piece.
    pub(super) fn write(&self, out: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Null => out(b"null"),
            Self::Bool(true) => out(b"true"),
            Self::Bool(false) => out(b"false"),
            Self::Number(spelling) => out(spelling.as_bytes()),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out(b"[");
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out(b",");
                    }
                    item.write(out);
                }
                out(b"]");
            }
            Self::Object(fields) => write_object(fields.iter(), out, |value, out| value.write(out)),
        }
    }

    /// How many values it holds, itself and keys included.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::List(items) => 1 + items.iter().map(Self::count).sum::<usize>(),
            Self::Object(fields) => 1 + fields.iter().map(|(_, value)| 1 + value.count()).sum::<usize>(),
            _ => 1,
        }
    }

    /// How deep it is nested; 1 for what holds nothing.
    pub(super) fn depth(&self) -> usize {
        let deepest = match self {
            Self::List(items) => items.iter().map(Self::depth).max(),
            Self::Object(fields) => fields.iter().map(|(_, value)| value.depth()).max(),
            _ => None,
        };
        1 + deepest.unwrap_or(0)
    }

    /// The canonical form as text; it is JSON that any reader takes.
    pub(super) fn canonical(&self) -> String {
        let mut bytes = Vec::new();
        self.write(&mut |piece| bytes.extend_from_slice(piece));
        // Every piece is text or ASCII.
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// For messages: the value, shortened.
    pub(super) fn shown(&self) -> String {
        shown(&self.canonical())
    }
}

/// An object whose fields come in order of their keys.
pub(super) fn write_object<'k, V>(
    fields: impl Iterator<Item = (&'k str, V)>,
    out: &mut dyn FnMut(&[u8]),
    write: impl Fn(V, &mut dyn FnMut(&[u8])),
) {
    out(b"{");
    for (index, (key, value)) in fields.enumerate() {
        if index > 0 {
            out(b",");
        }
        write_text(key, out);
        out(b":");
        write(value, out);
    }
    out(b"}");
}

/// As Go's encoder does: short forms of five control characters, the others in hex, U+2028 and U+2029 escaped, and
/// everything else as it is.
fn write_text(text: &str, out: &mut dyn FnMut(&[u8])) {
    out(b"\"");
    let mut plain = 0;
    for (index, c) in text.char_indices() {
        let escape: Cow<'static, str> = match c {
            '"' => "\\\"".into(),
            '\\' => "\\\\".into(),
            '\n' => "\\n".into(),
            '\r' => "\\r".into(),
            '\t' => "\\t".into(),
            '\u{8}' => "\\b".into(),
            '\u{c}' => "\\f".into(),
            '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => format!("\\u{:04x}", u32::from(c)).into(),
            _ => continue,
        };
        out(text.get(plain..index).unwrap_or_default().as_bytes());
        out(escape.as_bytes());
        plain = index + c.len_utf8();
    }
    out(text.get(plain..).unwrap_or_default().as_bytes());
    out(b"\"");
}

#[cfg(test)]
mod tests;
