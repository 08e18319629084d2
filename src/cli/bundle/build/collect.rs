//! Which files of a directory go into a bundle.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bundle::{FileKind, Files, Limits, MANIFEST, is_test};
use crate::cli::bundle::disk;
use crate::model::problem::Problem;

/// What was found.
pub(super) struct Collected {
    /// What goes in.
    pub(super) files: Files,
    /// What does not, by path; hidden files are not even named.
    pub(super) left_out: Vec<String>,
}

/// The files below a directory, none of them through a link.
pub(super) fn below(directory: &Path, limits: &Limits) -> Result<Collected, Problem> {
    let mut found = Collected { files: Files::new(), left_out: Vec::new() };
    let mut total = 0;
    walk(directory, "", limits, &mut total, &mut found)?;
    if !found.files.keys().any(|path| !matches!(FileKind::of(path), FileKind::Manifest | FileKind::Plain)) {
        return Err(disk::problem(
            directory,
            "holds neither modules nor data; expected *.rego, data.json or data.yaml",
        ));
    }
    Ok(found)
}

fn walk(
    directory: &Path,
    prefix: &str,
    limits: &Limits,
    total: &mut u64,
    found: &mut Collected,
) -> Result<(), Problem> {
    for (name, entry) in entries(directory)? {
        let path = format!("{prefix}{name}");
        if name.starts_with('.') && name != MANIFEST {
            continue;
        }
        let kind = fs::symlink_metadata(&entry).map_err(|error| unread(&entry, &error))?;
        if kind.is_symlink() {
            return Err(disk::problem(
                &entry,
                "is a link; expected plain files, so that a bundle holds what its directory holds",
            ));
        }
        if kind.is_dir() {
            walk(&entry, &format!("{path}/"), limits, total, found)?;
            continue;
        }
        if !kind.is_file() || !belongs(&path) {
            found.left_out.push(path);
            continue;
        }
        let bytes = disk::read(&entry, limits.file_bytes)?;
        *total += bytes.len() as u64;
        if *total > limits.unpacked_bytes || found.files.len() >= limits.entries {
            return Err(disk::problem(directory, "holds more than a bundle may; expected rules and their data only"));
        }
        found.files.insert(path, bytes);
    }
    Ok(())
}

/// Entries by name, in order.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>, Problem> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| unread(directory, &error))? {
        let path = entry.map_err(|error| unread(directory, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| disk::problem(&path, "has a name that is not UTF-8"))?.to_owned();
        entries.push((name, path));
    }
    entries.sort();
    Ok(entries)
}

/// By kind rather than by exclusion: a private key that lies beside the rules must never slip in.
fn belongs(path: &str) -> bool {
    match FileKind::of(path) {
        FileKind::Module => !is_test(path),
        FileKind::Signatures => false,
        // Refused later, by name.
        FileKind::JsonData | FileKind::YamlData | FileKind::Manifest | FileKind::Unsupported(_) => true,
        FileKind::Plain => [".json", ".yaml", ".yml"].iter().any(|ending| path.ends_with(ending)),
    }
}

fn unread(path: &Path, error: &std::io::Error) -> Problem {
    disk::problem(path, format!("cannot be read: {error}"))
}
