//! Public reports about the engine, replayed: a new version of it must not bring one back. And what it is known to
//! do otherwise than `opa`, so that a change is noticed.

use std::sync::Arc;

use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::vm::RegoVM;
use regorus::{Engine, Value};

/// `data.p.a` of these modules for this input, by interpreter and by bytecode (none: it does not compile).
fn both(modules: &[&str], input: &str) -> (Value, Option<Value>) {
    let mut engine = Engine::new();
    engine.set_strict_builtin_errors(false);
    for (index, text) in modules.iter().enumerate() {
        engine.add_policy(format!("{index}.rego"), (*text).to_owned()).unwrap();
    }
    let input = Value::from_json_str(input).unwrap();
    let compiled = engine.compile_with_entrypoint(&Arc::from("data.p.a")).unwrap();
    let bytecode = Compiler::compile_from_policy(&compiled, &["data.p.a"]).ok().map(|program| {
        let mut machine = RegoVM::new();
        machine.load_program(program);
        machine.set_data(Value::new_object()).unwrap();
        machine.set_input(input.clone());
        machine.execute_entry_point_by_index(0).unwrap()
    });
    engine.set_input(input);
    (engine.eval_rule("data.p.a".to_owned()).unwrap(), bytecode)
}

#[test]
fn an_imported_package_is_no_unsafe_variable() {
    // microsoft/regorus 541, 284
    let (interpreted, bytecode) =
        both(&["package p\nimport data.lib\na if lib.a_value", "package lib\na_value := true"], "{}");
    assert_eq!((interpreted, bytecode), (Value::from(true), Some(Value::from(true))));
}

#[test]
fn a_function_of_an_imported_package_is_found() {
    // microsoft/regorus 747, 769
    let modules =
        ["package p\nimport data.lib.h\na := h.is_admin(input.x)", "package lib.h\nis_admin(x) := x == \"root\""];
    let (interpreted, bytecode) = both(&modules, r#"{"x": "root"}"#);
    assert_eq!((interpreted, bytecode), (Value::from(true), Some(Value::from(true))));
}

#[test]
fn every_is_undefined_when_one_fails() {
    // microsoft/regorus 765: true in bytecode, a way around the rule
    let modules = ["package p\na if every m in input.ms { m < 5 }"];
    let (interpreted, bytecode) = both(&modules, r#"{"ms": [1, 9]}"#);
    assert_eq!((interpreted, bytecode), (Value::Undefined, Some(Value::Undefined)));
    let (interpreted, bytecode) = both(&modules, r#"{"ms": [1, 4]}"#);
    assert_eq!((interpreted, bytecode), (Value::from(true), Some(Value::from(true))));
}

#[test]
fn data_that_is_added_is_merged() {
    // microsoft/regorus 760
    let mut engine = Engine::new();
    engine.add_data(Value::from_json_str(r#"{"a": {"x": 1}}"#).unwrap()).unwrap();
    engine.add_data(Value::from_json_str(r#"{"a": {"y": 2}}"#).unwrap()).unwrap();
    assert_eq!(engine.get_data(), Value::from_json_str(r#"{"a": {"x": 1, "y": 2}}"#).unwrap());
}

#[test]
fn an_else_in_a_partial_rule_is_refused() {
    // microsoft/regorus 402
    let text = "package p\nviolations contains \"x\" if { input.x } else if { input.y }";
    assert!(Engine::new().add_policy("p.rego".to_owned(), text.to_owned()).is_err());
}

#[test]
fn bytecode_still_differs_where_the_feature_scan_says() {
    // A conflict is an error in the interpreter and undefined here.
    let conflict = "package p\na := 1 if input.x\na := 2 if input.y";
    let mut engine = Engine::new();
    engine.add_policy("p.rego".to_owned(), conflict.to_owned()).unwrap();
    engine.set_input(Value::from_json_str(r#"{"x": true, "y": true}"#).unwrap());
    assert!(engine.eval_rule("data.p.a".to_owned()).is_err());
    // An `else` after a loop that fails is never tried.
    let after_loop = ["package p\na := \"a\" if { some y in input.xs; y > 9 } else := \"b\" if input.x > 1"];
    let (interpreted, bytecode) = both(&after_loop, r#"{"xs": [1], "x": 2}"#);
    assert_eq!((interpreted, bytecode), (Value::from("b"), Some(Value::Undefined)));
    // A default of a function is not used.
    let default = ["package p\ndefault f(_) := 7\nf(x) := 1 if x == 1\na := f(2)"];
    let (interpreted, bytecode) = both(&default, "{}");
    assert_eq!((interpreted, bytecode), (Value::from(7), Some(Value::Undefined)));
    // `with`, `print` and constant keys do not compile.
    for text in ["package p\na := b if true with input.x as 1\nb := 1", "package p\nb[\"k\"] := 1\na := b.k"] {
        assert_eq!(both(&[text], "{}").1, None, "{text}");
    }
}

#[test]
fn the_engine_still_differs_from_opa_where_the_gate_and_the_rules_take_care() {
    // Widths are ignored: rules print no computed text.
    assert_eq!(both(&["package p\na := sprintf(\"%5s\", [\"x\"])"], "{}").0, Value::from("x"));
    // Numbers are doubles: rules print no computed numbers.
    assert_eq!(both(&["package p\na := 0.1 + 0.2 == 0.3"], "{}").0, Value::from(false));
    // The own package by another name reads as undefined: the gate refuses it.
    assert_eq!(both(&["package p\nimport data.p as z\na := z.v\nv := 1"], "{}").0, Value::Undefined);
}
