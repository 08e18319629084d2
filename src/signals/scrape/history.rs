//! What was scraped of one histogram of one Pod: counters with their resets taken out, over the longest window. Pure.
//!
//! A rate is (last - first) / (time of last - time of first) over the samples in the window. Prometheus extrapolates
//! to the window's edges, so its rates differ by up to about one scrape interval over the window; a quantile, which is
//! a ratio of rates, differs less.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::super::histogram::Rate;
use crate::model::reading::NoReading;

/// One bucket series in one scrape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scraped {
    /// Its labels but `le`, in a canonical order.
    pub labels: String,
    /// Its upper edge.
    pub le: f64,
    /// The counter.
    pub value: f64,
}

/// One histogram of one Pod.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Ascending; the same for all series.
    edges: Vec<f64>,
    /// The counters as last seen, by labels and index of the edge.
    last: HashMap<String, Vec<f64>>,
    /// By edge: what was counted since the beginning, over all series and resets.
    counted: Vec<f64>,
    points: VecDeque<Point>,
}

#[derive(Debug)]
struct Point {
    /// Seconds since the epoch.
    at: f64,
    counted: Vec<f64>,
}

impl History {
    /// Takes in what one scrape showed, at `at` seconds, and forgets what is older than `keep`. Nothing shown ends the
    /// history: a series that is absent from a good scrape is stale at once.
    pub(crate) fn add(&mut self, at: f64, scraped: &[Scraped], keep: Duration) -> Result<(), NoReading> {
        let added = self.try_add(at, scraped);
        if added.is_err() || scraped.is_empty() {
            *self = Self::default();
        }
        while self.points.front().is_some_and(|point| point.at <= at - keep.as_secs_f64()) {
            self.points.pop_front();
        }
        added
    }

    fn try_add(&mut self, at: f64, scraped: &[Scraped]) -> Result<(), NoReading> {
        let Some(shown) = by_series(scraped)? else { return Ok(()) };
        if shown.edges != self.edges {
            *self = Self { counted: vec![0.0; shown.edges.len()], edges: shown.edges, ..Self::default() };
        }
        // An exporter's own timestamps that do not move show nothing new.
        if self.points.back().is_some_and(|point| point.at >= at) {
            return Ok(());
        }
        for (labels, values) in &shown.series {
            // The first sight of a counter counts nothing: what it holds may be years old.
            let Some(before) = self.last.get(labels) else { continue };
            for ((total, value), before) in self.counted.iter_mut().zip(values).zip(before) {
                *total += if value < before { *value } else { value - before };
            }
        }
        self.last = shown.series;
        self.points.push_back(Point { at, counted: self.counted.clone() });
        Ok(())
    }

    /// The rates of all buckets over `window` up to `now`, marked as those of `pod`, and the age of the newest sample;
    /// none with fewer than two samples in the window.
    pub(crate) fn rates(&self, pod: u32, now: f64, window: Duration) -> Option<(Vec<Rate>, f64)> {
        let from = now - window.as_secs_f64();
        let mut within = self.points.iter().filter(|point| point.at > from && point.at <= now);
        let first = within.next()?;
        let last = within.next_back()?;
        let seconds = last.at - first.at;
        let counted = last.counted.iter().zip(&first.counted).map(|(last, first)| (last - first) / seconds);
        let rates = self.edges.iter().zip(counted).map(|(le, per_second)| Rate { pod, le: *le, per_second }).collect();
        Some((rates, (now - last.at).max(0.0)))
    }
}

struct Shown {
    edges: Vec<f64>,
    series: HashMap<String, Vec<f64>>,
}

/// Brings the buckets of each series together. All must have the same edges.
fn by_series(scraped: &[Scraped]) -> Result<Option<Shown>, NoReading> {
    let mut series: HashMap<&str, Vec<(f64, f64)>> = HashMap::new();
    for one in scraped {
        if one.le.is_nan() || !one.value.is_finite() {
            return Err(NoReading::BadAnswer);
        }
        series.entry(&one.labels).or_default().push((one.le, one.value));
    }
    let mut edges: Option<Vec<f64>> = None;
    let mut values = HashMap::with_capacity(series.len());
    for (labels, mut buckets) in series {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let own: Vec<f64> = buckets.iter().map(|(le, _)| *le).collect();
        let distinct: BTreeSet<u64> = own.iter().map(|le| le.to_bits()).collect();
        if distinct.len() != own.len() || edges.as_ref().is_some_and(|edges| *edges != own) {
            return Err(NoReading::IncompatibleBuckets);
        }
        edges = Some(own);
        values.insert(labels.to_owned(), buckets.into_iter().map(|(_, value)| value).collect());
    }
    Ok(edges.map(|edges| Shown { edges, series: values }))
}

#[cfg(test)]
mod tests;
