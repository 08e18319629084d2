//! The order of bundles.
//!
//! OPA's format has none: an older bundle with a good signature is as good as a newer one. So the signed manifest's
//! `metadata.sequence`, an integer, orders the bundles of a source, and a source remembers the highest it accepted.

use std::fmt;

use super::digest::ContentDigest;
use super::refusal::Refusal;

/// Position of a bundle among those of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The high-water mark of a source: the highest sequence that was accepted, and of which content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The highest sequence.
    pub sequence: Sequence,
    /// The content that had it.
    pub digest: ContentDigest,
}

impl Mark {
    /// Whether a bundle may follow: a higher sequence, or the same content again.
    pub(super) fn check(&self, sequence: Sequence, digest: &ContentDigest) -> Result<(), Refusal> {
        if sequence < self.sequence {
            return Err(Refusal::SequenceReplayed { found: sequence, accepted: self.sequence });
        }
        if sequence == self.sequence && *digest != self.digest {
            return Err(Refusal::SequenceReused { sequence, found: digest.clone(), accepted: self.digest.clone() });
        }
        Ok(())
    }
}
