//! Plain values that every room speaks in: no I/O, no clock, no Kubernetes client, nothing of ours.
//!
//! Reading order: [`time`] and [`quantity`] (how people write durations, units and shares), [`reading`] (what was
//! measured, or why nothing was), [`policy`] (what is asked for), [`verdict`] and [`phase`] (what was decided),
//! [`slot`], [`effect`] and [`facts`] (what may be changed, and what is there), [`reason`] (the closed list),
//! [`view`] (what the engine shows of itself).

pub mod effect;
pub mod facts;
pub mod phase;
pub mod policy;
pub mod problem;
pub mod quantity;
pub mod reading;
pub mod reason;
pub mod slot;
pub mod tenant;
pub mod time;
pub mod verdict;
pub mod view;
