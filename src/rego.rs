//! Rego: compile, gate, limits, input and output. The only room that knows the engine (regorus).
//!
//! A [`Rule`] is a compiled entrypoint. It is asked with an [`Input`] and answers with a
//! [`Verdict`](crate::model::verdict::Verdict); it never fails, since whatever goes wrong inside is a verdict
//! `unknown` with its reason. Rust never compares a reading with a threshold here: only Rego does.
//!
//! The shipped rules are in the binary and run as bytecode, after a feature scan and after having given the
//! interpreter's answers on trial inputs; every other rule passes the [`gate`] and is interpreted.
//!
//! This room refuses to know where modules and readings come from, and what follows from a verdict.

mod bytecode;
mod error;
mod excerpt;
pub mod gate;
mod input;
mod limits;
mod output;
mod rule;
pub mod schema;
mod shipped;
mod syntax;

pub use error::{Error, Location, Result};
pub use excerpt::Line;
pub use input::{Document, Input};
pub use limits::Limits;
pub use rule::{Footprint, Module, Rule};
pub use shipped::{LATENCY_BUDGET, LATENCY_BUDGET_ENTRYPOINT, LATENCY_BUDGET_PATH};

#[cfg(test)]
mod tests;
