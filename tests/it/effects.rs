//! Effects against the in-memory API: made once, undone exactly, also when the engine dies at any write.

mod kills;
mod outbox;
mod reverts;
mod stage;
mod steps;
