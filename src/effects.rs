//! Effects: making, keeping and undoing changes in the cluster, with the record written first; and telling the SRE
//! platform.
//!
//! A file per kind of slot ([`isolation`], [`mode`], [`weights`]) says how it is read, compared, changed and put back;
//! `drive::step` is the one algorithm over all of them, `record` the Intervention behind it, `release` undoes everything
//! without an engine, [`notify`] and [`outbox`] carry events. This room is told what should stand; it refuses to know
//! why, and never decides.

use std::time::Duration;

pub use drive::{Driven, Outcome, Seen, Wanted};
pub use error::{Class, Error, Result};
pub use isolation::method::{Controller, how_isolable, is_in_service};
pub use isolation::waits_for_gate;
pub use release::Released;

pub use crate::api::intervention::Actor;

mod drive;
mod error;
mod isolation;
mod mode;
pub mod notify;
mod objects;
pub mod outbox;
mod record;
mod release;
pub mod weights;

/// Makes and undoes effects through one client, under one field manager.
#[derive(Debug)]
pub struct Effects {
    objects: objects::Objects,
}

impl Effects {
    /// `deadline` bounds each single call to the API server.
    pub fn new(client: kube::Client, field_manager: &str, deadline: Duration) -> Self {
        Self { objects: objects::Objects::new(client, field_manager, deadline) }
    }
}
