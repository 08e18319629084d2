//! YAML data, as OPA turns it into JSON before it hashes and loads it.
//!
//! Source: `internal/yaml` and `util.Unmarshal` of OPA 1.22.4. A file that is JSON counts as JSON, so that its numbers
//! keep their spelling; a byte order mark is cut off; of several documents the first counts; of duplicate keys the last
//! wins; keys become texts; yes, no, on, off and dates are texts; `017` is octal; numbers are written as Go writes them.
//!
//! Known to be read otherwise than by OPA: `0X1F`, `1_0.5` and floats beyond f64. Where a number is read otherwise, the
//! digest is another too, so that a signed bundle is refused and not misread.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;

use super::json::{self, DEEPEST, Fault, Fields, Json};

/// Bytes of all texts together, those that aliases repeat included.
const MOST_TEXT: usize = 16 << 20;

/// The value of a YAML file with at most `most` values, keys included.
pub(super) fn parse(bytes: &[u8], most: usize) -> Result<Json<'_>, Fault> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    if let Ok(value) = json::parse(bytes, most) {
        return Ok(value);
    }
    let text = str::from_utf8(bytes)
        .map_err(|_| Fault { at: None, message: "is not UTF-8; expected YAML in UTF-8".into() })?;
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        budget: serde_saphyr::budget! { max_events: most, max_nodes: most, max_depth: DEEPEST, max_total_scalar_bytes: MOST_TEXT },
    };
    let documents: Vec<Json<'static>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| fault(&error))?;
    Ok(documents.into_iter().next().unwrap_or(Json::Null))
}

fn fault(error: &serde_saphyr::Error) -> Fault {
    let at = error.location().map(|at| (at.line() as usize, at.column() as usize));
    let message = error.without_snippet().to_string();
    Fault { at, message: message.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// A finite float as Go's `encoding/json` writes it.
fn go_float(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    number.to_string()
}

impl<'de> Deserialize<'de> for Json<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Json::Number(value.to_string().into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Json::Number(value.to_string().into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        if !value.is_finite() {
            return Err(E::custom("holds a number that JSON does not have"));
        }
        Ok(Json::Number(go_float(value).into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Json::Text(value.to_owned().into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Json::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields: Vec<(Cow<'static, str>, Json<'static>)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<Json<'static>, Json<'static>>()? {
            let key = match key {
                Json::Text(text) => text,
                Json::Number(spelling) => spelling,
                Json::Bool(value) => value.to_string().into(),
                Json::Null | Json::List(_) | Json::Object(_) => {
                    return Err(A::Error::custom("holds a key that is no text; JSON has no such keys"));
                }
            };
            fields.push((key, value));
        }
        Ok(Json::Object(Fields::of(fields)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        parse(text.as_bytes(), 10_000).unwrap().canonical()
    }

    #[test]
    fn yaml_becomes_the_json_that_opa_makes_of_it() {
        // Answers of `opa` 1.22.4; tests/it/real/bundles.rs asks it again.
        assert_eq!(
            canonical("a: 1\nb: 1.0\nc: [yes, no, on, off, true, ~]\nd: 2023-01-01\ne: 1e3\nf: 0x1F\n1: x\ntrue: y\n"),
            r#"{"1":"x","a":1,"b":1,"c":["yes","no","on","off",true,null],"d":"2023-01-01","e":1000,"f":31,"true":"y"}"#
        );
        assert_eq!(canonical("a: 1\na: 2\n"), r#"{"a":2}"#);
        assert_eq!(canonical("a: 1\n---\nb: 2\n"), r#"{"a":1}"#);
        assert_eq!(canonical("\u{feff}a: &x {b: 1}\nc: *x\n"), r#"{"a":{"b":1},"c":{"b":1}}"#);
        assert_eq!(canonical("base: &b {x: 1}\nd:\n  <<: *b\n  y: 2\n"), r#"{"base":{"x":1},"d":{"x":1,"y":2}}"#);
        assert_eq!(canonical(""), "null");
    }

    #[test]
    fn json_in_a_yaml_file_keeps_its_numbers() {
        assert_eq!(canonical("{\"b\": 1.0, \"a\": 1e3}"), r#"{"a":1e3,"b":1.0}"#);
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (number, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (-2.5e-10, "-2.5e-10"),
        ] {
            assert_eq!(go_float(number), text);
        }
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        for text in ["a: .inf", "a: .nan", "? [a]\n: b", "~: a", "a: [1", "a: b: c", "\u{0}"] {
            assert!(parse(text.as_bytes(), 10_000).is_err(), "{text}");
        }
        assert!(parse(b"a: \xff", 10_000).is_err());
    }

    #[test]
    fn anchors_that_would_fill_the_memory_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.extend([format!("a{level}: &a{level} [{before}]\n")]);
        }
        assert!(parse(bomb.as_bytes(), 50_000).is_err());
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(1_000));
        assert!(parse(text.as_bytes(), 50_000).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-a-z0-9:{}\\[\\],&*!|>'\"#~?@%.<\n\t ]{0,80}") {
            if let Ok(value) = parse(text.as_bytes(), 10_000) {
                serde_json::from_str::<serde_json::Value>(&value.canonical()).unwrap();
            }
        }
    }
}
