//! Label and field selectors: parsing and matching.
//!
//! Refuses to know which fields a kind lets itself be selected by; the caller passes them.

use serde_json::Value;

use crate::memkube::{object, status::Failure};

/// A parsed pair of label and field selector; the empty one selects everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    /// Parses both selectors; `selectable` are the field paths beside `metadata.name` and `metadata.namespace`.
    pub(crate) fn parse(labels: &str, fields: &str, selectable: &[String]) -> Result<Self, Failure> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(fields, selectable)? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object::meta(object, "labels");
        let label = |key: &str| labels.and_then(|map| map.get(key)).and_then(Value::as_str);
        self.labels.iter().all(|requirement| requirement.test.holds(label(&requirement.key)))
            && self.fields.iter().all(|field| (field_text(object, &field.path) == field.value) == field.equal)
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let listed = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        match self {
            Self::In(values) => listed(values),
            Self::NotIn(values) => !listed(values),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
        }
    }
}

/// A field's text; an absent field selects as the empty string, as in Go.
fn field_text(object: &Value, path: &str) -> String {
    match object::at_path(object, path) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    split_outside_parentheses(text).map(|part| parse_label(part.trim())).collect()
}

/// Commas inside `in (a, b)` separate values, not requirements.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |symbol: char| {
        match symbol {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        symbol == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}

fn parse_label(text: &str) -> Result<Requirement, Failure> {
    let requirement = |key: &str, test| Requirement { key: key.trim().to_owned(), test };
    let unparsable = || Failure::bad_request(format!("unable to parse requirement: {text}"));
    let one = |value: &str| vec![value.trim().to_owned()];
    let parsed = if let Some(key) = text.strip_prefix('!') {
        requirement(key, Test::Absent)
    } else if let Some((key, value)) = text.split_once("!=") {
        requirement(key, Test::NotIn(one(value)))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        requirement(key, Test::In(one(value)))
    } else if let Some((head, list)) = text.split_once('(') {
        let values = list.strip_suffix(')').ok_or_else(unparsable)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => requirement(key, Test::In(values)),
            Some((key, "notin")) => requirement(key, Test::NotIn(values)),
            _ => return Err(unparsable()),
        }
    } else {
        requirement(text, Test::Exists)
    };
    let bad_key =
        parsed.key.is_empty() || parsed.key.contains(|symbol: char| symbol.is_whitespace() || "()!=".contains(symbol));
    if bad_key { Err(unparsable()) } else { Ok(parsed) }
}

fn parse_fields(text: &str, selectable: &[String]) -> Result<Vec<FieldRequirement>, Failure> {
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| parse_field(part.trim(), selectable)).collect()
}

fn parse_field(text: &str, selectable: &[String]) -> Result<FieldRequirement, Failure> {
    let (path, value, equal) = if let Some((path, value)) = text.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (path, value, true)
    } else {
        return Err(Failure::bad_request(format!("invalid selector: '{text}'; can't understand '{text}'")));
    };
    let known = matches!(path, "metadata.name" | "metadata.namespace")
        || selectable.iter().any(|one| one.trim_start_matches('.') == path);
    if !known {
        return Err(Failure::bad_request(format!("field label not supported: {path}")));
    }
    Ok(FieldRequirement { path: path.to_owned(), value: value.to_owned(), equal })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(labels: &str, object: &Value) -> bool {
        Selector::parse(labels, "", &[]).unwrap().matches(object)
    }

    #[test]
    fn every_label_operator_selects_as_documented() {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "order", "tier": "1"}}});
        for (text, wanted) in [
            ("", true),
            ("app=order", true),
            ("app==order,tier=1", true),
            ("app!=order", false),
            ("other!=x", true),
            ("app in (x, order),tier", true),
            ("app notin (x,y)", true),
            ("app notin (order)", false),
            ("missing notin (x)", true),
            ("!missing", true),
            ("!app", false),
            ("missing", false),
        ] {
            assert_eq!(selects(text, &object), wanted, "{text}");
        }
    }

    #[test]
    fn malformed_label_selectors_are_bad_requests() {
        for text in ["app in order", "app within (a)", "app in (a", "=x"] {
            assert_eq!(Selector::parse(text, "", &[]).unwrap_err().code, 400, "{text}");
        }
    }

    #[test]
    fn fields_select_by_name_and_refuse_what_the_kind_does_not_list() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"node": "n1"}});
        let selectable = [".spec.node".to_owned()];
        let parse = |text: &str| Selector::parse("", text, &selectable);
        assert!(parse("metadata.name=a,spec.node!=n2").unwrap().matches(&object));
        assert!(!parse("metadata.name!=a").unwrap().matches(&object));
        assert_eq!(parse("spec.other=x").unwrap_err().message, "field label not supported: spec.other");
    }
}
