//! Reading: every bound is checked before the memory is taken.

use std::cell::Cell;
use std::io::{self, Read};

use flate2::bufread::GzDecoder;
use tar::{Archive, EntryType};

use crate::bundle::limits::Limits;
use crate::bundle::path;
use crate::bundle::refusal::Refusal;

use super::Files;

/// How much is taken ahead for a file whose header says it is large.
const MOST_AHEAD: u64 = 64 << 10;

/// The files of a gzipped tar, within limits. Directories are passed over, everything else that is no plain file is
/// refused; so are names that lead out, names that come twice, and anything after the end.
pub fn read(bytes: &[u8], limits: &Limits) -> Result<Files, Refusal> {
    if bytes.len() > limits.archive_bytes {
        return Err(Refusal::TooLarge { what: "the bundle".into(), limit: limits.archive_bytes as u64 });
    }
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(Refusal::Archive { message: "it does not begin as gzip does".into() });
    }
    let overflowed = Cell::new(false);
    let unpacked = limits.unpacked_of(bytes.len());
    let capped = Capped { inner: GzDecoder::new(bytes), left: unpacked, overflowed: &overflowed };
    files(capped, limits).map_err(|error| match error {
        // However the layers between worded it.
        _ if overflowed.get() => Refusal::TooLarge { what: "what the bundle unpacks to".into(), limit: unpacked },
        Stop::Refused(refusal) => refusal,
        Stop::Read(error) => Refusal::Archive { message: error.to_string() },
    })
}

enum Stop {
    Refused(Refusal),
    Read(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn files(reader: Capped<'_, GzDecoder<&[u8]>>, limits: &Limits) -> Result<Files, Stop> {
    let mut archive = Archive::new(reader);
    let mut files = Files::new();
    for (index, entry) in archive.entries()?.enumerate() {
        if index >= limits.entries {
            return Err(Refusal::TooManyEntries { limit: limits.entries }.into());
        }
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader) {
            continue;
        }
        let name = path::of(&entry.path_bytes(), limits)?;
        if let Some(kind) = not_a_file(kind) {
            return Err(Refusal::NotAFile { file: name, kind }.into());
        }
        if files.contains_key(&name) {
            return Err(Refusal::Duplicate { file: name }.into());
        }
        let size = entry.size();
        if size > limits.file_bytes {
            return Err(Refusal::TooLarge { what: name, limit: limits.file_bytes }.into());
        }
        let mut bytes = Vec::with_capacity(size.min(MOST_AHEAD) as usize);
        entry.read_to_end(&mut bytes)?;
        if bytes.len() as u64 != size {
            return Err(Refusal::Archive { message: format!("{name} ends early") }.into());
        }
        files.insert(name, bytes);
    }
    let mut capped = archive.into_inner();
    check_zeros(&mut capped)?;
    // One gzip member, as every tool writes: a million empty ones would take long to read.
    if !capped.inner.get_ref().is_empty() {
        return Err(Refusal::Archive { message: "something follows its end".into() }.into());
    }
    if files.is_empty() {
        return Err(Refusal::Archive { message: "it holds no file".into() }.into());
    }
    Ok(files)
}

fn not_a_file(kind: EntryType) -> Option<&'static str> {
    match kind {
        EntryType::Regular | EntryType::Continuous => None,
        EntryType::Link => Some("hard link"),
        EntryType::Symlink => Some("symbolic link"),
        EntryType::Char | EntryType::Block => Some("device"),
        EntryType::Fifo => Some("pipe"),
        EntryType::GNUSparse => Some("file with holes"),
        _ => Some("special entry"),
    }
}

/// A tar ends in zeros. Reading to the end also makes gzip compare its checksum.
fn check_zeros(rest: &mut impl Read) -> Result<(), Stop> {
    let mut buffer = [0; 8192];
    loop {
        let count = rest.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        if buffer.iter().take(count).any(|byte| *byte != 0) {
            return Err(Refusal::Archive { message: "something follows its end".into() }.into());
        }
    }
}

/// Fails, and says so beside, once more than allowed comes out.
struct Capped<'a, R> {
    inner: R,
    left: u64,
    overflowed: &'a Cell<bool>,
}

impl<R: Read> Read for Capped<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => {
                self.left = left;
                Ok(count)
            }
            None => {
                self.overflowed.set(true);
                Err(io::Error::from(io::ErrorKind::FileTooLarge))
            }
        }
    }
}
