//! TradeGuard: policy governance for services on Kubernetes.
//!
//! A policy names a target, signals with thresholds, and actions. The engine measures, decides with Rego, acts,
//! records what it did, and undoes it when there is evidence of recovery. Data flows
//!
//! ```text
//! validate (pure) → observe (I/O) → evaluate (pure, Rego) → phase (pure) → plan (pure) → act (I/O) → report (I/O)
//! ```
//!
//! The rooms in reading order; `tests/it/borders.rs` holds who may use whom:
//!
//! - [`model`]: plain values that everything else speaks in
//! - [`rego`]: compile, gate, input and output of rules; the only room that knows the engine
//! - [`bundle`]: signed bundles: archive, manifest, digests, signatures, whom to trust
//! - [`decide`]: the chain of pure steps from policy and reading to plan
//! - [`api`]: the custom resources
//! - [`clock`]: the one place that reads wall time
//! - [`signals`]: query planning, PromQL, Prometheus, scraping, quantiles
//! - [`effects`]: making, keeping and undoing changes in the cluster; telling the SRE platform
//! - [`serve`]: the HTTP surface; answers from the view that the controller publishes
//! - [`telemetry`]: logs, and metrics with every name in one file
//! - [`cli`]: a file per subcommand, and the wiring of `run`
//! - [`sources`]: how a rule that somebody brings is tried
//! - [`controller`]: what changed, what is due, who acts; the loop
//! - [`demo`]: the simulated world
//! - [`memkube`]: the in-memory Kubernetes API of demo and tests

pub mod api;
pub mod bundle;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod decide;
pub mod demo;
pub mod effects;
pub mod memkube;
pub mod model;
pub mod rego;
pub mod serve;
pub mod signals;
pub mod sources;
pub mod telemetry;
