//! The archive: reading a gzipped tar within limits, and writing one that comes out the same every time.

mod read;
mod write;

use std::collections::BTreeMap;

pub use read::read;
pub use write::write;

/// Files by path, in order of path. The path is relative, by `/`.
pub type Files = BTreeMap<String, Vec<u8>>;

#[cfg(test)]
mod tests;
