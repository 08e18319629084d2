//! Where policies come from, beyond objects applied by hand; for now, how a rule that somebody brings is tried first.

pub mod trial;
