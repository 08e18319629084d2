//! Measures signals: plans few queries for many policies, asks Prometheus or the Pods, and hands back readings or
//! typed reasons why there are none. Knows nothing of thresholds' meaning, phases or effects: it never compares a
//! reading with anything.
//!
//! Reading order: `plan` and `promql` (what is asked, pure), `reply`, `quantile` and `histogram` (what an answer
//! says, pure), `own` (policies' own queries), `prometheus` and `shared` (the client, and the runs of a round),
//! `scrape` (the Pods themselves), `transport`.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::model::policy::PolicyKey;
use crate::model::problem::Problem;
use crate::model::quantity::Unit;
use crate::model::reading::{GroupName, NoReading, Observation, PodName, Reading, SentQuery, SignalName};

mod credentials;
mod histogram;
mod options;
mod own_run;
mod plan;
mod prometheus;
mod promql;
mod quantile;
mod reply;
mod reqwest_transport;
mod scrape;
mod shared;
mod stats;
mod template;
mod transport;

pub use options::{Backend, Basic, CustomTemplate, Options, Prometheus, Scrape, TemplateLabels};
pub use quantile::{Bucket, quantile};
pub use reqwest_transport::ReqwestTransport;
pub use stats::BackendStats;
pub use template::{Endpoint, Named, Template, built_in as built_in_templates};
pub use transport::{Request, Response, Transport, TransportError};

use options::{Checked, CheckedBackend};
use plan::Plan;
use prometheus::{Client, Round};
use scrape::Scraper;

/// What one policy wants measured in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Whose it is.
    pub policy: PolicyKey,
    /// Namespace of target and Pods.
    pub namespace: String,
    /// Name of the topmost controller of the Pods.
    pub workload: Option<String>,
    /// Name of the target.
    pub service: String,
    /// The Pods that exist now; others in an answer are ignored. Without any, quantiles are `NotMeasured`.
    pub pods: Vec<PodRef>,
    /// Sets of Pods to take together.
    pub groups: BTreeMap<GroupName, Vec<PodName>>,
    /// Signals that are quantiles (0 to 1) of the template's histogram.
    pub quantiles: BTreeMap<SignalName, f64>,
    /// Signals with a query of the policy's own, and the unit of its answer.
    pub queries: BTreeMap<SignalName, (String, Unit)>,
    /// Thresholds in base units, only to note that one lies above all buckets.
    pub thresholds: BTreeMap<SignalName, f64>,
    /// Template by name, of the policy, else of its tenant; none: the configuration's default.
    pub template: Option<String>,
    /// Backend by name; none: the configuration's default.
    pub backend: Option<String>,
    /// The time span that rates cover.
    pub window: Duration,
    /// Older samples are no reading.
    pub stale_after: Duration,
    /// Fewer requests in `window` are no reading.
    pub min_requests: u64,
}

/// A Pod that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its name.
    pub name: PodName,
    /// Its address, once it has one; needed for scraping only.
    pub ip: Option<String>,
}

/// Why measuring cannot start. Nothing here depends on a backend being up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The `signals:` section of the configuration is wrong; the operator must change it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Problem>),
    /// A CA file cannot be read.
    #[error("cannot read the CA file {path}")]
    CaFile {
        /// As configured.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A CA file holds no certificate.
    #[error("{0} holds no PEM certificate")]
    NoCertificate(PathBuf),
    /// A backend's HTTP client cannot be built.
    #[error("cannot build the HTTP client of backend `{backend}`")]
    Client {
        /// Name of the backend.
        backend: String,
        /// Why.
        source: reqwest::Error,
    },
}

/// Measures for all policies. One per process; handles share it behind an `Arc`.
pub struct Signals {
    options: Checked,
    clients: BTreeMap<Arc<str>, Client>,
    scrapers: BTreeMap<Arc<str>, Scraper>,
    suspects: shared::Suspects,
    own: Mutex<own_run::Known>,
}

impl Signals {
    /// Checks `options`; connects to nothing yet.
    #[allow(clippy::needless_pass_by_value, reason = "the transport is this object's from here on")]
    pub fn new(options: &Options, transport: Arc<dyn Transport>, clock: Clock) -> Result<Self, Error> {
        let options = options.checked("signals").map_err(Error::Invalid)?;
        let (mut clients, mut scrapers) = (BTreeMap::new(), BTreeMap::new());
        let seed = clock.now().timestamp_micros().unsigned_abs();
        for (name, backend) in &options.backends {
            let (name, transport) = (name.clone(), transport.clone());
            match backend {
                CheckedBackend::Prometheus(prometheus) => {
                    let client = Client::new(name.clone(), prometheus.clone(), transport, clock, seed);
                    clients.insert(name, client);
                }
                CheckedBackend::Scrape(scrape) => {
                    scrapers.insert(name.clone(), Scraper::new(name, scrape.clone(), transport, clock));
                }
            }
        }
        Ok(Self { options, clients, scrapers, suspects: shared::Suspects::default(), own: Mutex::default() })
    }

    /// What each backend was asked since the start.
    pub fn stats(&self) -> BTreeMap<String, BackendStats> {
        let clients = self.clients.iter().map(|(name, client)| (name, &client.counters));
        let scrapers = self.scrapers.iter().map(|(name, scraper)| (name, &scraper.counters));
        clients.chain(scrapers).map(|(name, counters)| (name.to_string(), counters.snapshot())).collect()
    }

    /// Scrapes the Pods of asks on the backends' intervals until `cancel`. Without a scraping backend it only waits.
    pub async fn run(&self, cancel: &CancellationToken) {
        join_all(self.scrapers.values().map(|scraper| scraper.run(cancel))).await;
        cancel.cancelled().await;
    }

    /// Scrapes the Pods of asks once; for whoever steps through time by itself.
    pub async fn poll(&self) {
        join_all(self.scrapers.values().map(Scraper::poll)).await;
    }

    /// Measures everything that `asks` want, at evaluation time `now`. The answer has the order and length of
    /// `asks`; every signal asked for is in it. Never fails: what cannot be measured is a reason.
    pub async fn observe(&self, asks: &[impl Borrow<Ask>], now: DateTime<Utc>) -> Vec<Observation> {
        let asks: Vec<&Ask> = asks.iter().map(Borrow::borrow).collect();
        let suspects = self.suspects.at(now);
        let is_suspect = |shape: &plan::Shape<'_>, member: &plan::Member<'_>| {
            !suspects.is_empty() && suspects.contains_key(&shape.suspect_key(member))
        };
        let plan = plan::plan(&asks, &self.options, &is_suspect);
        let mut observations: Vec<Observation> = asks.iter().map(|ask| empty(ask, now)).collect();
        for (index, why) in &plan.unmeasured {
            for name in asks[*index].quantiles.keys() {
                observations[*index].readings.insert(name.clone(), Err(*why));
            }
        }
        self.read_scraped(&plan, &asks, now, &mut observations);
        let rounds = self.rounds(&plan, now).await;
        // Shared queries first: they are few, and most policies rest on them.
        let (shapes, own) = tokio::join!(self.measure_shapes(&plan, &rounds), self.ask_own(&plan, &rounds));
        for (shape, outcomes) in shapes {
            for (index, member) in &shape.asks {
                read_member(shape, &outcomes, *member, asks[*index], &mut observations[*index]);
            }
        }
        for (query, answer) in own {
            let text: Arc<str> = query.text.into();
            for (index, signal) in &query.users {
                let (ask, observation) = (asks[*index], &mut observations[*index]);
                let unit = ask.queries[*signal].1;
                observation.readings.insert((*signal).to_owned(), own_signal(answer, unit, ask.stale_after));
                observation.queries.push(SentQuery { backend: query.backend.clone(), text: text.clone() });
            }
        }
        observations
    }

    /// Answers shapes of scraping backends from what is kept.
    fn read_scraped(&self, plan: &Plan<'_>, asks: &[&Ask], now: DateTime<Utc>, observations: &mut [Observation]) {
        for shape in &plan.shapes {
            let Some(scraper) = self.scrapers.get(shape.backend) else { continue };
            let text = scraper.text(shape.template);
            for (index, member) in &shape.asks {
                let (ask, observation) = (asks[*index], &mut observations[*index]);
                let pods = &shape.members[*member].pods;
                let measured = scraper.measure(ask, shape.template_name, shape.template, pods, now);
                histogram::read(ask, shape.template.unit, pods, &measured, observation);
                observation.queries.push(SentQuery { backend: shape.backend.clone(), text: text.clone() });
            }
        }
    }

    /// One round per backend that is asked anything.
    async fn rounds(&self, plan: &Plan<'_>, now: DateTime<Utc>) -> HashMap<Arc<str>, Round> {
        let mut rounds = HashMap::new();
        let asked = plan.shapes.iter().map(|shape| shape.backend).chain(plan.own.iter().map(|own| own.backend));
        for backend in asked {
            if let (Some(client), false) = (self.clients.get(backend), rounds.contains_key(backend)) {
                rounds.insert(backend.clone(), client.round(now).await);
            }
        }
        rounds
    }

    async fn measure_shapes<'p, 'a>(
        &self,
        plan: &'p Plan<'a>,
        rounds: &HashMap<Arc<str>, Round>,
    ) -> Vec<(&'p plan::Shape<'a>, Vec<shared::Outcome>)> {
        join_all(plan.shapes.iter().filter_map(|shape| {
            let (client, round) = (self.clients.get(shape.backend)?, rounds.get(shape.backend)?);
            Some(async move { (shape, shared::measure(client, shape, round, &self.suspects).await) })
        }))
        .await
    }

    async fn ask_own<'p, 'a>(
        &self,
        plan: &'p Plan<'a>,
        rounds: &HashMap<Arc<str>, Round>,
    ) -> Vec<(&'p plan::OwnText<'a>, own_run::Answer)> {
        let freshness = own_run::prepare(&self.own, plan);
        let answers = join_all(freshness.into_iter().filter_map(|(query, prepared)| {
            let (client, round) = (self.clients.get(query.backend)?, rounds.get(query.backend)?);
            Some(async move { (query, own_run::ask(client, round, query.text, &prepared).await) })
        }))
        .await;
        own_run::remember(&self.own, &answers);
        answers
    }
}

/// An observation in which every signal still is not measured.
fn empty(ask: &Ask, now: DateTime<Utc>) -> Observation {
    Observation::blank(now, ask.quantiles.keys().chain(ask.queries.keys()).cloned(), NoReading::NotMeasured)
}

fn read_member(
    shape: &plan::Shape<'_>,
    outcomes: &[shared::Outcome],
    member: usize,
    ask: &Ask,
    observation: &mut Observation,
) {
    let (Some(outcome), Some(member)) = (outcomes.get(member), shape.members.get(member)) else { return };
    observation.queries.push(SentQuery { backend: shape.backend.clone(), text: outcome.text.clone() });
    match &outcome.measured {
        Ok(measured) => histogram::read(ask, shape.template.unit, &member.pods, measured, observation),
        Err(why) => {
            let all = || ask.quantiles.keys().map(|name| (name.clone(), Err(*why)));
            observation.readings.extend(all());
            observation.groups.extend(ask.groups.keys().map(|group| (group.clone(), all().collect())));
        }
    }
}

/// The reading that a query of the policy's own yields. No count of requests is to be had.
fn own_signal(answer: own_run::Answer, unit: Unit, stale_after: Duration) -> Result<Reading, NoReading> {
    let answer = answer?;
    if answer.age_seconds > stale_after.as_secs_f64() {
        return Err(NoReading::Stale);
    }
    let value = unit.to_base(histogram::finite(answer.value)?);
    Ok(Reading { value, unit: unit.base, age_seconds: answer.age_seconds, series: answer.series, requests: None })
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "results are exact, or their margin is written out")]
mod tests;
