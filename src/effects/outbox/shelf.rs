//! One sink's events as files: `<sequence>.json`, oldest first, and the ids that were acknowledged lately.
//!
//! Synchronous; refuses to know sinks and time. What it keeps in memory is an index: sequence, id, size.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{Error, Limits};
use crate::effects::notify::CloudEvent;

/// How many acknowledged ids are remembered against repetition.
const REMEMBERED: usize = 1_000;

const ACKNOWLEDGED: &str = "acknowledged";

pub(super) struct Shelf {
    dir: PathBuf,
    limits: Limits,
    waiting: VecDeque<Entry>,
    bytes: u64,
    next: u64,
    ids: BTreeSet<String>,
    acknowledged: VecDeque<String>,
    /// Lines in the file of acknowledged ids; it is rewritten when they are twice what is remembered.
    lines: usize,
}

struct Entry {
    sequence: u64,
    id: String,
    bytes: u64,
}

/// The event whose turn it is.
pub(super) struct Head {
    sequence: u64,
    pub(super) id: String,
    pub(super) text: String,
}

/// Why the head cannot be handed out.
pub(super) enum Unreadable {
    /// Its file is damaged and was set aside; the next one is the head now.
    Torn,
    Disk(Error),
}

impl Shelf {
    /// Reads what is there; says how many damaged files were set aside.
    pub(super) fn open(dir: PathBuf, limits: Limits) -> Result<(Self, usize), Error> {
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        let mut sequences = Vec::new();
        for entry in fs::read_dir(&dir).map_err(at(&dir))? {
            let path = entry.map_err(at(&dir))?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            match (stem.and_then(|stem| stem.parse::<u64>().ok()), extension) {
                (Some(sequence), Some("json")) => sequences.push(sequence),
                // Written aside by a process that died before the rename: never promised to anybody.
                (_, Some("new")) => fs::remove_file(&path).map_err(at(&path))?,
                _ => {}
            }
        }
        sequences.sort_unstable();
        let acknowledged = read_acknowledged(&dir.join(ACKNOWLEDGED))?;
        let mut shelf = Self {
            dir,
            limits,
            waiting: VecDeque::new(),
            bytes: 0,
            next: sequences.last().map_or(0, |last| last + 1),
            ids: acknowledged.iter().cloned().collect(),
            lines: acknowledged.len(),
            acknowledged,
        };
        let mut torn = 0;
        for sequence in sequences {
            let path = shelf.path(sequence);
            let text = fs::read(&path).map_err(at(&path))?;
            if let Ok(event) = serde_json::from_slice::<CloudEvent>(&text) {
                shelf.index(sequence, event.id, text.len() as u64);
            } else {
                set_aside(&path)?;
                torn += 1;
            }
        }
        Ok((shelf, torn))
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps an event: how many others had to go for it, or none if its id is known.
    pub(super) fn put(&mut self, id: &str, text: &str) -> Result<Option<usize>, Error> {
        if self.ids.contains(id) {
            return Ok(None);
        }
        let size = text.len() as u64;
        let mut displaced = 0;
        while !self.waiting.is_empty()
            && (self.waiting.len() >= self.limits.events || self.bytes + size > self.limits.bytes)
        {
            self.drop_oldest()?;
            displaced += 1;
        }
        let path = self.path(self.next);
        write_whole(&path, text.as_bytes()).map_err(at(&path))?;
        self.index(self.next, id.to_owned(), size);
        self.next += 1;
        Ok(Some(displaced))
    }

    pub(super) fn head(&mut self) -> Result<Option<Head>, Unreadable> {
        let Some(entry) = self.waiting.front() else { return Ok(None) };
        let (sequence, id) = (entry.sequence, entry.id.clone());
        let path = self.path(sequence);
        match fs::read_to_string(&path) {
            Ok(text) if serde_json::from_str::<CloudEvent>(&text).is_ok_and(|event| event.id == id) => {
                Ok(Some(Head { sequence, id, text }))
            }
            Ok(_) => {
                set_aside(&path).map_err(Unreadable::Disk)?;
                self.forget_head();
                Err(Unreadable::Torn)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound) => {
                // A file that somebody removed cannot be set aside; it is as lost as a damaged one.
                let _ = set_aside(&path);
                self.forget_head();
                Err(Unreadable::Torn)
            }
            Err(source) => Err(Unreadable::Disk(Error::Disk { path, source })),
        }
    }

    /// The head was acknowledged, or is to be dropped. It may have been displaced meanwhile.
    pub(super) fn done(&mut self, head: &Head) -> Result<(), Error> {
        let path = self.path(head.sequence);
        remove(&path)?;
        if self.waiting.front().is_some_and(|front| front.sequence == head.sequence) {
            self.forget_head();
        }
        self.remember(&head.id)
    }

    fn drop_oldest(&mut self) -> Result<(), Error> {
        if let Some(oldest) = self.waiting.front() {
            remove(&self.path(oldest.sequence))?;
            self.forget_head();
        }
        Ok(())
    }

    fn index(&mut self, sequence: u64, id: String, bytes: u64) {
        self.bytes += bytes;
        self.ids.insert(id.clone());
        self.waiting.push_back(Entry { sequence, id, bytes });
    }

    fn forget_head(&mut self) {
        if let Some(entry) = self.waiting.pop_front() {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
            self.ids.remove(&entry.id);
        }
    }

    fn remember(&mut self, id: &str) -> Result<(), Error> {
        self.ids.insert(id.to_owned());
        self.acknowledged.push_back(id.to_owned());
        if self.acknowledged.len() > REMEMBERED
            && let Some(oldest) = self.acknowledged.pop_front()
        {
            self.ids.remove(&oldest);
        }
        let path = self.dir.join(ACKNOWLEDGED);
        if self.lines >= 2 * REMEMBERED {
            let all = self.acknowledged.iter().fold(String::new(), |all, id| all + id + "\n");
            write_whole(&path, all.as_bytes()).map_err(at(&path))?;
            self.lines = self.acknowledged.len();
            return Ok(());
        }
        // Not synced: a line that a crash loses costs one repetition, which the receiver knows by its id.
        let mut file = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        file.write_all(format!("{id}\n").as_bytes()).map_err(at(&path))?;
        self.lines += 1;
        Ok(())
    }

    fn path(&self, sequence: u64) -> PathBuf {
        self.dir.join(format!("{sequence:020}.json"))
    }
}

/// Whole or not at all, and there after a crash: written aside, synced, renamed, the directory synced.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Disk { path: path.to_owned(), source }),
        _ => Ok(()),
    }
}

fn set_aside(path: &Path) -> Result<(), Error> {
    fs::rename(path, path.with_extension("torn")).map_err(at(path))
}

fn read_acknowledged(path: &Path) -> Result<VecDeque<String>, Error> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(Error::Disk { path: path.to_owned(), source }),
    };
    let all: Vec<&str> = text.lines().collect();
    Ok(all.iter().skip(all.len().saturating_sub(REMEMBERED)).map(|&id| id.to_owned()).collect())
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Disk { path: path.clone(), source }
}
