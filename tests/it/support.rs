//! What tests share: the real parts, the engine as a process, a service under load, and waiting with a deadline.
//! It knows how to start and stop things; what they should do is for the tests to say.

pub(crate) mod engine;
pub(crate) mod event_sink;
pub(crate) mod fleet;
pub(crate) mod git_server;
pub(crate) mod order_service;
pub(crate) mod parts;
pub(crate) mod process;
pub(crate) mod wait;
