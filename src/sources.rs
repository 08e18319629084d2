//! Where policies come from beside objects applied by hand: from what somebody wrote to the texts of a snapshot.
//!
//! A file per kind of source. Refuses to know which of several texts is in force; that is the controller's.

pub(crate) mod config_map;
pub mod git;
pub(crate) mod snapshot;
pub mod trial;
