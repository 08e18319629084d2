//! From bucket rates per Pod to readings of the whole, of Pods and of groups; the same for every backend. Pure.

use std::collections::BTreeMap;

use super::Ask;
use super::quantile::{Bucket, quantile};
use crate::model::quantity::Unit;
use crate::model::reading::{NoReading, Observation, Reading, Readings, Signal};
use crate::model::reason::Reason;

/// The Pod index of series that carry no Pod.
pub(crate) const NO_POD: u32 = u32::MAX;

/// The rate of one bucket of one Pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Index into the Pods of the member.
    pub pod: u32,
    /// Upper edge, in the unit of the template.
    pub le: f64,
    /// Observations a second.
    pub per_second: f64,
}

/// What a backend knows of one workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// All buckets.
    pub rates: Vec<Rate>,
    /// Seconds since the newest sample, by Pod.
    pub ages: Vec<(u32, f64)>,
    /// Pods that could not be asked (scraping).
    pub failed: Vec<(u32, NoReading)>,
}

impl Measured {
    /// Brings the buckets of a Pod together, in the order of their edges. To be called before any reading is taken.
    pub(crate) fn sort(&mut self) {
        let key = |rate: &Rate| (rate.pod, rate.le);
        if !self.rates.is_sorted_by(|a, b| key(a) <= key(b)) {
            self.rates.sort_unstable_by(|a, b| a.pod.cmp(&b.pod).then(a.le.total_cmp(&b.le)));
        }
    }

    fn rates_of(&self, pod: u32) -> &[Rate] {
        let from = self.rates.partition_point(|rate| rate.pod < pod);
        let rest = self.rates.get(from..).unwrap_or_default();
        rest.get(..rest.partition_point(|rate| rate.pod == pod)).unwrap_or_default()
    }
}

/// Adds the readings of `ask`'s quantiles to `observation`. `pods` are the names behind the indices of `measured`.
pub(crate) fn read(ask: &Ask, unit: Unit, pods: &[&str], measured: &Measured, observation: &mut Observation) {
    let index_of = |name: &str| pods.binary_search(&name).ok().and_then(|index| u32::try_from(index).ok());
    let existing: Vec<(u32, &str)> =
        ask.pods.iter().filter_map(|pod| Some((index_of(&pod.name)?, pod.name.as_str()))).collect();
    let by_pod = existing
        .iter()
        .any(|(pod, _)| !measured.rates_of(*pod).is_empty() || measured.failed.iter().any(|(failed, _)| failed == pod));
    let mut sum = Sum::default();
    if by_pod {
        sum.fill(measured, existing.iter().map(|(pod, _)| *pod));
    } else {
        sum.fill(measured, [NO_POD].into_iter());
    }
    for (signal, &q) in &ask.quantiles {
        observation.readings.insert(signal.clone(), sum.signal(q, ask, unit));
    }
    note_saturation(ask, unit, &sum, observation);
    if by_pod {
        for (pod, name) in &existing {
            sum.fill(measured, [*pod].into_iter());
            observation.pods.insert((*name).to_owned(), sum.readings(ask, unit));
        }
    }
    for (group, members) in &ask.groups {
        sum.fill(
            measured,
            members
                .iter()
                .filter_map(|name| index_of(name))
                .filter(|pod| existing.iter().any(|(other, _)| other == pod)),
        );
        observation.groups.insert(group.clone(), sum.readings(ask, unit));
    }
}

/// A threshold at or above the highest finite edge can never be exceeded: the quantile saturates there.
fn note_saturation(ask: &Ask, unit: Unit, sum: &Sum, observation: &mut Observation) {
    let highest = sum
        .buckets
        .iter()
        .map(|bucket| bucket.le)
        .filter(|le| le.is_finite())
        .fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    let Some(highest) = highest.map(|edge| unit.to_base(edge)) else { return };
    let above =
        ask.quantiles.keys().any(|name| ask.thresholds.get(name).is_some_and(|threshold| *threshold >= highest));
    if above && !observation.notes.contains(&Reason::ThresholdAboveBuckets) {
        observation.notes.push(Reason::ThresholdAboveBuckets);
    }
}

/// The buckets of some Pods, added up before any quantile is taken.
#[derive(Default)]
struct Sum {
    buckets: Vec<Bucket>,
    series: u32,
    incompatible: bool,
    /// Age of the newest sample.
    age: Option<f64>,
    failed: Option<NoReading>,
}

impl Sum {
    fn fill(&mut self, measured: &Measured, pods: impl Iterator<Item = u32>) {
        self.buckets.clear();
        (self.series, self.incompatible, self.age, self.failed) = (0, false, None, None);
        for pod in pods {
            if let Some((_, why)) = measured.failed.iter().find(|(failed, _)| *failed == pod) {
                self.failed.get_or_insert(*why);
            }
            let rates = measured.rates_of(pod);
            if rates.is_empty() {
                continue;
            }
            self.series += 1;
            let age = measured.ages.iter().filter(|(of, _)| *of == pod).map(|(_, age)| *age).reduce(f64::min);
            self.age = [self.age, age].into_iter().flatten().reduce(f64::min);
            self.add(rates);
        }
    }

    fn add(&mut self, rates: &[Rate]) {
        if self.buckets.is_empty() {
            self.buckets.extend(rates.iter().map(|rate| Bucket { le: rate.le, count: rate.per_second }));
            return;
        }
        let same = self.buckets.len() == rates.len()
            && self.buckets.iter().zip(rates).all(|(bucket, rate)| bucket.le.total_cmp(&rate.le).is_eq());
        if !same {
            self.incompatible = true;
            return;
        }
        for (bucket, rate) in self.buckets.iter_mut().zip(rates) {
            bucket.count += rate.per_second;
        }
    }

    fn readings(&mut self, ask: &Ask, unit: Unit) -> Readings {
        ask.quantiles.iter().map(|(name, &q)| (name.clone(), self.signal(q, ask, unit))).collect::<BTreeMap<_, _>>()
    }

    fn signal(&mut self, q: f64, ask: &Ask, unit: Unit) -> Signal {
        if self.series == 0 {
            return Err(self.failed.unwrap_or(NoReading::NoData));
        }
        // Rates without a newest sample come from a series that ended within the window.
        let fresh = self.age.filter(|age| *age <= ask.stale_after.as_secs_f64());
        let age_seconds = fresh.ok_or(self.failed.unwrap_or(NoReading::Stale))?;
        if self.incompatible {
            return Err(NoReading::IncompatibleBuckets);
        }
        let value = finite(quantile(q, &mut self.buckets))?;
        let requests = self.buckets.last().map_or(0.0, |bucket| bucket.count * ask.window.as_secs_f64());
        // A rate times its window is a whole number but for the last digits.
        if requests + 1e-6 < ask.min_requests as f64 {
            return Err(NoReading::TooFewRequests);
        }
        Ok(Reading {
            value: unit.to_base(value),
            unit: unit.base,
            age_seconds,
            series: self.series,
            requests: Some(requests),
        })
    }
}

/// A value that can be a reading.
pub(crate) fn finite(value: f64) -> Result<f64, NoReading> {
    if value.is_nan() {
        Err(NoReading::NaN)
    } else if value.is_infinite() {
        Err(NoReading::Inf)
    } else {
        Ok(value)
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "results are exact, or their margin is written out")]
mod tests;
