//! Runs the shared queries of a shape: chunk by chunk, and in halves where one fails, so that one workload whose
//! series break a query does not blind the others.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{FuturesUnordered, StreamExt as _};

use super::histogram::{Measured, NO_POD, Rate};
use super::plan::{Member, Shape, SuspectKey};
use super::prometheus::{Client, Failure, Lane, Query, Round};
use super::promql;
use super::reply::{ResultKind, Sample};
use crate::model::reading::NoReading;

/// How many further chunks a shape may be split into in one round.
const SPLITS: usize = 24;
/// So many failed chunks without a good one are the backend's fault, not a member's.
const HOPELESS: usize = 6;
/// How long a member that broke a query is asked apart.
const SUSPECT_MINUTES: i64 = 10;

/// What a round found of one member, and the query that it came from.
pub(crate) struct Outcome {
    pub measured: Result<Measured, NoReading>,
    pub text: Arc<str>,
}

/// Members that broke a shared query of late, until when.
#[derive(Default)]
pub(crate) struct Suspects(Mutex<HashMap<SuspectKey, DateTime<Utc>>>);

impl Suspects {
    /// Those that still count; drops the others.
    pub(crate) fn at(&self, now: DateTime<Utc>) -> HashMap<SuspectKey, DateTime<Utc>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, until| *until > now);
        known.clone()
    }

    fn update(&self, shape: &Shape<'_>, chunk: Range<usize>, now: DateTime<Utc>, broke: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that fails alone is the culprit: it stays apart for its time, even when it succeeds in between.
        let culprit = chunk.len() == 1;
        for member in shape.members.get(chunk).unwrap_or_default() {
            let key = shape.suspect_key(member);
            if broke {
                known.insert(key, now + TimeDelta::minutes(SUSPECT_MINUTES));
            } else if !culprit {
                known.remove(&key);
            }
        }
    }
}

/// Measures all members of `shape`; the answer is in their order.
pub(crate) async fn measure(client: &Client, shape: &Shape<'_>, round: &Round, suspects: &Suspects) -> Vec<Outcome> {
    let index = shape.index();
    let nothing: Arc<str> = Arc::from("");
    let blank = || Outcome { measured: Err(NoReading::NotMeasured), text: nothing.clone() };
    let mut outcomes: Vec<Outcome> = std::iter::repeat_with(blank).take(shape.members.len()).collect();
    let mut running = FuturesUnordered::new();
    for chunk in shape.chunks() {
        running.push(fetch(client, shape, &index, chunk, round));
    }
    let (mut splits, mut good, mut failed) = (SPLITS, 0_usize, Vec::new());
    while let Some((chunk, text, result)) = running.next().await {
        let failure = match result {
            Ok(found) => {
                good += 1;
                if chunk.start >= shape.suspects_from {
                    suspects.update(shape, chunk.clone(), round.at, false);
                }
                for (outcome, measured) in outcomes.get_mut(chunk).unwrap_or_default().iter_mut().zip(found) {
                    *outcome = Outcome { measured: Ok(measured), text: text.clone() };
                }
                continue;
            }
            Err(failure) => failure,
        };
        let hopeless = good == 0 && failed.len() >= HOPELESS;
        let parts = if failure.divisible && !hopeless { shape.split(chunk.clone()) } else { Vec::new() };
        failed.push(chunk.clone());
        if parts.is_empty() || parts.len() > splits {
            for outcome in outcomes.get_mut(chunk.clone()).unwrap_or_default() {
                *outcome = Outcome { measured: Err(failure.why), text: text.clone() };
            }
        } else {
            splits -= parts.len();
            for part in parts {
                running.push(fetch(client, shape, &index, part, round));
            }
        }
    }
    remember(shape, &outcomes, good, &failed, round, suspects);
    outcomes
}

/// Members of chunks that failed beside good ones are asked apart next time.
fn remember(
    shape: &Shape<'_>,
    outcomes: &[Outcome],
    good: usize,
    failed: &[Range<usize>],
    round: &Round,
    suspects: &Suspects,
) {
    if good == 0 {
        return;
    }
    for chunk in failed {
        let all_broke = outcomes.get(chunk.clone()).unwrap_or_default().iter().all(|outcome| outcome.measured.is_err());
        if all_broke {
            suspects.update(shape, chunk.clone(), round.at, true);
        }
    }
}

type Found = (Range<usize>, Arc<str>, Result<Vec<Measured>, Failure>);

/// Both queries of one chunk.
async fn fetch(
    client: &Client,
    shape: &Shape<'_>,
    index: &HashMap<(&str, &str), usize>,
    chunk: Range<usize>,
    round: &Round,
) -> Found {
    let selection = shape.selection(chunk.clone());
    let buckets: Arc<str> = promql::bucket_query(shape.template, &selection, shape.window).into();
    let freshness = promql::freshness_query(shape.template, &selection);
    let template = shape.template;
    let labels = [&*template.namespace_label, &*template.name_label, &*template.pod_label, "le"];
    let members = shape.members.get(chunk.clone()).unwrap_or_default();

    let mut rates: Vec<Vec<Rate>> = vec![Vec::new(); members.len()];
    let mut ages: Vec<Vec<(u32, f64)>> = vec![Vec::new(); members.len()];
    let mut place = Place { members, index, first: chunk.start, last: 0 };
    let mut unreadable = 0_usize;
    let mut take_rate = |sample: Sample<'_>| {
        let Some((member, pod)) = place.of(&sample) else { return };
        match sample.labels[3].and_then(|le| le.parse::<f64>().ok()) {
            Some(le) => rates[member].push(Rate { pod, le, per_second: sample.value }),
            None => unreadable += 1,
        }
    };
    let now = round.at.timestamp_millis() as f64 / 1e3;
    let mut place_of_age = Place { members, index, first: chunk.start, last: 0 };
    let mut take_age = |sample: Sample<'_>| {
        if let Some((member, pod)) = place_of_age.of(&sample) {
            ages[member].push((pod, (now - sample.value).max(0.0)));
        }
    };
    let query = |text| Query { lane: Lane::Shared, text, labels };
    let (first, second) = tokio::join!(
        client.query(query(&buckets), round, &mut take_rate),
        client.query(query(&freshness), round, &mut take_age),
    );
    let result = first.and_then(|first| second.map(|second| (first, second))).and_then(|(first, second)| {
        if first.kind == ResultKind::Vector && second.kind == ResultKind::Vector && unreadable == 0 {
            return Ok(());
        }
        let detail = "a shared query answered with something other than buckets".to_owned();
        Err(Failure { why: NoReading::BadAnswer, divisible: false, detail })
    });
    let found = result.map(|()| {
        rates
            .into_iter()
            .zip(ages)
            .map(|(rates, ages)| {
                let mut measured = Measured { rates, ages, failed: Vec::new() };
                measured.sort();
                measured
            })
            .collect()
    });
    (chunk, buckets, found)
}

/// Finds the member and Pod of a sample. What nobody asked for, and Pods that do not exist, have none.
struct Place<'s, 'a> {
    members: &'s [Member<'a>],
    index: &'s HashMap<(&'a str, &'a str), usize>,
    /// Index of the first of `members` in the shape.
    first: usize,
    /// The member of the sample before: neighbours mostly belong together.
    last: usize,
}

impl Place<'_, '_> {
    fn of(&mut self, sample: &Sample<'_>) -> Option<(usize, u32)> {
        let (namespace, name) = (sample.labels[0]?, sample.labels[1]?);
        let same = self.members.get(self.last).is_some_and(|last| last.namespace == namespace && last.name == name);
        if !same {
            self.last = self.index.get(&(namespace, name))?.checked_sub(self.first)?;
        }
        let member = self.members.get(self.last)?;
        match sample.labels[2].filter(|pod| !pod.is_empty()) {
            Some(pod) => {
                let at = member.pods.binary_search(&pod).ok()?;
                Some((self.last, u32::try_from(at).ok()?))
            }
            None => Some((self.last, NO_POD)),
        }
    }
}
