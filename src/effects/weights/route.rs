//! Weights of a VirtualService route: finding the route, comparing, and the narrow patch.
//!
//! Pure: it turns a VirtualService as JSON into values and JSON patches, and refuses to know who wants them or why. A
//! patch touches weights only, so siblings and fields that we do not know stay as they are.

use serde_json::{Value, json};

use crate::model::{
    effect::{Destination, Weight},
    slot::RouteKey,
};

/// Why weights cannot be read or written at the place that a slot names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// No http route has the name (or the match).
    #[error("no http route of the VirtualService is the one that was meant")]
    NoRoute,
    /// Several have it.
    #[error("{0} http routes of the VirtualService fit, so that none is meant")]
    Several(usize),
    /// The route has no destinations: it redirects, answers directly or delegates.
    #[error("the http route has no destinations")]
    NoDestinations,
    /// Destinations were added or removed since the weights were computed.
    #[error("the http route leads to other destinations than the weights are for")]
    OtherDestinations,
    /// All destinations would have weight zero, which Istio refuses.
    #[error("all destinations would have weight zero")]
    NothingLeft,
}

/// The key of one http route: its name, else its match.
pub fn key_of(namespace: &str, virtual_service: &str, route: &Value) -> RouteKey {
    let name = route.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    let matches = name.is_none().then(|| canonical(route.get("match").unwrap_or(&Value::Null)));
    RouteKey { namespace: namespace.to_owned(), virtual_service: virtual_service.to_owned(), name, matches }
}

/// The http routes of a VirtualService with their weights, in the order written. Routes without destinations are left out.
pub fn routes(virtual_service: &Value) -> Vec<(RouteKey, Vec<Weight>)> {
    let text = |pointer| virtual_service.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let keyed = http(virtual_service).iter().map(|route| (key_of(namespace, name, route), weights_of(route)));
    keyed.filter(|(_, weights)| !weights.is_empty()).collect()
}

/// The weights that a route has.
pub fn read(virtual_service: &Value, key: &RouteKey) -> Result<Vec<Weight>, Mismatch> {
    let (_, route) = find(virtual_service, key)?;
    let weights = weights_of(route);
    if weights.is_empty() { Err(Mismatch::NoDestinations) } else { Ok(weights) }
}

/// Whether two lists say the same: the same destinations with the same weights. A weight that is not written is zero.
pub(crate) fn same(left: &[Weight], right: &[Weight]) -> bool {
    aligned(left, right).is_some_and(|weights| {
        left.iter().zip(weights).all(|(one, other)| one.weight.unwrap_or(0) == other.unwrap_or(0))
    })
}

/// What we want, brought to the total that `original` has, by largest remainder; zero is written out.
pub(crate) fn to_total(wanted: &[Weight], original: &[Weight]) -> Vec<Weight> {
    let (from, to) = (total(wanted), total(original));
    if from == 0 || to == 0 || from == to {
        return wanted.iter().map(|one| Weight { weight: Some(one.weight.unwrap_or(0)), ..one.clone() }).collect();
    }
    let exact = |one: &Weight| u64::from(one.weight.unwrap_or(0)) * to;
    let mut parts: Vec<u64> = wanted.iter().map(|one| exact(one) / from).collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(exact(&wanted[index]) % from));
    let missing = to - parts.iter().sum::<u64>();
    for &index in order.iter().take(usize::try_from(missing).unwrap_or(0)) {
        parts[index] += 1;
    }
    let written = |part: u64| Some(u32::try_from(part).unwrap_or(u32::MAX));
    wanted.iter().zip(parts).map(|(one, part)| Weight { weight: written(part), ..one.clone() }).collect()
}

/// What a foreign write makes the original: the whole route if it speaks for the whole, else only what it changed.
///
/// A write that keeps the total, or that changed every destination, is a statement of its own. One that changed a
/// single weight left our values beside it; those must not be taken for somebody's wish.
pub(crate) fn new_original(live: &[Weight], original: &[Weight], ours: &[&[Weight]]) -> Vec<Weight> {
    let Some(before) = aligned(live, original) else { return live.to_vec() };
    if total(live) == total(original) {
        return live.to_vec();
    }
    let kept = live.iter().enumerate().zip(before);
    kept.map(|((index, one), before)| {
        let weight = if stands(live, index, ours) { before } else { one.weight };
        Weight { weight, ..one.clone() }
    })
    .collect()
}

/// What the route should hold once we let go: the original wherever our value still stands, the rest as it is.
pub(crate) fn restored(live: &[Weight], original: &[Weight], ours: &[&[Weight]]) -> Vec<Weight> {
    let kept: Vec<Weight> = live
        .iter()
        .enumerate()
        .map(|(index, one)| match nth(original, live, index).filter(|_| stands(live, index, ours)) {
            Some(found) => found.clone(),
            None => one.clone(),
        })
        .collect();
    let empties_the_route = kept.len() > 1 && total(&kept) == 0;
    if empties_the_route { live.to_vec() } else { kept }
}

/// The patch that makes a route's weights these, guarded by uid and resourceVersion, by the route's identity, and by
/// each destination and value that it replaces. Empty if they are so already.
pub(crate) fn patch(virtual_service: &Value, key: &RouteKey, weights: &[Weight]) -> Result<Vec<Value>, Mismatch> {
    let (index, route) = find(virtual_service, key)?;
    let live = weights_of(route);
    let wanted = aligned(&live, weights).ok_or(Mismatch::OtherDestinations)?;
    if wanted.len() > 1 && wanted.iter().all(|weight| weight.unwrap_or(0) == 0) {
        return Err(Mismatch::NothingLeft);
    }
    let changed: Vec<(usize, Option<u32>)> =
        wanted.into_iter().enumerate().filter(|(at, weight)| live[*at].weight != *weight).collect();
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let test = |path: String, value: &Value| json!({"op": "test", "path": path, "value": value});
    let of_metadata = |field: &str| &virtual_service["metadata"][field];
    let mut operations = vec![
        test("/metadata/uid".to_owned(), of_metadata("uid")),
        test("/metadata/resourceVersion".to_owned(), of_metadata("resourceVersion")),
    ];
    let at_route = format!("/spec/http/{index}");
    if let Some(name) = route.get("name") {
        operations.push(test(format!("{at_route}/name"), name));
    }
    for (at, weight) in changed {
        let entry = &route["route"][at];
        let place = format!("{at_route}/route/{at}");
        operations.push(test(format!("{place}/destination"), &entry["destination"]));
        if let Some(old) = entry.get("weight") {
            operations.push(test(format!("{place}/weight"), old));
        }
        operations.push(match weight {
            Some(weight) => json!({"op": "add", "path": format!("{place}/weight"), "value": weight}),
            None => json!({"op": "remove", "path": format!("{place}/weight")}),
        });
    }
    Ok(operations)
}

/// How much of the original's weight is taken away from where it was.
pub(crate) fn diverted(original: &[Weight], applied: &[Weight]) -> u64 {
    let after = aligned(original, applied).unwrap_or_default();
    let lost = |(one, after): (&Weight, Option<u32>)| one.weight.unwrap_or(0).saturating_sub(after.unwrap_or(0));
    original.iter().zip(after).map(|pair| u64::from(lost(pair))).sum()
}

fn total(weights: &[Weight]) -> u64 {
    weights.iter().map(|one| u64::from(one.weight.unwrap_or(0))).sum()
}

fn http(virtual_service: &Value) -> &[Value] {
    virtual_service.pointer("/spec/http").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn find<'a>(virtual_service: &'a Value, key: &RouteKey) -> Result<(usize, &'a Value), Mismatch> {
    let meant = |route: &Value| {
        let found = key_of(&key.namespace, &key.virtual_service, route);
        found.name == key.name && (key.name.is_some() || found.matches == key.matches)
    };
    let fitting: Vec<_> = http(virtual_service).iter().enumerate().filter(|(_, route)| meant(route)).collect();
    match fitting.as_slice() {
        [] => Err(Mismatch::NoRoute),
        [one] => Ok(*one),
        several => Err(Mismatch::Several(several.len())),
    }
}

fn weights_of(route: &Value) -> Vec<Weight> {
    let entries = route.get("route").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    entries.iter().map(|entry| Weight { destination: destination_of(entry), weight: weight_of(entry) }).collect()
}

fn weight_of(entry: &Value) -> Option<u32> {
    entry.get("weight").and_then(Value::as_u64).and_then(|weight| u32::try_from(weight).ok())
}

fn destination_of(entry: &Value) -> Destination {
    let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let port = entry.pointer("/destination/port/number").and_then(Value::as_u64);
    Destination {
        host: text("/destination/host").unwrap_or_default(),
        subset: text("/destination/subset").filter(|subset| !subset.is_empty()),
        port: port.and_then(|port| u16::try_from(port).ok()),
    }
}

/// The weights of `wanted` in the order of `live`; none if the two are not about the same destinations. A destination
/// that stands twice (with other headers, say) is paired by its order.
fn aligned(live: &[Weight], wanted: &[Weight]) -> Option<Vec<Option<u32>>> {
    if live.len() != wanted.len() {
        return None;
    }
    (0..live.len()).map(|index| nth(wanted, live, index).map(|found| found.weight)).collect()
}

/// The entry of `list` that is to its destination what entry `index` is in `live`.
fn nth<'a>(list: &'a [Weight], live: &[Weight], index: usize) -> Option<&'a Weight> {
    let destination = &live[index].destination;
    let before = live[..index].iter().filter(|one| one.destination == *destination).count();
    list.iter().filter(|one| one.destination == *destination).nth(before)
}

/// Whether one of our values stands at this destination.
fn stands(live: &[Weight], index: usize, ours: &[&[Weight]]) -> bool {
    let weight = live[index].weight.unwrap_or(0);
    ours.iter().any(|list| nth(list, live, index).is_some_and(|one| one.weight.unwrap_or(0) == weight))
}

/// JSON with sorted keys, so that one match has one text.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: std::collections::BTreeMap<_, _> = map.iter().collect();
            let fields = sorted.into_iter().map(|(key, value)| format!("{}:{}", json!(key), canonical(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
#[cfg(test)]
mod tests;
