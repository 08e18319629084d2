//! What a bundle may be, before anybody looks at what it says.

/// Bounds on memory and time, held while an archive is read: nothing is unpacked beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the archive as it arrives.
    pub archive_bytes: usize,
    /// Bytes that it may unpack to, headers and padding included.
    pub unpacked_bytes: u64,
    /// How many times its own size an archive may unpack to, beyond the first MiB. Text rarely passes 50, a bomb
    /// comes near 1,000.
    pub ratio: u64,
    /// Entries of the archive, directories included.
    pub entries: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of one file's name.
    pub path_bytes: usize,
    /// JSON or YAML values of all data together, keys included. Memory follows it: a value takes up to a hundred bytes.
    pub values: usize,
    /// Roots of the manifest.
    pub roots: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            archive_bytes: 16 << 20,
            unpacked_bytes: 64 << 20,
            ratio: 200,
            entries: 20_000,
            file_bytes: 8 << 20,
            path_bytes: 512,
            values: 1_000_000,
            roots: 1_000,
        }
    }
}

impl Limits {
    /// How far an archive of this size may unpack.
    pub(super) fn unpacked_of(&self, archive_bytes: usize) -> u64 {
        self.unpacked_bytes.min((archive_bytes as u64).saturating_mul(self.ratio).max(1 << 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::json::DEEPEST;

    #[test]
    fn the_docs_name_the_limits() {
        let docs = include_str!("../../docs/bundles.md").replace(',', "");
        let limits = Limits::default();
        for limit in [
            format!("archive of {} MiB", limits.archive_bytes >> 20),
            format!("unpacks to {} MiB", limits.unpacked_bytes >> 20),
            format!("to {} times its size", limits.ratio),
            format!("{} entries", limits.entries),
            format!("{} MiB a file", limits.file_bytes >> 20),
            format!("{} bytes a name", limits.path_bytes),
            format!("{} values", limits.values),
            format!("{DEEPEST} levels"),
            format!("{} roots", limits.roots),
        ] {
            assert!(docs.contains(&limit), "{limit}");
        }
    }

    #[test]
    fn a_small_archive_may_unpack_to_a_mebibyte() {
        let limits = Limits::default();
        assert_eq!(limits.unpacked_of(0), 1 << 20);
        assert_eq!(limits.unpacked_of(100_000), 20_000_000);
        assert_eq!(limits.unpacked_of(usize::MAX), 64 << 20);
    }
}
