//! The demo: a simulated world with a controller in it. May use every room; nothing in production uses it.
//!
//! Reading order: [`simulation`] (load, Pods, latency), `traffic` (what the cluster's objects mean for it), [`world`]
//! (all of it around an in-memory API), [`fault`] (what goes wrong), [`instance`] (a controller in the world),
//! [`story`] (one run as data), [`run`] (all of it together),
//! [`policy_files`] (the user's own policies), [`screen`] (what a terminal shows).

pub mod fault;
pub mod instance;
pub mod policy_files;
pub mod run;
pub mod screen;
pub mod simulation;
pub mod story;
mod traffic;
pub mod world;
