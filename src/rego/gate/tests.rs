//! A test per hazard. Each hazard ends or blocks the process once it runs, so a test that returns shows that the
//! gate refused it before. They run on a thread's usual stack of 2 MiB.

use std::time::Duration;

use crate::model::reason::Reason;
use crate::rego::{Error, Limits, Module};

fn check(text: &str) -> Result<(), Error> {
    check_all(&[("p.rego", &format!("package p\n{text}\n"))])
}

fn check_all(modules: &[(&str, &str)]) -> Result<(), Error> {
    let modules: Vec<_> = modules.iter().map(|(path, text)| Module::new(*path, *text)).collect();
    super::check(&modules, &["data.p.a"], &Limits::default())
}

/// The message of a refusal.
fn refused(text: &str) -> String {
    let error = check(text).expect_err(text);
    assert_eq!(error.reason(), Reason::InvalidRule);
    error.to_string()
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|index| line(index) + "\n").collect()
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    assert_eq!(refused("f(x) := f(x)\na := f(1)"), "p.rego:2:1: recursion: data.p.f -> data.p.f");
    assert!(refused("f(x) := g(x)\ng(x) := f(x)\na := f(1)").contains("data.p.f -> data.p.g -> data.p.f"));
}

#[test]
fn rules_that_depend_on_themselves_are_refused() {
    for text in [
        "a if b\nb if a",
        "a if a",
        "a contains x if some x in a",
        "a := data.p.a",
        "a := data.p[input.x]",
        "a := data[input.x]",
        "a := count(data.p)",
        "a := [x | some x in [b]]\nb := a[0]",
        "a if every x in [1] { b }\nb if a",
        "a[x] := y if { x := 1; y := b }\nb := a[1]",
        "a := 1 if not b\nb if a",
        "default a := false\na if b\nb if a",
        "a := 1 if input.x else := b\nb := a",
        "a := {\"k\": b}\nb := a.k",
    ] {
        assert!(refused(text).contains("recursion"), "{text}");
    }
}

#[test]
fn recursion_through_modules_and_imports_is_refused() {
    let error = check_all(&[
        ("p.rego", "package p\nimport data.q\na := q.f(1)"),
        ("q.rego", "package q\nimport data.p.a as other\nf(x) := other"),
    ]);
    assert!(error.unwrap_err().to_string().contains("data.p.a -> data.q.f -> data.p.a"));
}

#[test]
fn a_mock_that_calls_what_it_mocks_is_refused() {
    for text in [
        "a if f(1) == 1 with f as g\nf(x) := x\ng(x) := f(x)",
        "a if count([1]) == 1 with count as g\ng(x) := count(x)",
    ] {
        assert!(refused(text).contains("recursion"), "{text}");
    }
}

#[test]
fn a_variable_that_has_the_name_of_a_rule_is_no_recursion() {
    for text in [
        "a := x if { some b in [1]; x := b }\nb := a",
        "a(b) := b\nb := a(1)",
        "a := [b | some b in [1]]\nb := a",
        "a if every b in [1] { b == 1 }\nb if a",
    ] {
        let result = check(text);
        assert!(!matches!(result, Err(Error::Recursion { .. })), "{text}: {result:?}");
    }
    // Outside the comprehension the name is the rule again.
    assert!(refused("a := array.concat([b | some b in [1]], [b])\nb := a").contains("recursion"));
}

#[test]
fn nested_literals_are_refused_before_they_are_parsed() {
    let deep = format!("a := {}{}", "[".repeat(25), "]".repeat(25));
    assert!(matches!(check(&deep), Err(Error::TooDeep { depth: 11, limit: 10, .. })));
    let deep = format!("a := {}1{}", "{\"k\": ".repeat(25), "}".repeat(25));
    assert!(refused(&deep).starts_with("p.rego:2:"));
    // Brackets in strings and comments are none.
    let quoted = format!("# {0}\na := \"{0}\\\"{0}\"\nb := `{0}`", "[{".repeat(30));
    assert_eq!(check(&quoted), Ok(()));
}

#[test]
fn many_nested_literals_are_refused_before_they_are_parsed() {
    let many = lines(100, |index| format!("a{index} := {}{}", "[".repeat(9), "]".repeat(9)));
    assert!(matches!(check(&many), Err(Error::TooMuchNesting { .. })));
    let half = lines(50, |index| format!("a{index} := {}{}", "[".repeat(8), "]".repeat(8))) + "a := 1";
    assert_eq!(check(&half), Ok(()));
}

#[test]
fn long_rows_of_operators_are_refused_before_they_overflow_the_stack() {
    for operator in ["+", "-", "*", "|", "&", "==", "<", "in", "- -"] {
        let long = format!("a := {}", vec!["1"; 5_000].join(&format!(" {operator}\n")));
        assert!(matches!(check(&long), Err(Error::TooLong { .. })), "{operator}");
    }
    assert!(matches!(check(&format!("a := {}1", "-\n".repeat(5_000))), Err(Error::TooLong { .. })));
    // Rows inside one another count together.
    let row = vec!["1"; 40].join("+");
    let nested = (0..8).fold("1".to_owned(), |inner, _| format!("count([{inner}+{row}])"));
    assert!(matches!(check(&format!("a := {nested}")), Err(Error::TooLong { .. })));
}

#[test]
fn what_is_still_allowed_fits_the_stack() {
    for operator in ["+", "-", "|", "in"] {
        let row = format!("a := {}", vec!["{1}"; 190].join(&format!(" {operator}\n")));
        assert!(matches!(check(&row), Ok(()) | Err(Error::Compile { .. })), "{operator}");
    }
    let rules = lines(58, |index| {
        let next = index + 1;
        format!("b{index} := [y | some x in [1]; some y in {{z | some z in [b{next}]}}]")
    });
    let text = format!("package p\na := b0\n{rules}b58 := 1\n");
    let rule = crate::rego::Rule::compile(&[Module::new("p.rego", text)], "data.p.a", &Limits::default()).unwrap();
    assert!(rule.answer(regorus::Value::new_object()).is_ok());
}

#[test]
fn long_rows_of_rules_are_refused_before_they_overflow_the_stack() {
    let text = format!("a := b0\n{}b1000 := 1", lines(1_000, |index| format!("b{index} := b{} + 1", index + 1)));
    assert!(matches!(check(&text), Err(Error::TooLong { limit: 60, .. })));
}

#[test]
fn what_takes_the_engine_quadratic_time_is_refused() {
    let imports = format!("{}a := 1", lines(5_000, |index| format!("import data.x.y{index}")));
    assert!(matches!(check(&imports), Err(Error::TooMany { what: "imports", .. })));
    let statements = format!("a if {{\n{}}}", lines(9_000, |index| format!("x{index} := 1")));
    assert!(matches!(check(&statements), Err(Error::TooMany { .. })));
}

#[test]
fn rules_that_name_a_whole_package_do_not_multiply() {
    let others = format!("package q\n{}", lines(4_000, |index| format!("b{index} := 1")));
    let text = format!("package p\na := 1\n{}", lines(4_000, |index| format!("c{index} := data.q[input.x]")));
    assert_eq!(check_all(&[("p.rego", &text), ("q.rego", &others)]), Ok(()));
}

#[test]
fn builtins_that_reach_outside_the_input_are_refused_by_name_and_line() {
    for call in [
        "http.send({})",
        "time.now_ns()",
        "rand.intn(\"a\", 3)",
        "uuid.rfc4122(\"a\")",
        "opa.runtime()",
        "net.lookup_ip_addr(\"a\")",
        "numbers.range(1, 1000000000000)",
        "net.cidr_expand(\"::/0\")",
        "bits.lsh(1, 9999999999)",
        "sprintf(\"%0999999999d\", [1])",
        "sprintf(\"%*d\", [999999999, 1])",
        "sprintf(input.format, [1])",
    ] {
        let name = call.split('(').next().unwrap();
        let message = refused(&format!("b := 1\na := {call}"));
        assert!(message.starts_with("p.rego:3:") && message.contains(&format!("`{name}` is refused")), "{message}");
    }
    assert!(refused("a := 1\nb := http.send({})").contains("http.send"), "also where the entrypoint never comes");
    assert!(refused("a if count([1]) == 1 with count as http.send").contains("http.send"));
    assert_eq!(check("a := sprintf(\"%d %5.2f%% %s\", [1, 2, 3])"), Ok(()));
}

#[test]
fn functions_that_nobody_has_are_refused_by_name_and_line() {
    for call in ["io.jwt.decode(\"a\")", "crypto.sha256(\"a\")", "nosuch(1)", "data.q.f(1)", "array.flatten([])"] {
        let name = call.split('(').next().unwrap();
        let message = refused(&format!("a := 1\nb := {call}"));
        assert!(message.starts_with("p.rego:3:") && message.contains(&format!("no function `{name}`")), "{message}");
    }
}

#[test]
fn a_syntax_error_names_file_line_and_column() {
    let error = check("a := 1\nb := := 2").unwrap_err();
    assert!(error.to_string().starts_with("p.rego:3:6: "), "{error}");
    assert_eq!(error.location().map(|at| (at.line, at.column)), Some((3, 6)));
    assert!(matches!(check("a { true }"), Err(Error::Syntax { .. })), "Rego v0");
    assert!(matches!(check("a := $\"x\""), Err(Error::Syntax { .. })), "Rego v2");
    assert!(matches!(check("a if {"), Err(Error::Syntax { .. })));
    assert!(matches!(check("a := \"unfinished"), Err(Error::Syntax { .. })));
    assert!(matches!(check("]]]] a := )"), Err(Error::Syntax { .. })));
    let error = check_all(&[("empty.rego", "")]).unwrap_err();
    assert!(error.to_string().starts_with("empty.rego"), "{error}");
}

#[test]
fn other_rego_versions_are_refused() {
    assert_eq!(refused("import rego.v2\na := 1"), "p.rego:2:8: Rego version `v2`; expected v1");
    assert_eq!(check("import rego.v1\na := 1"), Ok(()));
}

#[test]
fn an_unsafe_variable_is_refused_with_its_place() {
    let message = refused("a := 1\nb if { x == y }");
    assert!(message.starts_with("p.rego:3:"), "{message}");
}

#[test]
fn a_module_that_imports_its_own_package_is_refused() {
    let error = check("import data.p as z\na := z.v\nv := 1").unwrap_err();
    assert!(matches!(&error, Error::OwnPackage { at } if at.line == 2), "{error}");
    assert_eq!(check("import data.p.v as z\na := z\nv := 1"), Ok(()));
}

#[test]
fn sizes_are_limited() {
    let long = format!("package p\n# {}\na := 1", "x".repeat(300 * 1024));
    assert!(matches!(check_all(&[("p.rego", &long)]), Err(Error::TooLarge { limit: 262_144, .. })));
    let wide = format!("a := \"{}\"", "x".repeat(2_000));
    assert!(matches!(check(&wide), Err(Error::Syntax { .. })));
    let strict = Limits { source_bytes: 5, evaluation: Duration::from_millis(50), ..Limits::default() };
    assert!(super::check(&[Module::new("p", "package p")], &[], &strict).is_err());
}

#[test]
fn every_entrypoint_must_be_a_rule_that_compiles() {
    let module = Module::new("p.rego", "package p\na := 1\nf(x) := x\n");
    for entrypoint in ["data.p.b", "data.p", "data.p.f", "", "a", "data.p.a.b"] {
        let error = super::check(std::slice::from_ref(&module), &["data.p.a", entrypoint], &Limits::default());
        assert_eq!(error, Err(Error::Entrypoint { entrypoint: entrypoint.to_owned() }));
    }
}

#[test]
fn partial_rules_with_else_are_refused() {
    // microsoft/regorus 402: was accepted.
    assert!(check("a contains \"x\" if { input.x } else if { input.y }").is_err());
}

/// Pieces that Rego is made of, and some that it is not.
const PIECES: [&str; 44] = [
    "a", "b", "f", "x", "data", "data.p", "input", "package", "import", "if", "else", "not", "some", "every", "in",
    "with", "as", "contains", "default", "true", "1", "0.5", "\"s\"", "`r`", ":=", "=", "==", "+", "-", "|", "&", "[",
    "]", "{", "}", "(", ")", ",", ";", ".", "\n", "#", "_", "é",
];

proptest::proptest! {
    #[test]
    fn the_gate_outlives_any_text(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..120),
        packaged in proptest::bool::ANY,
    ) {
        let head = if packaged { "package p\na := 1\n" } else { "" };
        let _ = check_all(&[("p.rego", &format!("{head}{}", pieces.join(" ")))]);
    }
}

fn check_whole(modules: &[(&str, &str)]) -> Result<Vec<Vec<String>>, Error> {
    let modules: Vec<_> = modules.iter().map(|(path, text)| Module::new(*path, *text)).collect();
    super::check_all(&modules, &Limits::default())
}

#[test]
fn a_set_without_known_entrypoints_is_compiled_whole() {
    let good = ("a.rego", "package lib.a\nf(x) := x + 1");
    let uses_data = ("b.rego", "package lib[\"b c\"]\nimport data.lib.a\nimport data.limits\nr := a.f(limits.share)");
    let packages = check_whole(&[good, uses_data]).unwrap();
    assert_eq!(packages, [["data", "lib", "a"], ["data", "lib", "b c"]]);
    for text in [
        "package z\nr if { x == y }",
        "package z\nf(x) := 1 if { y == x }",
        "package z\nr if nosuch(1)",
        "package z\nr if r",
        "package z\nr := time.now_ns()",
    ] {
        let error = check_whole(&[good, ("z.rego", text)]).expect_err(text);
        assert!(error.to_string().starts_with("z.rego:2:"), "{error}");
    }
    assert!(check_whole(&[]).unwrap().is_empty());
}
