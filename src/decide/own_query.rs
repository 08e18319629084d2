//! A policy's own PromQL: the one check of it, and how its freshness is asked for.

use std::fmt::Write as _;

use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};

use crate::model::problem::Problem;
use crate::model::quantity::Unit;

/// Longest query of a policy, as the schema has it.
const MAX_CHARS: usize = 4 * 1024;
/// Deepest nesting: the parser and everything that walks its tree recurse.
const MAX_DEPTH: usize = 64;
/// Most operators: a chain of them is a tree of that depth.
const MAX_OPERATORS: usize = 256;

/// What a query of a policy's own is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnQuery {
    /// The metrics that it reads, each once, in the order of the text.
    pub(crate) metrics: Vec<String>,
    /// The unit of its answer, where the metric's suffix tells: for a plain selector, an aggregation or a
    /// `histogram_quantile`. Everything else (a rate, a ratio, arithmetic) must declare its unit.
    pub(crate) unit: Option<Unit>,
    /// The query for the oldest of the newest samples that its selectors find; none where it reads no metric.
    pub(crate) freshness: Option<String>,
}

/// Checks a query before anything of it runs; `path` is its field (`spec.signals[0].query`).
pub(crate) fn check_query(path: &str, text: &str) -> Result<OwnQuery, Problem> {
    const EXPECTED: &str = "PromQL that evaluates to one number";
    let refuse = |found: String| Problem::expected(path, found, EXPECTED);
    if text.trim().is_empty() {
        return Err(refuse("is empty".to_owned()));
    }
    let length = text.chars().count();
    if length > MAX_CHARS {
        return Err(Problem::expected(path, format!("has {length} characters"), format!("at most {MAX_CHARS}")));
    }
    if let Some(found) = too_deep(text) {
        return Err(Problem::expected(path, found, "a query that nests less"));
    }
    let expr = parser::parse(text).map_err(|error| refuse(format!("is not PromQL ({error})")))?;
    match expr.value_type() {
        ValueType::Vector | ValueType::Scalar => {}
        ValueType::Matrix => return Err(refuse("is a range vector".to_owned())),
        ValueType::String => return Err(refuse("is a string".to_owned())),
    }
    let selectors = selectors_of(&expr);
    let mut metrics: Vec<String> = Vec::new();
    for name in selectors.iter().filter_map(metric_of) {
        if !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    Ok(OwnQuery { metrics, unit: unit_of(&expr), freshness: freshness_of(&selectors) })
}

/// Bounds what the recursive steps meet, before any of them runs.
fn too_deep(text: &str) -> Option<String> {
    let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0_usize);
    let mut quote = None;
    let mut escaped = false;
    for c in text.chars() {
        if let Some(open) = quote {
            match c {
                _ if escaped => escaped = false,
                '\\' if open != '`' => escaped = true,
                c if c == open => quote = None,
                _ => {}
            }
            continue;
        }
        match c {
            '"' | '\'' | '`' => quote = Some(c),
            '(' | '[' | '{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '+' | '-' | '*' | '/' | '%' | '^' | '<' | '>' | '=' | '!' => operators += 1,
            _ => {}
        }
    }
    // `and`, `or`, `unless` and `atan2` join as operators do.
    operators += text.split_whitespace().filter(|word| matches!(*word, "and" | "or" | "unless" | "atan2")).count();
    if deepest > MAX_DEPTH {
        return Some(format!("nests {deepest} brackets, more than {MAX_DEPTH}"));
    }
    (operators > MAX_OPERATORS).then(|| format!("has {operators} operators, more than {MAX_OPERATORS}"))
}

fn selectors_of(expr: &Expr) -> Vec<VectorSelector> {
    struct Collect(Vec<VectorSelector>);
    impl ExprVisitor for Collect {
        type Error = std::convert::Infallible;
        fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
            match expr {
                Expr::VectorSelector(selector) => self.0.push(selector.clone()),
                Expr::MatrixSelector(matrix) => self.0.push(matrix.vs.clone()),
                _ => {}
            }
            Ok(true)
        }
    }
    let mut collect = Collect(Vec::new());
    let Ok(_) = walk_expr(&mut collect, expr);
    collect.0
}

fn metric_of(selector: &VectorSelector) -> Option<String> {
    selector.name.clone().or_else(|| {
        let named = selector.matchers.find_matchers("__name__");
        named.first().map(|matcher| matcher.value.clone())
    })
}

/// For each selector the time of its newest sample, of these the oldest: a query is no fresher than the stalest
/// metric in it. Selectors without any sample are left out, so that a counter which was not born yet does not make a
/// ratio stale. `offset` and `@` are dropped: what they shift is what the author wants to read, not how old it is.
fn freshness_of(selectors: &[VectorSelector]) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for selector in selectors {
        let plain = VectorSelector { offset: None, at: None, ..selector.clone() }.to_string();
        if !texts.contains(&plain) {
            texts.push(plain);
        }
    }
    let mut query = String::new();
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            query.push_str(" or ");
        }
        let _ = write!(query, "label_replace(max(timestamp({text})),\"selector\",\"{index}\",\"\",\"\")");
    }
    match texts.as_slice() {
        [] => None,
        [only] => Some(format!("max(timestamp({only}))")),
        _ => Some(format!("min({query})")),
    }
}

fn unit_of(expr: &Expr) -> Option<Unit> {
    match expr {
        Expr::Paren(inner) => unit_of(&inner.expr),
        Expr::VectorSelector(selector) => {
            let name = metric_of(selector)?;
            let counts = ["_bucket", "_sum", "_count", "_total"].iter().any(|suffix| name.ends_with(suffix));
            if counts { None } else { Unit::of_metric(&name) }
        }
        Expr::Aggregate(aggregate) => {
            let keeps = matches!(
                aggregate.op.to_string().as_str(),
                "sum" | "min" | "max" | "avg" | "quantile" | "topk" | "bottomk" | "stddev"
            );
            if keeps { unit_of(&aggregate.expr) } else { None }
        }
        Expr::Call(call) => match call.func.name {
            "histogram_quantile" => {
                let mut names = selectors_of(expr).iter().filter_map(metric_of).collect::<Vec<_>>();
                names.dedup();
                match names.as_slice() {
                    [only] => Unit::of_metric(only),
                    _ => None,
                }
            }
            "avg_over_time" | "max_over_time" | "min_over_time" | "last_over_time" | "quantile_over_time" => {
                match call.args.args.last().map(|argument| &**argument) {
                    Some(Expr::MatrixSelector(matrix)) => unit_of(&Expr::VectorSelector(matrix.vs.clone())),
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> OwnQuery {
        check_query("spec.signals[0].query", text).unwrap()
    }

    #[test]
    fn what_is_not_promql_names_the_field() {
        for text in [
            "",
            "  ",
            "select * from t",
            "rate(x)",
            "sum(rate(x[1m])",
            "x[5m]",
            "\"text\"",
            "x{a=~\"[\"}",
            "avg by (x",
            "1 +",
        ] {
            let problem = check_query("spec.signals[0].query", text).unwrap_err();
            assert_eq!(problem.path, "spec.signals[0].query", "{text}");
        }
        let problem = check_query("spec.signals[0].query", "sum(").unwrap_err();
        assert!(problem.message.starts_with("is not PromQL ("), "{problem}");
    }

    #[test]
    fn a_query_cannot_exhaust_the_stack() {
        let nested = format!("{}1{}", "(".repeat(4_000), ")".repeat(4_000));
        let signs = format!("{}1", "-".repeat(8_000));
        let chain = "1+".repeat(4_000) + "1";
        let words = "a or ".repeat(1_000) + "a";
        for text in [nested, signs, chain, words] {
            assert!(check_query("q", &text).is_err());
        }
        assert!(check_query("q", &("x".repeat(9_000))).is_err());
        let fine = format!("{}x{}", "(".repeat(60), ")".repeat(60));
        std::thread::Builder::new().stack_size(512 * 1024).spawn(move || checked(&fine)).unwrap().join().unwrap();
        // Brackets and operators inside of quotes are text.
        checked(&format!("x{{a=\"{}\\\"\"}}", "(-".repeat(300)));
    }

    #[test]
    fn a_unit_is_told_only_where_the_expression_keeps_it() {
        for (text, unit) in [
            ("queue_wait_seconds", Some(Unit::SECONDS)),
            ("max(queue_wait_milliseconds)", Some(Unit::MILLISECONDS)),
            ("histogram_quantile(0.9, sum by (le) (rate(a_milliseconds_bucket[5m])))", Some(Unit::MILLISECONDS)),
            ("avg_over_time(wait_seconds[5m])", Some(Unit::SECONDS)),
            ("rate(busy_seconds_total[1m])", None),
            ("busy_seconds_total", None),
            ("count(wait_seconds)", None),
            ("a_seconds / b_seconds", None),
            ("up", None),
        ] {
            assert_eq!(checked(text).unit, unit, "{text}");
        }
    }

    #[test]
    fn freshness_is_that_of_the_stalest_metric() {
        assert_eq!(checked("1").freshness, None);
        assert_eq!(
            checked("sum(rate(x_total{a=\"b\\\"c\"}[1m] offset 5m))").freshness.as_deref(),
            Some(r#"max(timestamp(x_total{a="b\"c"}))"#)
        );
        let ratio = checked("sum(rate(bad[1m])) / sum(rate(all[1m])) or bad @ 5");
        assert_eq!(ratio.metrics, ["bad", "all"]);
        let freshness = ratio.freshness.unwrap();
        assert_eq!(
            freshness,
            "min(label_replace(max(timestamp(bad)),\"selector\",\"0\",\"\",\"\") or \
             label_replace(max(timestamp(all)),\"selector\",\"1\",\"\",\"\"))"
        );
        checked(&freshness);
    }
}
