#![allow(clippy::needless_pass_by_value)] // `json!` at the call reads better than a reference to it

use serde_json::json;

use super::*;

fn weight(subset: &str, weight: impl Into<Option<u32>>) -> Weight {
    let destination = Destination { host: "orders".to_owned(), subset: Some(subset.to_owned()), port: None };
    Weight { destination, weight: weight.into() }
}

fn pair(primary: u32, cache: u32) -> Vec<Weight> {
    vec![weight("primary", primary), weight("cache-only", cache)]
}

fn entry(subset: &str, weight: &Value) -> Value {
    let mut entry = json!({"destination": {"host": "orders", "subset": subset}});
    if !weight.is_null() {
        entry["weight"] = weight.clone();
    }
    entry
}

fn service(routes: Value) -> Value {
    json!({
        "metadata": {"namespace": "trading", "name": "orders", "uid": "u-1", "resourceVersion": "7"},
        "spec": {"http": routes},
    })
}

fn named(name: &str, primary: &Value, cache: &Value) -> Value {
    json!({"name": name, "route": [entry("primary", primary), entry("cache-only", cache)]})
}

fn key(name: Option<&str>, matches: Option<&str>) -> RouteKey {
    RouteKey {
        namespace: "trading".to_owned(),
        virtual_service: "orders".to_owned(),
        name: name.map(str::to_owned),
        matches: matches.map(str::to_owned),
    }
}

fn patched(service: &Value, operations: &[Value]) -> Value {
    let mut after = service.clone();
    let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
    json_patch::patch(&mut after, &patch).unwrap();
    after
}

#[test]
fn the_patch_tests_what_it_replaces_and_writes_zero_out() {
    let before = service(json!([named("health", &json!(1), &json!(1)), named("orders", &json!(100), &Value::Null)]));
    let operations = patch(&before, &key(Some("orders"), None), &pair(0, 100)).unwrap();
    let tests: Vec<&str> =
        operations.iter().filter(|one| one["op"] == "test").map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(
        tests,
        [
            "/metadata/uid",
            "/metadata/resourceVersion",
            "/spec/http/1/name",
            "/spec/http/1/route/0/destination",
            "/spec/http/1/route/0/weight",
            "/spec/http/1/route/1/destination",
        ]
    );
    let mut expected = before.clone();
    expected["spec"]["http"][1]["route"][0]["weight"] = json!(0);
    expected["spec"]["http"][1]["route"][1]["weight"] = json!(100);
    assert_eq!(patched(&before, &operations), expected);
}

#[test]
fn destinations_are_found_wherever_they_stand() {
    let before = service(json!([named("orders", &json!(100), &json!(0))]));
    let turned = [weight("cache-only", 90), weight("primary", 10)];
    let after = patched(&before, &patch(&before, &key(Some("orders"), None), &turned).unwrap());
    assert_eq!(read(&after, &key(Some("orders"), None)).unwrap(), pair(10, 90));
    assert_eq!(patch(&after, &key(Some("orders"), None), &turned).unwrap(), Vec::<Value>::new(), "once is enough");
}

#[test]
fn a_destination_that_stands_twice_is_told_by_its_order() {
    let route = json!({"name": "r", "route": [entry("a", &json!(1)), entry("a", &json!(2)), entry("b", &json!(3))]});
    let before = service(json!([route]));
    let wanted = [weight("a", 0), weight("a", 5), weight("b", 1)];
    let after = patched(&before, &patch(&before, &key(Some("r"), None), &wanted).unwrap());
    assert_eq!(read(&after, &key(Some("r"), None)).unwrap(), wanted);
}

#[test]
fn a_route_without_name_is_found_by_its_match_in_any_spelling() {
    let route = json!({"match": [{"uri": {"prefix": "/o"}, "port": 80}], "route": [entry("primary", &json!(1))]});
    let found = routes(&service(json!([route])));
    let (found, _) = &found[0];
    assert_eq!(found.matches.as_deref(), Some(r#"[{"port":80,"uri":{"prefix":"/o"}}]"#));
    let spelt = json!({"match": [{"port": 80, "uri": {"prefix": "/o"}}], "route": [entry("primary", &json!(1))]});
    let others = json!({"route": [entry("primary", &json!(1))]});
    assert!(read(&service(json!([others, spelt])), found).is_ok());
    let catch_all = key_of("trading", "orders", &others);
    assert_eq!(catch_all.matches.as_deref(), Some("null"));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let twice = service(json!([named("o", &json!(1), &json!(1)), named("o", &json!(1), &json!(1))]));
    let redirect = service(json!([{"name": "o", "redirect": {"uri": "/"}}]));
    let one = service(json!([named("o", &json!(1), &json!(1))]));
    let orders = key(Some("o"), None);
    assert_eq!(read(&twice, &orders), Err(Mismatch::Several(2)));
    assert_eq!(read(&redirect, &orders), Err(Mismatch::NoDestinations));
    assert_eq!(read(&json!({}), &orders), Err(Mismatch::NoRoute));
    assert_eq!(patch(&one, &orders, &[weight("primary", 1)]), Err(Mismatch::OtherDestinations));
    assert_eq!(patch(&one, &orders, &[weight("primary", 1), weight("x", 1)]), Err(Mismatch::OtherDestinations));
    assert_eq!(patch(&one, &orders, &pair(0, 0)), Err(Mismatch::NothingLeft));
}

#[test]
fn the_total_is_kept_by_largest_remainder() {
    let thirds = [weight("a", 1), weight("b", 1), weight("c", 1)];
    let hundred = [weight("a", 100), weight("b", 0), weight("c", None)];
    let shares: Vec<_> = to_total(&thirds, &hundred).iter().map(|one| one.weight.unwrap()).collect();
    assert_eq!(shares, [34, 33, 33]);
    assert_eq!(to_total(&pair(10, 90), &pair(60, 60)), pair(12, 108));
    assert_eq!(to_total(&pair(0, 100), &pair(0, 0)), pair(0, 100), "nothing to go by");
    assert_eq!(to_total(&[weight("a", None)], &[weight("a", None)]), [weight("a", 0)]);
}

#[test]
fn a_foreign_write_speaks_for_the_whole_route_or_for_what_it_changed() {
    let (original, ours) = (pair(100, 0), pair(0, 100));
    let ours = [ours.as_slice()];
    assert_eq!(new_original(&pair(60, 40), &original, &ours), pair(60, 40));
    assert_eq!(new_original(&pair(6, 4), &original, &ours), pair(6, 4), "another scale");
    assert_eq!(new_original(&pair(50, 100), &original, &ours), pair(50, 0), "our 100 is nobody's wish");
    let more = [weight("primary", 1), weight("third", 2)];
    assert_eq!(new_original(&more, &original, &ours), more, "other destinations: all is new");
}

#[test]
fn only_our_own_values_are_taken_back() {
    let (original, ours) = (vec![weight("primary", 100), weight("cache-only", None)], pair(0, 100));
    let ours = [ours.as_slice()];
    assert_eq!(restored(&pair(0, 100), &original, &ours), original, "to the letter: none was written");
    assert_eq!(restored(&pair(70, 30), &original, &ours), pair(70, 30));
    assert_eq!(restored(&pair(0, 30), &original, &ours), pair(100, 30));
    let with_third = [weight("primary", 0), weight("cache-only", 100), weight("third", 5)];
    let back = [weight("primary", 100), weight("cache-only", None), weight("third", 5)];
    assert_eq!(restored(&with_third, &original, &ours), back);
    let turned = pair(0, 100);
    assert_eq!(restored(&pair(0, 0), &turned, &[&pair(100, 0)]), pair(0, 100), "the part that is ours goes back");
    assert_eq!(restored(&pair(50, 0), &pair(0, 0), &[&pair(50, 9)]), pair(50, 0), "never a route without weight");
}

#[test]
fn what_is_taken_from_the_original_is_measured() {
    assert_eq!(diverted(&pair(100, 0), &pair(0, 100)), 100);
    assert_eq!(diverted(&pair(100, 0), &pair(10, 90)), 90);
    assert_eq!(diverted(&pair(100, 0), &pair(100, 0)), 0);
}
