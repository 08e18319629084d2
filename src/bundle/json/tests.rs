use proptest::prelude::*;

use super::*;

const MOST: usize = 100_000;

fn canonical(text: &str) -> String {
    parse(text.as_bytes(), MOST).unwrap().canonical()
}

#[test]
fn numbers_keep_their_spelling_and_keys_are_sorted() {
    let text = r#" {"b" : 1.0, "a":1e3,"c":[1, 2.50,-0,1E+2],"\u00e9":"x"} "#;
    assert_eq!(canonical(text), r#"{"a":1e3,"b":1.0,"c":[1,2.50,-0,1E+2],"é":"x"}"#);
}

#[test]
fn of_duplicate_keys_the_last_stays() {
    assert_eq!(canonical(r#"{"a":1,"b":0,"a":2,"\u0061":3}"#), r#"{"a":3,"b":0}"#);
}

#[test]
fn texts_are_escaped_as_go_does() {
    assert_eq!(
        canonical(r#""\u0008\u000c\n\r\t\u0001\u001f\u007f\/<>&\u2028\u2029""#),
        "\"\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}/<>&\\u2028\\u2029\""
    );
    assert_eq!(canonical("\"\u{2028}\""), r#""\u2028""#);
    assert_eq!(canonical(r#""\ud83d\ude00 \ud83d \ude00 \ud83dA""#), "\"😀 \u{fffd} \u{fffd} \u{fffd}A\"");
}

#[test]
fn what_is_no_json_is_refused_with_its_place() {
    for (text, at, message) in [
        ("", (1, 1), "ends early"),
        ("{\n  \"a\": 01\n}", (2, 9), "expected `,` or `}`"),
        ("{\"a\":1,}", (1, 8), "a key in quotes"),
        ("[1,]", (1, 4), "no JSON value"),
        ("1 2", (1, 3), "something follows"),
        ("{} {}", (1, 4), "something follows"),
        ("nul", (1, 1), "no JSON value"),
        ("1.", (1, 3), "a digit"),
        ("\"a\nb\"", (1, 3), "control character"),
        ("\"\\x\"", (1, 3), "no escape"),
        ("\"\\u12g4\"", (1, 4), "hex digits"),
        ("\"abc", (1, 5), "ends within"),
        ("\u{feff}1", (1, 1), "no JSON value"),
    ] {
        let fault = parse(text.as_bytes(), MOST).expect_err(text);
        assert_eq!(fault.at, Some(at), "{text}: {}", fault.message);
        assert!(fault.message.contains(message), "{text}: {}", fault.message);
    }
    assert!(parse(b"\"\xff\"", MOST).unwrap_err().message.contains("not UTF-8"));
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let deep = "[".repeat(1_000_000);
    assert!(parse(deep.as_bytes(), usize::MAX).unwrap_err().message.contains("too deep"));
    assert!(parse(b"[1,2,3]", 3).unwrap_err().message.contains("too many values"));
    assert!(parse(b"{\"a\":1}", 2).is_err() && parse(b"{\"a\":1}", 3).is_ok());
}

fn documents() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_document_means_the_same_in_canonical_form(document in documents()) {
        for written in [document.to_string(), format!("{document:#}")] {
            let canonical = canonical(&written);
            let again: serde_json::Value = serde_json::from_str(&canonical).unwrap();
            prop_assert_eq!(&again, &document);
            prop_assert_eq!(parse(canonical.as_bytes(), MOST).unwrap().canonical(), canonical.clone());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, MOST);
    }

    #[test]
    fn we_take_what_serde_json_takes(text in r#"[\[\]{}:,"0-9eE+.\-\\utrfnals ]{0,24}"#) {
        // It refuses numbers beyond f64 and unpaired surrogates, which Go and we take.
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            prop_assert!(parse(text.as_bytes(), MOST).is_ok(), "{}", text);
        } else if parse(text.as_bytes(), MOST).is_ok() {
            prop_assert!(text.contains(['e', 'E']) || text.contains("\\u"), "{}", text);
        }
    }
}
