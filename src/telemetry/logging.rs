//! Logs on stderr: one JSON object a line for machines, or lines for people. Fields of the enclosing spans
//! (`reconciler`, `request`, `tenant`, `policy`) stand beside those of the event, the innermost span winning.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt as text_format};

use crate::clock::Clock;

/// What is logged when neither the flag nor `RUST_LOG` says otherwise.
pub const DEFAULT_FILTER: &str =
    "info,kube_client=error,kube_runtime=warn,hyper=warn,tower=warn,rustls=warn,reqwest=warn";

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is none; the user must change it.
    #[error("log filter `{filter}`: {source}")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else has set up logging in this process.
    #[error("logging is set up already")]
    AlreadySet,
}

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err("expected json or text"),
        }
    }
}

/// Sends everything that is logged in this process to stderr. `filter` is in the syntax of `RUST_LOG`.
pub fn install(format: Format, filter: &str, clock: Clock) -> Result<(), Error> {
    let filter = EnvFilter::try_new(filter).map_err(|source| Error::Filter { filter: filter.to_owned(), source })?;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        Format::Json => Box::new(JsonLines::new(clock, std::io::stderr)),
        Format::Text => Box::new(text_format::layer().with_writer(std::io::stderr).with_target(false)),
    };
    let subscriber = Registry::default().with(lines.with_filter(filter));
    tracing::subscriber::set_global_default(subscriber).map_err(|_| Error::AlreadySet)
}

/// A layer that writes each event as one JSON line to what `open` returns.
pub struct JsonLines<F> {
    clock: Clock,
    open: F,
}

impl<F, W> JsonLines<F>
where
    F: Fn() -> W,
    W: Write,
{
    /// Lines carry the time of `clock`.
    pub fn new(clock: Clock, open: F) -> Self {
        Self { clock, open }
    }
}

/// The fields of one span, kept with it.
struct SpanFields(Map<String, Value>);

impl<S, F, W> Layer<S> for JsonLines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: Fn() -> W + 'static,
    W: Write,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields(Map::new());
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields(Map::new());
        values.record(&mut fields);
        if let Some(kept) = span.extensions_mut().get_mut::<SpanFields>() {
            kept.0.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let time = self.clock.now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let mut line = Map::new();
        line.insert("ts".to_owned(), time.into());
        line.insert("level".to_owned(), metadata.level().as_str().to_ascii_lowercase().into());
        line.insert("logger".to_owned(), metadata.target().into());
        if let Some(scope) = context.event_scope(event) {
            for span in scope.from_root() {
                if let Some(fields) = span.extensions().get::<SpanFields>() {
                    line.extend(fields.0.clone());
                }
            }
        }
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        line.extend(fields.0);
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // One write a line, so that lines of several threads never mix. A log that cannot be written has no place
        // to say so.
        let _ = (self.open)().write_all(text.as_bytes());
    }
}

/// Collects fields as JSON values; `message` becomes `msg`.
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            "message" => "msg",
            other => other.trim_start_matches("r#"),
        };
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        self.put(field, text.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines_of(log: impl FnOnce()) -> Vec<Value> {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = JsonLines::new(Clock::system(), move || writer.clone());
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_carries_the_fields_of_its_spans() {
        let lines = lines_of(|| {
            let outer = tracing::info_span!("reconcile", reconciler = "policy", request = %"trading/a", tenant = tracing::field::Empty);
            let _outer = outer.enter();
            outer.record("tenant", "core");
            let _inner = tracing::info_span!("apply", policy = "a").entered();
            tracing::warn!(pods = 3_u64, "isolated");
        });
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        for (field, value) in [
            ("reconciler", Value::from("policy")),
            ("request", "trading/a".into()),
            ("tenant", "core".into()),
            ("policy", "a".into()),
            ("pods", 3.into()),
            ("msg", "isolated".into()),
            ("level", "warn".into()),
        ] {
            assert_eq!(line[field], value, "{field} in {line}");
        }
        assert!(line["ts"].as_str().is_some_and(|ts| ts.ends_with('Z')), "{line}");
    }

    #[test]
    fn a_text_with_line_breaks_stays_one_line() {
        let lines = lines_of(|| tracing::info!("first\nsecond \"quoted\""));
        assert_eq!(lines[0]["msg"], "first\nsecond \"quoted\"");
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let refused = install(Format::Json, "tradeguard=loud", Clock::system());
        assert!(matches!(refused, Err(Error::Filter { .. })), "{refused:?}");
    }
}
