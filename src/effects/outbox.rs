//! Events on disk until they are acknowledged: in order per sink, bounded, deduplicated by id, every loss counted.
//!
//! A directory per sink, a file per event, written aside, synced and renamed into place; so an event is there whole or
//! not at all. Delivery is at least once: the receiver tells repetitions by the event's id. It refuses to know what
//! events mean.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::notify::{CloudEvent, Deliver, Undelivered};
use crate::clock::Clock;
use shelf::Shelf;

mod shelf;

/// How much waits at most for one sink. What exceeds it goes, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events.
    pub events: usize,
    /// Bytes of all events together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 * 1024 * 1024 }
    }
}

/// Why an event never reached its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Loss {
    /// Newer ones needed the room.
    Overflow,
    /// The sink said that it will never take it.
    Refused,
    /// Its file was damaged; it was set aside as `*.torn`.
    Torn,
    /// It could not be written to disk.
    DiskError,
}

impl Loss {
    /// Every reason, for metric labels.
    pub const ALL: [Self; 4] = [Self::Overflow, Self::Refused, Self::Torn, Self::DiskError];

    /// As a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Refused => "refused",
            Self::Torn => "torn",
            Self::DiskError => "disk_error",
        }
    }
}

/// What became of an event that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is on disk.
    Kept,
    /// One of its id waits, or was acknowledged not long ago.
    Known,
}

/// Why the outbox cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has no sink of this name.
    #[error("the configuration has no sink named `{0}`")]
    UnknownSink(String),
    /// A directory or file could not be read or written.
    #[error("{}: {source}", path.display())]
    Disk {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The events that wait, for all sinks. Clones share it.
#[derive(Clone)]
pub struct Outbox {
    queues: Arc<BTreeMap<String, Queue>>,
}

struct Queue {
    shelf: Arc<Mutex<Shelf>>,
    sink: Arc<dyn Deliver>,
    came: Notify,
    losses: Losses,
    delivered: AtomicU64,
}

#[derive(Debug, Default)]
struct Losses([AtomicU64; Loss::ALL.len()]);

impl Losses {
    fn add(&self, loss: Loss, count: usize) {
        self.0[loss as usize].fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("sinks", &self.queues.keys().collect::<Vec<_>>()).finish()
    }
}

impl Outbox {
    /// Opens the outbox below `dir` with what an earlier process left there. A sink's name is the name of its directory,
    /// so it may not hold a separator; the configuration's check sees to that.
    pub async fn open(dir: &Path, limits: Limits, sinks: BTreeMap<String, Arc<dyn Deliver>>) -> Result<Self, Error> {
        let mut queues = BTreeMap::new();
        for (name, sink) in sinks {
            let dir = dir.join(&name);
            let (shelf, torn) = blocking(move || Shelf::open(dir, limits)).await?;
            let queue = Queue {
                shelf: Arc::new(Mutex::new(shelf)),
                sink,
                came: Notify::new(),
                losses: Losses::default(),
                delivered: AtomicU64::new(0),
            };
            queue.losses.add(Loss::Torn, torn);
            if torn > 0 {
                tracing::warn!(sink = %name, torn, "events on disk were damaged and set aside");
            }
            queues.insert(name, queue);
        }
        Ok(Self { queues: Arc::new(queues) })
    }

    /// Keeps an event for a sink; when this returns it survives a crash.
    pub async fn put(&self, sink: &str, event: &CloudEvent) -> Result<Put, Error> {
        let queue = self.queues.get(sink).ok_or_else(|| Error::UnknownSink(sink.to_owned()))?;
        let text = serde_json::to_string(event).expect("an event is made of strings and JSON");
        let id = event.id.clone();
        let kept = with_shelf(queue, move |shelf| shelf.put(&id, &text)).await;
        match kept {
            Ok(None) => Ok(Put::Known),
            Ok(Some(displaced)) => {
                queue.losses.add(Loss::Overflow, displaced);
                queue.came.notify_one();
                Ok(Put::Kept)
            }
            Err(error) => {
                queue.losses.add(Loss::DiskError, 1);
                Err(error)
            }
        }
    }

    /// Delivers until cancelled: each sink in order, one event at a time, the first one again and again until it is
    /// acknowledged or refused for good.
    pub async fn run(&self, clock: Clock, cancel: CancellationToken) {
        let loops = self.queues.iter().map(|(name, queue)| deliver(name, queue, clock, &cancel));
        join_all(loops).await;
    }

    /// How many events wait, by sink.
    pub async fn waiting(&self) -> BTreeMap<String, usize> {
        let mut waiting = BTreeMap::new();
        for (name, queue) in self.queues.iter() {
            waiting.insert(name.clone(), queue.shelf.lock().await.len());
        }
        waiting
    }

    /// How many events each sink has acknowledged since the start.
    pub fn delivered(&self) -> BTreeMap<String, u64> {
        let of_sink = |(name, queue): (&String, &Queue)| (name.clone(), queue.delivered.load(Ordering::Relaxed));
        self.queues.iter().map(of_sink).collect()
    }

    /// How many events were lost since the start, by sink and reason; zeros included.
    pub fn losses(&self) -> Vec<(String, Loss, u64)> {
        let of_sink = |(name, queue): (&String, &Queue)| {
            Loss::ALL.map(|loss| (name.clone(), loss, queue.losses.0[loss as usize].load(Ordering::Relaxed)))
        };
        self.queues.iter().flat_map(of_sink).collect()
    }
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

async fn deliver(name: &str, queue: &Queue, clock: Clock, cancel: &CancellationToken) {
    let mut pause = FIRST_PAUSE;
    loop {
        let head = with_shelf(queue, Shelf::head).await;
        let wait = match head {
            Ok(Some(head)) => {
                let Some(answer) = cancel.run_until_cancelled(queue.sink.deliver(&head.text)).await else { return };
                match settle(name, queue, head, answer).await {
                    Settled::Done => {
                        pause = FIRST_PAUSE;
                        continue;
                    }
                    Settled::Later => Some(pause),
                }
            }
            Ok(None) => None,
            Err(shelf::Unreadable::Torn) => {
                queue.losses.add(Loss::Torn, 1);
                continue;
            }
            Err(shelf::Unreadable::Disk(error)) => {
                tracing::warn!(sink = name, %error, "the outbox cannot be read");
                Some(pause)
            }
        };
        let rested = async {
            match wait {
                Some(wait) => clock.sleep(wait).await,
                None => queue.came.notified().await,
            }
        };
        if cancel.run_until_cancelled(rested).await.is_none() {
            return;
        }
        if wait.is_some() {
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

enum Settled {
    Done,
    Later,
}

async fn settle(name: &str, queue: &Queue, head: shelf::Head, answer: Result<(), Undelivered>) -> Settled {
    match answer {
        Ok(()) => {
            queue.delivered.fetch_add(1, Ordering::Relaxed);
        }
        Err(Undelivered::Never(code)) => {
            tracing::warn!(sink = name, event = %head.id, code, "the sink refuses an event for good; it is dropped");
            queue.losses.add(Loss::Refused, 1);
        }
        Err(Undelivered::Later(why)) => {
            tracing::info!(sink = name, event = %head.id, %why, "event not delivered, trying again");
            return Settled::Later;
        }
    }
    match with_shelf(queue, move |shelf| shelf.done(&head)).await {
        Ok(()) => Settled::Done,
        Err(error) => {
            // It would be delivered again at once and without end: rather with pauses.
            tracing::warn!(sink = name, %error, "a delivered event cannot be removed from the outbox");
            Settled::Later
        }
    }
}

/// Files are read and synced on the blocking pool; the shelf stays locked, so that order is kept.
async fn with_shelf<T, F>(queue: &Queue, work: F) -> T
where
    T: Send + 'static,
    F: FnOnce(&mut Shelf) -> T + Send + 'static,
{
    let mut shelf = Arc::clone(&queue.shelf).lock_owned().await;
    blocking(move || work(&mut shelf)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("file work neither panics nor is aborted")
}
