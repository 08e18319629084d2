//! Tests that need the real parts; `make check` leaves them out, `make test` builds the parts and runs them.
//! In real time: they wait for conditions, each with a deadline.

mod bundles;
mod contract;
mod crds;
mod effects;
mod engine;
mod git;
mod install;
mod opa;
mod prometheus_signals;
mod scene;
mod seed;
mod smoke;
mod sources;
mod sources_by_git;
mod survival;
