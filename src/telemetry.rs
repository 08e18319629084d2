//! What operators see of the engine: logs and metrics. It observes and never decides; no room branches on it.

pub mod logging;
pub mod metrics;
pub mod rest;
