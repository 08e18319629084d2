//! Features that compile to bytecode and then answer otherwise than the interpreter and `opa`, without a word. What
//! does not compile at all (`with`, `print`, constant keys of partial objects) needs no looking for.

use std::collections::BTreeMap;

use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleHead};

use crate::rego::syntax::{self, Path};

/// Whether the modules use none of them.
pub(super) fn all_agree(modules: &[Ref<Module>]) -> bool {
    let rules = || modules.iter().flat_map(|module| &module.policy).map(|rule| &**rule);
    rules().all(|rule| !defaults_a_function(rule) && !falls_through_a_loop(rule) && !collects_an_object(rule))
        && !has_two_values(modules)
        && !calls_walk(modules)
}

/// `default f(_) := 1` is undefined instead of 1.
fn defaults_a_function(rule: &Rule) -> bool {
    matches!(rule, Rule::Default { args, .. } if !args.is_empty())
}

/// An `else` is never tried when the body before it fails inside a loop.
fn falls_through_a_loop(rule: &Rule) -> bool {
    let Rule::Spec { bodies, .. } = rule else { return false };
    let mut following = bodies.iter().skip(1);
    bodies.iter().any(|body| following.next().is_some_and(|next| next.is_else) && !is_straight(&body.query))
}

/// `o[k] := v`: of two values for one key the last wins, where there should be an error.
fn collects_an_object(rule: &Rule) -> bool {
    match rule {
        Rule::Spec { head: RuleHead::Compr { refr, .. }, .. } => matches!(&**refr, Expr::RefBrack { .. }),
        _ => false,
    }
}

/// Two values of one rule or function are undefined instead of an error; several bodies that all mean `true` cannot
/// conflict.
fn has_two_values(modules: &[Ref<Module>]) -> bool {
    let mut values: BTreeMap<Path, (usize, bool)> = BTreeMap::new();
    for (path, rule) in modules.iter().flat_map(|module| syntax::rules_of(module)) {
        let Rule::Spec { head: RuleHead::Compr { assign, .. } | RuleHead::Func { assign, .. }, bodies, .. } = rule
        else {
            continue;
        };
        let (count, all_true) = values.entry(path).or_insert((0, true));
        *count = count.saturating_add(bodies.iter().filter(|body| !body.is_else).count().max(1));
        *all_true &= assign.is_none() && bodies.iter().all(|body| body.assign.is_none());
    }
    values.into_values().any(|(count, all_true)| count > 1 && !all_true)
}

fn calls_walk(modules: &[Ref<Module>]) -> bool {
    syntax::definitions(modules).iter().flat_map(|definition| &definition.uses).any(|usage| usage.path == ["walk"])
}

/// Whether a query runs through without a loop.
fn is_straight(query: &Query) -> bool {
    query.stmts.iter().all(|stmt| match &stmt.literal {
        Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => is_single(expr),
        Literal::SomeVars { .. } | Literal::SomeIn { .. } | Literal::Every { .. } => false,
    })
}

/// Whether an expression has at most one value, by its form.
fn is_single(expr: &Expr) -> bool {
    match expr {
        Expr::String { .. }
        | Expr::RawString { .. }
        | Expr::Number { .. }
        | Expr::Bool { .. }
        | Expr::Null { .. }
        | Expr::Var { .. } => true,
        Expr::RefDot { refr, .. } => is_single(refr),
        Expr::RefBrack { refr, index, .. } => is_single(refr) && matches!(&**index, Expr::String { .. }),
        Expr::Call { params, .. } => params.iter().all(|param| is_single(param)),
        Expr::BoolExpr { lhs, rhs, .. } | Expr::ArithExpr { lhs, rhs, .. } => is_single(lhs) && is_single(rhs),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use regorus::Engine;

    use super::*;

    fn agree(text: &str) -> bool {
        let mut engine = Engine::new();
        engine.add_policy("p.rego".to_owned(), format!("package p\n{text}")).unwrap();
        assert!(engine.compile_with_entrypoint(&Arc::from("data.p.a")).is_ok());
        all_agree(engine.get_modules())
    }

    #[test]
    fn features_that_differ_in_bytecode_are_found() {
        for text in [
            "default f(_) := 7\nf(x) := 1 if x == 1\na := f(2)",
            "a := 1 if { some y in input.xs; y > 9 } else := 2",
            "a := 1 if input.xs[_] > 9 else := 2",
            "a := 1 if input.x else := 2 if input.xs[i] == i else := 3",
            "a[k] := v if some k, v in input.x",
            "a := 1 if input.x\na := 2 if input.y",
            "f(x) := 1 if x\nf(x) := 2 if not x\na := f(1)",
            "a if { walk(input, [_, v]); v == 1 }",
        ] {
            assert!(!agree(text), "{text}");
        }
    }

    #[test]
    fn everything_else_passes() {
        for text in [
            "a if input.x\na if input.y",
            "a := 1 if count(s) > 1 else := 2 if not input.x else := 3\ns contains x if some x in input.xs",
            "default a := 1\na := 2 if input.x",
        ] {
            assert!(agree(text), "{text}");
        }
    }
}
