//! The quantile of a classic histogram, exactly as Prometheus computes it. One code for every backend.

/// One bucket: how many observations (or observations a second) are at most `le`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Upper edge.
    pub le: f64,
    /// Cumulative count or rate.
    pub count: f64,
}

/// Smaller relative differences between neighbours are floating-point noise.
const TOLERANCE: f64 = 1e-12;

/// The `q`-quantile of `buckets`, which are sorted and tidied in place.
///
/// As `histogram_quantile`: NaN for a NaN `q`, without a `+Inf` bucket, with fewer than two buckets or no
/// observation; -Inf below 0, +Inf above 1; the second highest edge when the rank lies in the `+Inf` bucket; else
/// linear within the bucket, whose lower edge is 0 for the first one (or its own edge, where that is not positive).
pub fn quantile(q: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    tidy(buckets);
    let (Some(last), true) = (buckets.last(), buckets.len() >= 2) else { return f64::NAN };
    if last.le != f64::INFINITY || last.count == 0.0 || last.count.is_nan() {
        return f64::NAN;
    }
    let mut rank = q * last.count;
    let finite = &buckets[..buckets.len() - 1];
    let index = finite.partition_point(|bucket| bucket.count < rank);
    let Some(bucket) = finite.get(index) else {
        return finite.last().map_or(f64::NAN, |bucket| bucket.le);
    };
    if index == 0 && bucket.le <= 0.0 {
        return bucket.le;
    }
    let mut start = 0.0;
    let mut count = bucket.count;
    if let Some(below) = index.checked_sub(1).and_then(|below| finite.get(below)) {
        start = below.le;
        count -= below.count;
        rank -= below.count;
    }
    start + (bucket.le - start) * (rank / count)
}

/// Sorts by edge, merges equal edges, and makes the counts monotone.
fn tidy(buckets: &mut Vec<Bucket>) {
    if !buckets.is_sorted_by(|a, b| a.le < b.le) {
        buckets.sort_by(|a, b| a.le.total_cmp(&b.le));
        buckets.dedup_by(|next, kept| {
            let same = next.le.total_cmp(&kept.le).is_eq();
            if same {
                kept.count += next.count;
            }
            same
        });
    }
    let Some(first) = buckets.first() else { return };
    let mut previous = first.count;
    for bucket in buckets.iter_mut().skip(1) {
        if bucket.count < previous || almost_equal(bucket.count, previous) {
            bucket.count = previous;
        } else {
            previous = bucket.count;
        }
    }
}

#[allow(clippy::float_cmp, reason = "zero and equality are exact here, as in the original")]
fn almost_equal(a: f64, b: f64) -> bool {
    if a == b {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "results are exact, or their margin is written out")]
mod tests {
    use super::*;

    fn of(q: f64, buckets: &[(f64, f64)]) -> f64 {
        quantile(q, &mut buckets.iter().map(|&(le, count)| Bucket { le, count }).collect())
    }

    const INF: f64 = f64::INFINITY;

    #[test]
    fn values_are_those_of_prometheus() {
        // From promtool: p50 within the second bucket, p99 saturated at the highest finite edge.
        let ten = [(0.1, 0.0), (0.5, 8.0), (1.0, 9.0), (10.0, 9.5), (INF, 10.0)];
        assert!((of(0.5, &ten) - 0.35).abs() < 1e-12);
        assert_eq!(of(0.99, &ten), 10.0);
        // Linear within a bucket; the first one starts at 0.
        assert!((of(0.5, &[(0.5, 10.0), (INF, 10.0)]) - 0.25).abs() < 1e-12);
        // Edges at which ranks fall exactly.
        let edges = [(1.0, 50.0), (2.0, 100.0), (INF, 100.0)];
        assert_eq!(of(0.5, &edges), 1.0);
        assert_eq!(of(1.0, &edges), 2.0);
        assert_eq!(of(0.0, &edges), 0.0);
    }

    #[test]
    fn quantiles_outside_of_range_are_infinite() {
        let any = [(1.0, 1.0), (INF, 1.0)];
        assert_eq!(of(-0.1, &any), -INF);
        assert_eq!(of(1.1, &any), INF);
        assert!(of(f64::NAN, &any).is_nan());
    }

    #[test]
    fn what_is_no_histogram_has_no_quantile() {
        assert!(of(0.5, &[]).is_nan());
        assert!(of(0.5, &[(INF, 3.0)]).is_nan(), "one bucket");
        assert!(of(0.5, &[(1.0, 1.0), (2.0, 3.0)]).is_nan(), "no +Inf");
        assert!(of(0.5, &[(1.0, 0.0), (INF, 0.0)]).is_nan(), "no observation");
        assert!(of(0.5, &[(1.0, f64::NAN), (INF, f64::NAN)]).is_nan());
    }

    #[test]
    fn a_first_edge_that_is_not_positive_is_the_answer() {
        assert_eq!(of(0.1, &[(-1.0, 5.0), (1.0, 10.0), (INF, 10.0)]), -1.0);
        assert_eq!(of(0.1, &[(0.0, 5.0), (1.0, 10.0), (INF, 10.0)]), 0.0);
    }

    #[test]
    fn order_equal_edges_and_falling_counts_are_tidied() {
        assert_eq!(of(0.5, &[(INF, 10.0), (2.0, 10.0), (1.0, 2.0), (1.0, 3.0)]), 1.0);
        assert!((of(0.9, &[(1.0, 10.0), (2.0, 9.0), (INF, 10.0)]) - 0.9).abs() < 1e-12);
        // A difference of floating-point noise must not make a bucket of its own.
        assert!(of(1.0, &[(1.0, 10.0), (2.0, 10.0 + 1e-13), (INF, 10.0 + 1e-13)]) <= 1.0 + 1e-9);
    }
}
