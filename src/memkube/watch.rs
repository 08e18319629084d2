//! Watching: the history read on behind the writers, as lines of a streaming body.
//!
//! A watch keeps a cursor into the shared history and no queue of its own, so a slow reader costs nothing and never holds a
//! writer up; when history has moved past its cursor, the stream ends with 410 Expired in the stream, as etcd's does.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::memkube::{
    list::Scope,
    object,
    route::{Form, Query},
    server::Server,
    status::{Cause, Failure, FieldError},
    store::{Change, Event, Store},
};

/// How many changes are encoded at a time; what a reader has not taken yet stays in the shared history.
const BATCH: usize = 64;

/// How often an idle watch that allows it gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// How long a watch without `timeoutSeconds` lives; the real server draws 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);

/// One open watch.
pub(crate) struct Watch {
    server: Arc<Server>,
    scope: Scope,
    /// Everything up to this version has been looked at.
    cursor: u64,
    initial: VecDeque<Arc<Value>>,
    /// The bookmark that ends a streamed list, until it is sent.
    marks_initial_end: bool,
    bookmarks: bool,
    lines: VecDeque<Bytes>,
    next_bookmark: Instant,
    deadline: Instant,
    ended: bool,
    wake: tokio::sync::watch::Receiver<u64>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    object: &'a Value,
}

impl Watch {
    /// Opens a watch; what is wrong with its options fails here, what is wrong with its version comes in the stream.
    pub(crate) fn open(server: &Arc<Server>, store: &Store, scope: Scope, query: &Query) -> Result<Self, Failure> {
        let sends_initial = check_options(query)?;
        let bookmarks = query.flag("allowWatchBookmarks");
        let asked = query.text("resourceVersion");
        let version: u64 = if asked.is_empty() { 0 } else { asked.parse().map_err(|_| bad_version(asked))? };
        let starts_with_all = sends_initial.unwrap_or(version == 0);
        let initial = if starts_with_all {
            let all = store.list(&scope.served.kind, &scope.namespace);
            all.filter(|((namespace, _), object)| scope.holds(namespace, object))
                .map(|(_, object)| Arc::clone(object))
                .collect()
        } else {
            VecDeque::new()
        };
        let from_now = starts_with_all || version == 0;
        let timeout = query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let now = Instant::now();
        Ok(Self {
            server: Arc::clone(server),
            cursor: if from_now { store.version() } else { version },
            initial,
            marks_initial_end: sends_initial == Some(true) && bookmarks,
            bookmarks,
            lines: VecDeque::new(),
            next_bookmark: now + BOOKMARK_EVERY,
            deadline: now + timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            ended: false,
            wake: store.subscribe(),
            scope,
        })
    }

    /// The body: a frame per line.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let line = watch.next_line().await?;
            Some((Ok(Frame::data(line)), watch))
        })
    }

    async fn next_line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            self.wake.borrow_and_update();
            self.read_on();
            if !self.lines.is_empty() {
                continue;
            }
            let bookmark_at = self.next_bookmark;
            tokio::select! {
                biased;
                changed = self.wake.changed() => self.ended = changed.is_err(),
                () = tokio::time::sleep_until(self.deadline) => self.end(),
                () = tokio::time::sleep_until(bookmark_at), if self.bookmarks => self.bookmark(),
            }
        }
    }

    /// Encodes what comes next: the initial objects, the mark at their end, then changes.
    fn read_on(&mut self) {
        let server = Arc::clone(&self.server);
        if !self.initial.is_empty() {
            let batch = self.initial.len().min(BATCH);
            let objects: Vec<Arc<Value>> = self.initial.drain(..batch).collect();
            for object in &objects {
                self.push("ADDED", object);
            }
        } else if self.marks_initial_end {
            self.marks_initial_end = false;
            self.push_bookmark(Some(json!({"k8s.io/initial-events-end": "true"})));
        } else {
            self.read_changes(&server.store());
        }
    }

    fn read_changes(&mut self, store: &MutexGuard<'_, Store>) {
        let changes: Vec<Arc<Event>> = match store.since(self.cursor) {
            Ok(changes) => changes.take(BATCH).map(Arc::clone).collect(),
            Err(failure) => {
                self.push_raw("ERROR", &failure.to_status());
                self.ended = true;
                return;
            }
        };
        for event in &changes {
            self.cursor = event.version;
            if event.resource == (self.scope.served.kind.group.clone(), self.scope.served.kind.plural.clone()) {
                self.push_event(event);
            }
        }
    }

    /// Selectors turn changes into comings and goings.
    fn push_event(&mut self, event: &Event) {
        let holds = |object: &Value| self.scope.holds(&event.place.0, object);
        let held = event.before.as_deref().is_some_and(holds);
        match (event.change, held, holds(&event.object)) {
            (Change::Deleted, true, _) => self.push("DELETED", &event.object),
            (Change::Added | Change::Modified, false, true) => self.push("ADDED", &event.object),
            (Change::Added | Change::Modified, true, true) => self.push("MODIFIED", &event.object),
            (Change::Modified, true, false) => {
                let mut last = event.before.as_deref().cloned().unwrap_or_default();
                object::set_meta(&mut last, "resourceVersion", Some(event.version.to_string().into()));
                self.push("DELETED", &last);
            }
            (Change::Added | Change::Modified, false, false) | (Change::Deleted | Change::Added, ..) => {}
        }
    }

    fn push(&mut self, kind: &str, stored: &Value) {
        let shown = self.scope.show(stored).into_owned();
        self.push_raw(kind, &shown);
    }

    fn push_raw(&mut self, kind: &str, object: &Value) {
        let mut line = serde_json::to_vec(&Line { kind, object }).unwrap_or_default();
        line.push(b'\n');
        self.lines.push_back(Bytes::from(line));
    }

    /// A periodic bookmark, if every change before it has been sent.
    fn bookmark(&mut self) {
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
        self.push_bookmark(None);
    }

    fn end(&mut self) {
        self.ended = true;
        if self.bookmarks {
            self.push_bookmark(None);
        }
    }

    fn push_bookmark(&mut self, annotations: Option<Value>) {
        let (api_version, kind) = match self.scope.form {
            Form::Full => (self.scope.served.api_version(), self.scope.served.kind.kind.as_str()),
            Form::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
        };
        let mut bookmark = json!({"kind": kind, "apiVersion": api_version, "metadata": {
            "resourceVersion": self.cursor.to_string(), "creationTimestamp": null,
        }});
        if let Some(annotations) = annotations {
            bookmark["metadata"]["annotations"] = annotations;
        }
        self.push_raw("BOOKMARK", &bookmark);
    }
}

/// Whether initial events are asked for or declined; absent, the version decides.
fn check_options(query: &Query) -> Result<Option<bool>, Failure> {
    let matching = query.text("resourceVersionMatch");
    let sends = match query.text("sendInitialEvents") {
        "" => None,
        text => Some(matches!(text, "true" | "1")),
    };
    let forbidden = |field: &str, detail: &str| {
        let error = FieldError::new(field, Cause::Forbidden, None, detail);
        Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &[error]))
    };
    match (sends, matching) {
        (None, "") | (Some(_), "NotOlderThan") => Ok(sends),
        (None, _) => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (Some(_), "") => {
            forbidden("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        }
        (Some(_), other) => {
            let detail = "supported values: \"NotOlderThan\"";
            let error = FieldError::new("resourceVersionMatch", Cause::NotSupported, Some(other.into()), detail);
            Err(Failure::invalid("meta.k8s.io", "ListOptions", "", &[error]))
        }
    }
}

fn bad_version(text: &str) -> Failure {
    let detail = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
    let error = FieldError::new("resourceVersion", Cause::Invalid, Some(text.into()), detail);
    Failure::invalid("", "", "", &[error])
}
