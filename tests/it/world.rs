//! The controller in the simulated world: hand-overs, kills, an API server that goes away, edits, freezes, objects that
//! vanish, several policies on one slot, budgets, and what an idle engine must not do. One file by theme; each test is
//! named by what must hold.

mod bad_answers;
mod bad_files;
mod bad_neighbours;
mod budget;
mod detached;
mod edits;
mod endings;
mod freeze;
mod handover;
mod quiet;
mod restarts;
mod scene;
mod sharing;
mod sources;
