use super::*;

fn route(weights: &[(&str, Option<u32>)]) -> Vec<Weight> {
    let weight = |(subset, weight): &(&str, Option<u32>)| Weight {
        destination: Destination { host: "orders".to_owned(), subset: Some((*subset).to_owned()), port: None },
        weight: *weight,
    };
    weights.iter().map(weight).collect()
}

fn diverted_to(found: &[Weight], to: &str, share: u8, back: u8) -> Vec<u32> {
    let percent = |value| Percent::new(value).unwrap();
    let divert = Divert { to: to.to_owned(), share: percent(share), back: percent(back) };
    diverted(found, &divert).unwrap().into_iter().map(|weight| weight.weight.unwrap()).collect()
}

#[test]
fn the_whole_weight_goes_to_the_fallback_and_zero_is_written_out() {
    let found = route(&[("primary", Some(100)), ("cache-only", None)]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 0), [0, 100]);
}

#[test]
fn it_comes_back_step_by_step() {
    let found = route(&[("primary", Some(100)), ("cache-only", Some(0))]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 10), [10, 90]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 50), [50, 50]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 100), [100, 0]);
}

#[test]
fn a_total_other_than_a_hundred_is_kept() {
    for found in [[60, 60, 0], [1, 3, 0], [900, 100, 0], [33, 33, 34], [7, 0, 0]] {
        let route = route(&[("a", Some(found[0])), ("b", Some(found[1])), ("c", Some(found[2]))]);
        for share in [0, 1, 33, 50, 99, 100] {
            for back in [0, 10, 50, 99, 100] {
                let now = diverted_to(&route, "c", share, back);
                assert_eq!(now.iter().sum::<u32>(), found.iter().sum::<u32>(), "{found:?} {share} {back}");
            }
        }
        assert_eq!(diverted_to(&route, "c", 100, 100), found);
    }
}

#[test]
fn siblings_shrink_in_proportion() {
    let found = route(&[("a", Some(60)), ("b", Some(30)), ("c", Some(10))]);
    assert_eq!(diverted_to(&found, "c", 40, 0), [40, 20, 40]);
}

#[test]
fn a_probe_gets_some_traffic_even_of_a_small_total_and_never_all() {
    let found = route(&[("primary", Some(2)), ("cache-only", Some(0))]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 10), [1, 1]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 50), [1, 1]);
    // A total of one cannot be shared; a route that is found so is not touched at all (`plan`).
    let found = route(&[("primary", Some(1)), ("cache-only", Some(0))]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 10), [0, 1]);
    assert_eq!(diverted_to(&found, "cache-only", 100, 50), [0, 1]);
}

#[test]
fn no_destination_and_several_are_different_refusals() {
    let divert = |to: &str| Divert { to: to.to_owned(), share: Percent::ALL, back: Percent::NONE };
    let found = route(&[("primary", Some(100))]);
    assert_eq!(diverted(&found, &divert("cache-only")).unwrap_err().reason, Reason::NoFallbackDestination);
    let found = route(&[("cache-only", Some(1)), ("cache-only", Some(1))]);
    assert_eq!(diverted(&found, &divert("cache-only")).unwrap_err().reason, Reason::AmbiguousRoute);
    let found = route(&[("primary", Some(0)), ("cache-only", None)]);
    assert_eq!(diverted(&found, &divert("cache-only")).unwrap_err().reason, Reason::UnsupportedRoute);
}

#[test]
fn distance_grows_with_the_diversion() {
    let found = route(&[("primary", Some(100)), ("cache-only", Some(0))]);
    let at = |back| {
        let divert = Divert { to: "cache-only".to_owned(), share: Percent::ALL, back: Percent::new(back).unwrap() };
        distance(&found, &diverted(&found, &divert).unwrap())
    };
    assert_eq!([at(100), at(50), at(10), at(0)], [0, 50, 90, 100]);
}
