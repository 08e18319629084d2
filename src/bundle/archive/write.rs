//! Writing: sorted names, no times, no owners, one mode, one gzip header, so that the same files give the same bytes.

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use crate::bundle::refusal::Refusal;

use super::Files;

/// The archive of these files; equal files give equal bytes.
pub fn write(files: &Files) -> Result<Vec<u8>, Refusal> {
    let failed = |error: std::io::Error| Refusal::Archive { message: format!("cannot be written: {error}") };
    let mut builder = Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, path, bytes.as_slice()).map_err(failed)?;
    }
    let tar = builder.into_inner().map_err(failed)?;
    // No time, no file name, and the number that stands for "unknown system".
    let mut encoder: GzEncoder<Vec<u8>> =
        GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    encoder.write_all(&tar).map_err(failed)?;
    encoder.finish().map_err(failed)
}
