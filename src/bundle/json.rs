//! JSON as OPA's digest needs it: numbers keep their spelling, of duplicate keys the last wins, nothing may follow.
//!
//! serde_json reads numbers into machine ones and loses `1.0` and `1e3`, which hash otherwise than `1` and `1000`.
//! Texts are borrowed from the source, so that a value costs no more than its place in the tree.
//!
//! Source of the canonical form: `v1/bundle/hash.go` of OPA 1.22.4, and Go's `encoding/json` without HTML escaping.

mod parse;

use std::borrow::Cow;

pub(super) use parse::parse;

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
    pub(super) fn write(&self, out: &mut impl FnMut(&[u8])) {
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
            Self::Object(fields) => {
                out(b"{");
                for (index, (key, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        out(b",");
                    }
                    write_text(key, out);
                    out(b":");
                    value.write(out);
                }
                out(b"}");
            }
        }
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
        const MOST: usize = 60;
        let text = self.canonical();
        match text.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        }
    }
}

/// As Go's encoder does: short forms of five control characters, the others in hex, U+2028 and U+2029 escaped, and
/// everything else as it is.
fn write_text(text: &str, out: &mut impl FnMut(&[u8])) {
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
