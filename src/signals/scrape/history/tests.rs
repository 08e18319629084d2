use super::*;

const KEEP: Duration = Duration::from_mins(1);

fn scraped(labels: &str, buckets: &[(f64, f64)]) -> Vec<Scraped> {
    buckets.iter().map(|&(le, value)| Scraped { labels: labels.into(), le, value }).collect()
}

fn one(fast: f64, all: f64) -> Vec<Scraped> {
    scraped("", &[(1.0, fast), (f64::INFINITY, all)])
}

fn rates(history: &History, now: f64) -> Option<(Vec<f64>, f64)> {
    let (rates, age) = history.rates(7, now, KEEP)?;
    assert!(rates.iter().all(|rate| rate.pod == 7));
    Some((rates.iter().map(|rate| rate.per_second).collect(), age))
}

#[test]
fn a_rate_is_the_difference_over_its_own_time() {
    let mut history = History::default();
    history.add(100.0, &one(1_000.0, 2_000.0), KEEP).unwrap();
    assert_eq!(rates(&history, 100.0), None, "one sample is no rate");
    history.add(110.0, &one(1_010.0, 2_020.0), KEEP).unwrap();
    history.add(120.0, &one(1_010.0, 2_040.0), KEEP).unwrap();
    assert_eq!(rates(&history, 125.0), Some((vec![0.5, 2.0], 5.0)));
    assert_eq!(rates(&history, 169.0), Some((vec![0.0, 2.0], 49.0)), "samples before the window do not count");
    assert_eq!(rates(&history, 175.0), None);
    assert_eq!(rates(&history, 115.0), Some((vec![1.0, 2.0], 5.0)), "nor do those after the time asked about");
}

#[test]
fn a_counter_that_falls_was_reset() {
    let mut history = History::default();
    for (at, count) in [(0.0, 90.0), (10.0, 100.0), (20.0, 4.0), (30.0, 14.0)] {
        history.add(at, &one(count, count), KEEP).unwrap();
    }
    assert_eq!(rates(&history, 30.0), Some((vec![24.0 / 30.0; 2], 0.0)));
}

#[test]
fn series_are_added_up_and_a_new_one_counts_from_its_second_sight() {
    let mut history = History::default();
    let both = |a: f64, b: f64| {
        [scraped("code=200", &[(1.0, a), (9.0, a)]), scraped("code=500", &[(1.0, b), (9.0, b)])].concat()
    };
    history.add(0.0, &scraped("code=200", &[(1.0, 5.0), (9.0, 5.0)]), KEEP).unwrap();
    history.add(10.0, &both(10.0, 1_000.0), KEEP).unwrap();
    history.add(20.0, &both(15.0, 1_010.0), KEEP).unwrap();
    assert_eq!(rates(&history, 20.0), Some((vec![1.0; 2], 0.0)));
}

#[test]
fn absent_series_and_other_edges_begin_anew() {
    let mut history = History::default();
    history.add(0.0, &one(1.0, 1.0), KEEP).unwrap();
    history.add(10.0, &one(2.0, 2.0), KEEP).unwrap();
    history.add(20.0, &[], KEEP).unwrap();
    assert_eq!(rates(&history, 20.0), None, "absent from the newest good scrape");
    history.add(30.0, &one(2.0, 2.0), KEEP).unwrap();
    history.add(40.0, &scraped("", &[(2.0, 1.0), (f64::INFINITY, 1.0)]), KEEP).unwrap();
    assert_eq!(rates(&history, 40.0), None, "other edges");
}

#[test]
fn buckets_that_do_not_fit_together_are_refused() {
    let mut history = History::default();
    let differ = [scraped("a", &[(1.0, 1.0), (9.0, 1.0)]), scraped("b", &[(2.0, 1.0), (9.0, 1.0)])].concat();
    assert_eq!(history.add(0.0, &differ, KEEP), Err(NoReading::IncompatibleBuckets));
    let twice = scraped("a", &[(1.0, 1.0), (1.0, 1.0)]);
    assert_eq!(history.add(0.0, &twice, KEEP), Err(NoReading::IncompatibleBuckets));
    assert_eq!(history.add(0.0, &one(f64::NAN, 1.0), KEEP), Err(NoReading::BadAnswer));
}

#[test]
fn timestamps_that_stand_still_are_nothing_new() {
    let mut history = History::default();
    history.add(10.0, &one(1.0, 1.0), KEEP).unwrap();
    history.add(20.0, &one(2.0, 2.0), KEEP).unwrap();
    history.add(20.0, &one(2.0, 2.0), KEEP).unwrap();
    assert_eq!(rates(&history, 70.0), None);
    assert_eq!(rates(&history, 60.0), Some((vec![0.1; 2], 40.0)), "its age grows");
}

#[test]
fn the_ring_holds_no_more_than_the_window() {
    let mut history = History::default();
    for second in 0..1_000 {
        history.add(f64::from(second), &one(1.0, 1.0), KEEP).unwrap();
    }
    assert_eq!(history.points.len(), 60);
}
