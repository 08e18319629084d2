//! The rules that are in the binary.

use std::sync::OnceLock;

use super::limits::Limits;
use super::rule::{Footprint, Module, Rule};

/// Path of the latency rule, as shipped and in messages.
pub const LATENCY_BUDGET_PATH: &str = "policies/latency/latency_budget.rego";

/// Its source.
pub const LATENCY_BUDGET: &str = include_str!("../../policies/latency/latency_budget.rego");

/// Its entrypoint; a user's own text in its place must have the same.
pub const LATENCY_BUDGET_ENTRYPOINT: &str = "data.tradeguard.latency_budget.verdict";

pub(super) fn latency_budget() -> Rule {
    static RULE: OnceLock<Rule> = OnceLock::new();
    RULE.get_or_init(|| {
        let module = Module::new(LATENCY_BUDGET_PATH, LATENCY_BUDGET);
        Rule::compile_as_bytecode(&[module], LATENCY_BUDGET_ENTRYPOINT, &Limits::default())
            .unwrap_or_else(Rule::refused)
    })
    .clone()
}

/// The latency rule, known by its bytes, names no other part of its input and walks over no reading's fields; the properties
/// in tests/it/decide_properties/reuse.rs hold it to that. Of any other text nothing is known.
pub(super) fn footprint(modules: &[Module], entrypoint: &str) -> Footprint {
    match modules {
        [module] if module.text == LATENCY_BUDGET && entrypoint == LATENCY_BUDGET_ENTRYPOINT => Footprint::Readings,
        _ => Footprint::Everything,
    }
}
