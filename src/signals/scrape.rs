//! Scrapes Pods directly: keeps the targets that asks named, fetches each on its interval, and answers from what it
//! keeps. An answer is made by the same code as one of Prometheus; here only the rates come from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt as _};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use tokio_util::sync::CancellationToken;

use super::Ask;
use super::histogram::Measured;
use super::options::CheckedScrape;
use super::stats::Counters;
use super::template::Template;
use super::transport::{Request, Response, Transport, TransportError};
use crate::clock::Clock;
use crate::model::reading::NoReading;

mod address;
mod history;
mod text;

use history::{History, Scraped};

/// Targets that nobody asked about for so many intervals, and at least for [`FORGET_AFTER`], are dropped.
const FORGET_INTERVALS: i32 = 20;
const FORGET_AFTER: TimeDelta = TimeDelta::minutes(10);
/// The transport answers in time by itself; this much later the scraper stops waiting for it.
const GRACE: Duration = Duration::from_millis(500);
const FORMATS: &str = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5";

/// One scraping backend.
pub(crate) struct Scraper {
    name: Arc<str>,
    options: CheckedScrape,
    transport: Arc<dyn Transport>,
    clock: Clock,
    targets: Mutex<BTreeMap<TargetKey, Target>>,
    pub counters: Counters,
}

/// A Pod at an address: another Pod of the name, or another address, has no history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TargetKey {
    namespace: String,
    pod: String,
    url: String,
}

struct Target {
    asked: DateTime<Utc>,
    /// The longest window that anybody asked for.
    window: Duration,
    /// By name of the template.
    histograms: BTreeMap<String, Histogram>,
    /// Why the newest scrape failed as a whole.
    failed: Option<NoReading>,
}

struct Histogram {
    template: Template,
    history: History,
    /// Why the newest scrape was no use for this histogram.
    failed: Option<NoReading>,
}

/// What is looked for in a body: name of the template, and the template.
type Wanted = Vec<(String, Template)>;

/// What was found of one template: the exporter's own time, if it gives one, and the buckets.
type FoundOf = (Option<f64>, Vec<Scraped>);

impl Scraper {
    pub(crate) fn new(name: Arc<str>, options: CheckedScrape, transport: Arc<dyn Transport>, clock: Clock) -> Self {
        let (targets, counters) = (Mutex::default(), Counters::default());
        Self { name, options, transport, clock, targets, counters }
    }

    /// Scrapes all targets on the interval until `cancel`.
    pub(crate) async fn run(&self, cancel: &CancellationToken) {
        loop {
            let started = self.clock.monotonic();
            let round = async {
                self.poll().await;
                let spent = self.clock.monotonic().saturating_sub(started);
                self.clock.sleep(self.options.interval.saturating_sub(spent)).await;
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Scrapes every target once.
    pub(crate) async fn poll(&self) {
        let now = self.clock.now();
        let forget =
            FORGET_AFTER.max(TimeDelta::from_std(self.options.interval).unwrap_or_default() * FORGET_INTERVALS);
        let due: Vec<(TargetKey, Wanted)> = {
            let mut targets = self.targets();
            targets.retain(|_, target| now - target.asked <= forget);
            let wanted = |target: &Target| {
                target.histograms.iter().map(|(name, histogram)| (name.clone(), histogram.template.clone())).collect()
            };
            targets.iter().map(|(key, target)| (key.clone(), wanted(target))).collect()
        };
        stream::iter(due)
            .for_each_concurrent(self.options.max_concurrent, |(key, wanted)| async move {
                let at = self.clock.now();
                let found = self.scrape(&key.url, &wanted).await;
                self.counters.answered(found.as_ref().map(|_| ()).map_err(|why| *why));
                self.take_in(&key, at, found);
            })
            .await;
    }

    fn targets(&self) -> MutexGuard<'_, BTreeMap<TargetKey, Target>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn scrape(&self, url: &str, wanted: &Wanted) -> Result<BTreeMap<String, FoundOf>, NoReading> {
        let timeout = self.clock.real(self.options.timeout);
        let request = Request {
            backend: self.name.clone(),
            method: Method::GET,
            url: url.to_owned(),
            headers: HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(FORMATS))]),
            body: bytes::Bytes::new(),
            timeout,
            max_bytes: self.options.max_bytes,
        };
        let sent = tokio::time::timeout(timeout + GRACE, self.transport.send(request)).await;
        let answer = sent.unwrap_or(Err(TransportError::Timeout(timeout)));
        if let Ok(response) = &answer {
            self.counters.received(0, response.body.len());
        }
        let found = answer.map_err(|error| (reason_of(&error), error.to_string())).and_then(|response| {
            let why = if response.status == 200 { NoReading::BadAnswer } else { NoReading::BackendError };
            self.read(&response, wanted).map_err(|detail| (why, detail))
        });
        found.map_err(|(why, detail)| {
            tracing::debug!(backend = %self.name, url, reason = %why.reason(), detail, "scrape failed");
            why
        })
    }

    /// The wanted buckets of a whole body.
    fn read(&self, response: &Response, wanted: &Wanted) -> Result<BTreeMap<String, FoundOf>, String> {
        if response.status != 200 {
            return Err(format!("HTTP {}", response.status));
        }
        if response.body.len() > self.options.max_bytes {
            return Err(format!("{} bytes, more than {}", response.body.len(), self.options.max_bytes));
        }
        let declared = response.content_type.as_deref();
        let format = text::Format::of(declared).ok_or_else(|| format!("{declared:?} is no metrics"))?;
        let body = std::str::from_utf8(&response.body).map_err(|error| error.to_string())?;
        let mut found: BTreeMap<String, FoundOf> =
            wanted.iter().map(|(name, _)| (name.clone(), FoundOf::default())).collect();
        let mut series = 0_usize;
        text::parse(body, format, |sample| {
            series += 1;
            for (name, template) in wanted {
                let bucket = bucket_of(template, &sample);
                if let (Some(bucket), Some((newest, buckets))) = (bucket, found.get_mut(name)) {
                    *newest = [*newest, sample.timestamp].into_iter().flatten().reduce(f64::max);
                    buckets.push(bucket);
                }
            }
        })
        .map_err(|error| error.to_string())?;
        if series > self.options.max_series {
            return Err(format!("{series} series, more than {}", self.options.max_series));
        }
        Ok(found)
    }

    fn take_in(&self, key: &TargetKey, at: DateTime<Utc>, found: Result<BTreeMap<String, FoundOf>, NoReading>) {
        let mut targets = self.targets();
        let Some(target) = targets.get_mut(key) else { return };
        target.failed = found.as_ref().err().copied();
        for (name, (own_time, buckets)) in found.unwrap_or_default() {
            if let Some(histogram) = target.histograms.get_mut(&name) {
                let at = own_time.unwrap_or_else(|| seconds_of(at));
                histogram.failed = histogram.history.add(at, &buckets, target.window).err();
            }
        }
    }

    /// What is known of the Pods of `ask`, whose indices are those of `pods`; makes them targets from now on.
    pub(crate) fn measure(
        &self,
        ask: &Ask,
        template_name: &str,
        template: &Template,
        pods: &[&str],
        now: DateTime<Utc>,
    ) -> Measured {
        let mut measured = Measured::default();
        let endpoint = template.endpoint.as_ref().unwrap_or(&self.options.endpoint);
        let mut targets = self.targets();
        for pod in &ask.pods {
            let Some(index) = pods.binary_search(&pod.name.as_str()).ok().and_then(|at| u32::try_from(at).ok()) else {
                continue;
            };
            // A Pod without an address has not started; one with an address that is no Pod's is never asked.
            let Some(ip) = &pod.ip else { continue };
            let Some(url) = address::url_of(ip, endpoint, self.options.allow_loopback) else {
                measured.failed.push((index, NoReading::NotMeasured));
                continue;
            };
            let key = TargetKey { namespace: ask.namespace.clone(), pod: pod.name.clone(), url };
            let target = targets.entry(key).or_insert_with(|| Target {
                asked: now,
                window: ask.window,
                histograms: BTreeMap::new(),
                failed: None,
            });
            target.asked = now;
            target.window = target.window.max(ask.window);
            let histogram = target.histograms.entry(template_name.to_owned()).or_insert_with(|| Histogram {
                template: template.clone(),
                history: History::default(),
                failed: None,
            });
            if let Some(why) = target.failed.or(histogram.failed) {
                measured.failed.push((index, why));
            }
            if let Some((rates, age)) = histogram.history.rates(index, seconds_of(now), ask.window) {
                measured.rates.extend(rates);
                measured.ages.push((index, age));
            }
        }
        measured.sort();
        measured
    }

    /// What status shows in place of a query.
    pub(crate) fn text(&self, template: &Template) -> Arc<str> {
        let endpoint = template.endpoint.as_ref().unwrap_or(&self.options.endpoint);
        format!("GET http://<pod>:{}{} {}_bucket", endpoint.port, endpoint.path, template.metric).into()
    }
}

fn seconds_of(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1e3
}

/// The sample as a bucket of `template`, if it is one. Namespace, workload and Pod are those of the target.
fn bucket_of(template: &Template, sample: &text::Sample<'_>) -> Option<Scraped> {
    if sample.name.strip_suffix("_bucket") != Some(template.metric.as_str()) {
        return None;
    }
    let value_of = |label: &str| sample.labels.iter().find(|(name, _)| name == label).map(|(_, value)| &**value);
    if template.matchers.iter().any(|(label, value)| value_of(label) != Some(value.as_str())) {
        return None;
    }
    let le = value_of("le")?.parse().unwrap_or(f64::NAN);
    let mut labels: Vec<_> = sample.labels.iter().filter(|(name, _)| name != "le").collect();
    labels.sort();
    let labels = labels.iter().fold(String::new(), |text, (name, value)| format!("{text}{name}\u{0}{value}\u{0}"));
    Some(Scraped { labels, le, value: sample.value })
}

fn reason_of(error: &TransportError) -> NoReading {
    match error {
        TransportError::Timeout(_) => NoReading::Timeout,
        TransportError::Connect(_) | TransportError::Invalid(_) => NoReading::BackendError,
        TransportError::TooLarge { .. } | TransportError::Broken(_) => NoReading::BadAnswer,
    }
}

#[cfg(test)]
mod tests;
