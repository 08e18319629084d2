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
