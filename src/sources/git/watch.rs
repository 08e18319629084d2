//! Ends a transfer that takes too long or brings too much.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::time::Instant;

use super::LARGEST_TRANSFER;

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Why a transfer was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    TooLate,
    TooLarge,
}

/// Does `work`, which stops when its flag turns true: after `deadline`, or when `directory` has grown by more than one
/// transfer may bring.
pub(super) fn watched<T>(deadline: Instant, directory: &Path, work: impl FnOnce(&AtomicBool) -> T) -> (T, Option<Cut>) {
    let stop = AtomicBool::new(false);
    let before = size_of(directory);
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let watcher = scope.spawn(|| {
            let is_done = is_done;
            loop {
                // The other end says nothing; that it goes, also in a panic, is the sign.
                if matches!(is_done.recv_timeout(BETWEEN_LOOKS), Err(RecvTimeoutError::Disconnected)) {
                    return None;
                }
                let cut = if Instant::now() >= deadline {
                    Cut::TooLate
                } else if size_of(directory).saturating_sub(before) > LARGEST_TRANSFER {
                    Cut::TooLarge
                } else {
                    continue;
                };
                stop.store(true, Ordering::Relaxed);
                return Some(cut);
            }
        });
        let result = work(&stop);
        drop(done);
        (result, watcher.join().unwrap_or(None))
    })
}

/// The bytes of the files in `directory`; what is not there has none.
pub(super) fn size_of(directory: &Path) -> u64 {
    files_of(directory).iter().filter_map(|path| fs::metadata(path).ok()).map(|metadata| metadata.len()).sum()
}

/// The files in `directory`, without those of directories in it.
pub(super) fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path()).collect()
}
