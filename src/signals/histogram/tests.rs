use super::*;
use crate::model::reading::SUBSET_PROBE;
use crate::signals::tests::ask;

const INF: f64 = f64::INFINITY;

fn rates(pod: u32, buckets: &[(f64, f64)]) -> Vec<Rate> {
    buckets.iter().map(|&(le, per_second)| Rate { pod, le, per_second }).collect()
}

/// Two Pods `a` and `b`, a request a second each: `a` within 100 ms, `b` between 100 ms and 1 s.
fn two_pods() -> Measured {
    let mut measured = Measured {
        rates: [rates(1, &[(0.1, 0.0), (1.0, 1.0), (INF, 1.0)]), rates(0, &[(INF, 1.0), (0.1, 1.0), (1.0, 1.0)])]
            .concat(),
        ages: vec![(0, 3.0), (1, 7.0)],
        failed: Vec::new(),
    };
    measured.sort();
    measured
}

fn check(ask: &Ask, measured: &Measured) -> Observation {
    let mut observation = Observation::blank(chrono::DateTime::UNIX_EPOCH, [], NoReading::NotMeasured);
    read(ask, Unit::SECONDS, &["a", "b"], measured, &mut observation);
    observation
}

fn value(signal: &Signal) -> f64 {
    signal.as_ref().unwrap().value
}

#[test]
fn the_whole_is_summed_before_the_quantile_is_taken() {
    let observation = check(&ask("orders", &["a", "b"]), &two_pods());
    let whole = observation.readings["p99"].as_ref().unwrap();
    // 2 requests a second, of which 1 within 100 ms: rank 1.98 lies 98 % into the second bucket.
    assert!((whole.value - (0.1 + 0.9 * 0.98)).abs() < 1e-12, "{whole:?}");
    assert_eq!((whole.series, whole.age_seconds, whole.requests), (2, 3.0, Some(120.0)));
    assert!((value(&observation.pods["a"]["p99"]) - 0.099).abs() < 1e-12);
    assert!((value(&observation.pods["b"]["p99"]) - 0.991).abs() < 1e-12);
    assert_eq!(observation.pods["b"]["p99"].as_ref().unwrap().age_seconds, 7.0);
}

#[test]
fn a_pod_that_is_gone_counts_nowhere() {
    let mut ask = ask("orders", &["a"]);
    ask.groups = BTreeMap::from([(SUBSET_PROBE.to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
    let observation = check(&ask, &two_pods());
    assert!((value(&observation.readings["p99"]) - 0.099).abs() < 1e-12);
    assert_eq!(observation.pods.keys().collect::<Vec<_>>(), ["a"]);
    assert!((value(&observation.groups[SUBSET_PROBE]["p99"]) - 0.099).abs() < 1e-12);
}

#[test]
fn a_group_is_its_pods_taken_together() {
    let mut ask = ask("orders", &["a", "b"]);
    ask.groups = BTreeMap::from([
        ("slow".to_owned(), vec!["b".to_owned()]),
        ("both".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
        ("none".to_owned(), Vec::new()),
    ]);
    let observation = check(&ask, &two_pods());
    assert_eq!(observation.groups["slow"], observation.pods["b"]);
    assert_eq!(observation.groups["both"]["p99"], observation.readings["p99"]);
    assert_eq!(observation.groups["none"]["p99"], Err(NoReading::NoData));
}

#[test]
fn series_without_a_pod_are_the_whole_where_no_series_has_one() {
    let mut measured =
        Measured { rates: rates(NO_POD, &[(0.1, 1.0), (INF, 1.0)]), ages: vec![(NO_POD, 1.0)], failed: Vec::new() };
    let observation = check(&ask("orders", &["a", "b"]), &measured);
    assert!((value(&observation.readings["p99"]) - 0.099).abs() < 1e-12);
    assert!(observation.pods.is_empty());
    // Beside series of Pods they would count twice.
    measured.rates.extend(two_pods().rates);
    measured.ages.extend(two_pods().ages);
    measured.sort();
    assert_eq!(check(&ask("orders", &["a", "b"]), &measured).readings["p99"].as_ref().unwrap().series, 2);
}

#[test]
fn each_lack_has_its_reason() {
    let whole = |measured: &Measured, ask: &Ask| check(ask, measured).readings["p99"].clone();
    let plain = ask("orders", &["a", "b"]);
    assert_eq!(whole(&Measured::default(), &plain), Err(NoReading::NoData));

    let stale = Measured { ages: vec![(0, 61.0), (1, 60.1)], ..two_pods() };
    assert_eq!(whole(&stale, &plain), Err(NoReading::Stale));
    let ended = Measured { ages: Vec::new(), ..two_pods() };
    assert_eq!(whole(&ended, &plain), Err(NoReading::Stale), "rates whose series has ended");

    let mut picky = plain.clone();
    picky.min_requests = 121;
    assert_eq!(whole(&two_pods(), &picky), Err(NoReading::TooFewRequests));
    picky.min_requests = 120;
    assert!(whole(&two_pods(), &picky).is_ok());
    assert_eq!(check(&picky, &two_pods()).pods["a"]["p99"], Err(NoReading::TooFewRequests), "a Pod's own count");

    let idle = Measured { rates: rates(0, &[(0.1, 0.0), (INF, 0.0)]), ..two_pods() };
    assert_eq!(whole(&idle, &plain), Err(NoReading::NaN));

    let failed = Measured { rates: Vec::new(), ages: Vec::new(), failed: vec![(0, NoReading::Timeout)] };
    assert_eq!(whole(&failed, &plain), Err(NoReading::Timeout));
    assert_eq!(check(&plain, &failed).pods["b"]["p99"], Err(NoReading::NoData));
}

#[test]
fn buckets_that_differ_between_pods_are_no_reading_of_the_whole() {
    let mut measured = two_pods();
    measured.rates[0].le = 0.2;
    let observation = check(&ask("orders", &["a", "b"]), &measured);
    assert_eq!(observation.readings["p99"], Err(NoReading::IncompatibleBuckets));
    assert!(observation.pods["a"]["p99"].is_ok());
}

#[test]
fn a_threshold_above_all_buckets_is_noted() {
    let mut ask = ask("orders", &["a", "b"]);
    for (threshold, noted) in [(0.999, false), (1.0, true), (5.0, true)] {
        ask.thresholds.insert("p99".into(), threshold);
        assert_eq!(check(&ask, &two_pods()).notes.contains(&Reason::ThresholdAboveBuckets), noted, "{threshold}");
    }
    // The edge is in the unit of the metric, the threshold in base units.
    let mut observation = Observation::blank(chrono::DateTime::UNIX_EPOCH, [], NoReading::NotMeasured);
    ask.thresholds.insert("p99".into(), 0.8);
    read(&ask, Unit::MILLISECONDS, &["a", "b"], &two_pods(), &mut observation);
    assert!(!observation.notes.is_empty());
}

#[test]
fn milliseconds_become_seconds() {
    let measured = Measured { rates: rates(0, &[(500.0, 0.0), (1000.0, 1.0), (INF, 1.0)]), ..two_pods() };
    let mut observation = Observation::blank(chrono::DateTime::UNIX_EPOCH, [], NoReading::NotMeasured);
    read(&ask("orders", &["a"]), Unit::MILLISECONDS, &["a", "b"], &measured, &mut observation);
    assert!((value(&observation.readings["p99"]) - 0.995).abs() < 1e-12);
}
