//! Whatever a rule answers, reading it ends in a verdict or in `WrongShape`, as the published shape has it.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::rego::input::value_of;
use crate::rego::schema::OutputShape;
use crate::rego::tests::Question;

use super::*;

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5_i64..5).prop_map(Value::from),
        (-1.0..1.0).prop_map(Value::from),
        prop_oneof![Just("a"), Just("none"), Just("warning"), Just("critical"), Just("")].prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            object(&["code", "pod"], inner).boxed(),
        ]
    })
}

/// Objects with some of these names.
fn object(names: &'static [&'static str], value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let fields = prop::collection::vec((prop::sample::select(names), value), 0..=names.len());
    fields.prop_map(|fields| Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

fn reasons() -> impl Strategy<Value = Value> {
    let field = prop_oneof![4 => Just(json!("a")), 2 => Just(json!(1.5)), 1 => anything()];
    let reason = object(&["code", "signal", "pod", "observed", "threshold", "message"], field);
    prop_oneof![4 => prop::collection::vec(reason, 0..3).prop_map(Value::from), 1 => anything()]
}

/// Outputs that are right, nearly right or not at all.
fn outputs() -> impl Strategy<Value = Value> {
    let breached = prop_oneof![6 => any::<bool>().prop_map(Value::from), 1 => anything()];
    let severity = prop_oneof![
        4 => prop_oneof![Just("none"), Just("warning"), Just("critical")].prop_map(Value::from),
        1 => anything(),
    ];
    let pods = prop_oneof![4 => Just(json!(["a", "ghost"])), 1 => anything()];
    let actions = prop_oneof![2 => Just(json!([{"type": "notify"}])), 1 => anything()];
    let optional = |strategy: BoxedStrategy<Value>| prop::option::of(strategy);
    let parts = (
        prop::option::weighted(0.9, breached),
        optional(severity.boxed()),
        optional(reasons().boxed()),
        optional(pods.boxed()),
        optional(actions.boxed()),
        prop::option::weighted(0.1, Just(json!(1))),
    );
    let built = parts.prop_map(|(breached, severity, reasons, pods, actions, other)| {
        let names = ["breached", "severity", "reasons", "pods", "actions", "other"];
        let fields = names.into_iter().zip([breached, severity, reasons, pods, actions, other]);
        let fields: Map<_, _> = fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Value::Object(fields)
    });
    prop_oneof![9 => built, 1 => anything()]
}

/// Whether the output has the published shape. JSON Schema knows no null here, where serde takes it for absence, and no
/// arrays in place of objects; and no schema says that a breach has a severity.
fn has_shape(output: &Value) -> bool {
    let is_plain = |value: &Value| value.as_object().is_some_and(|fields| !fields.values().any(Value::is_null));
    let reasons = output.get("reasons").and_then(Value::as_array);
    is_plain(output)
        && reasons.is_none_or(|reasons| reasons.iter().all(is_plain))
        && serde_json::from_value::<OutputShape>(output.clone())
            .is_ok_and(|shape| !(shape.breached && shape.severity == Some(Severity::None)))
}

proptest! {
    #[test]
    fn an_output_is_taken_exactly_when_it_has_the_published_shape(output in outputs()) {
        let question = Question::new().signal("p99", "800ms", Ok(1.0)).pod("a", "p99", 1.0);
        let verdict = question.ask(|input| verdict(&value_of(&output), input));
        prop_assert_eq!(verdict.is_ok(), has_shape(&output), "{:?}", verdict);
        if let Ok(verdict) = verdict {
            prop_assert!(verdict.suspects.iter().all(|pod| pod == "a"));
            prop_assert_eq!(verdict.outcome == Outcome::Breached, output["breached"] == json!(true));
        } else {
            prop_assert_eq!(verdict.unwrap_err().reason(), Reason::WrongShape);
        }
    }
}
