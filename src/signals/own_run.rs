//! Runs policies' own queries: each text once a round, slow ones last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::plan::{OwnText, Plan};
use super::prometheus::{Client, Lane, Query, Round};
use super::reply::{LABELS, ResultKind};
use crate::decide::check_query;
use crate::model::reading::NoReading;

/// What a query answered.
pub(crate) type Answer = Result<OneValue, NoReading>;

/// One number and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OneValue {
    pub value: f64,
    pub series: u32,
    pub age_seconds: f64,
}

/// What is remembered of query texts between rounds: parsing one costs more than asking it.
#[derive(Default)]
pub(crate) struct Known(BTreeMap<String, Entry>);

#[derive(Clone, Default)]
struct Entry {
    prepared: Prepared,
    /// Timed out in the last round.
    slow: bool,
}

/// How a text is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Prepared {
    /// With this second query for the age of its samples.
    WithFreshness(Arc<str>),
    /// Reads no metric.
    #[default]
    Constant,
    /// Not PromQL: it is not sent. Admission refuses it; only a text that went around admission comes here.
    Refused,
}

/// The own queries of a round, in the order in which they are to be asked.
pub(crate) fn prepare<'p, 'a>(known: &Mutex<Known>, plan: &'p Plan<'a>) -> Vec<(&'p OwnText<'a>, Prepared)> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kept = BTreeMap::new();
    let mut order: Vec<(bool, &OwnText<'_>, Prepared)> = Vec::with_capacity(plan.own.len());
    for query in &plan.own {
        let entry = known.0.remove(query.text).unwrap_or_else(|| Entry { prepared: prepared(query.text), slow: false });
        order.push((entry.slow, query, entry.prepared.clone()));
        kept.insert(query.text.to_owned(), entry);
    }
    known.0 = kept;
    order.sort_by_key(|(slow, _, _)| *slow);
    order.into_iter().map(|(_, query, prepared)| (query, prepared)).collect()
}

fn prepared(text: &str) -> Prepared {
    match check_query("query", text) {
        Ok(own) => own.freshness.map_or(Prepared::Constant, |freshness| Prepared::WithFreshness(freshness.into())),
        Err(_) => Prepared::Refused,
    }
}

/// Notes which queries were slow.
pub(crate) fn remember(known: &Mutex<Known>, answers: &[(&OwnText<'_>, Answer)]) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    for (query, answer) in answers {
        if let Some(entry) = known.0.get_mut(query.text) {
            entry.slow = *answer == Err(NoReading::Timeout);
        }
    }
}

/// Asks one text, and after it how old its samples are.
pub(crate) async fn ask(client: &Client, round: &Round, text: &str, prepared: &Prepared) -> Answer {
    if *prepared == Prepared::Refused {
        return Err(NoReading::QueryError);
    }
    let (value, series) = one(client, round, text).await?;
    let age_seconds = match prepared {
        Prepared::WithFreshness(freshness) => {
            // Without a sample under any selector the value was made of nothing (`or vector(0)`): no data.
            let (newest, _) = one(client, round, freshness).await?;
            (round.at.timestamp_millis() as f64 / 1e3 - newest).max(0.0)
        }
        _ => 0.0,
    };
    Ok(OneValue { value, series, age_seconds })
}

async fn one(client: &Client, round: &Round, text: &str) -> Result<(f64, u32), NoReading> {
    let mut value = None;
    let mut take = |sample: super::reply::Sample<'_>| value = Some(sample.value);
    let query = Query { lane: Lane::Own, text, labels: [""; LABELS] };
    let answer = client.query(query, round, &mut take).await.map_err(|failure| failure.why)?;
    match (answer.kind, answer.series, value) {
        (ResultKind::Scalar, _, _) => answer.scalar.map(|value| (value, 1)).ok_or(NoReading::BadAnswer),
        (ResultKind::Vector, 0, _) => Err(NoReading::NoData),
        (ResultKind::Vector, 1, Some(value)) => Ok((value, 1)),
        (ResultKind::Vector, _, _) => Err(NoReading::Several),
        (ResultKind::Other, _, _) => Err(NoReading::BadAnswer),
    }
}
