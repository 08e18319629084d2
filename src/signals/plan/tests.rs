use super::*;
use crate::signals::options::Options;
use crate::signals::tests::ask;

fn options() -> Checked {
    let yaml = "
defaultTemplate: plain
defaultBackend: main
backends:
  main: {kind: prometheus, url: 'http://main'}
  other: {kind: prometheus, url: 'http://other'}
";
    serde_saphyr::from_str::<Options>(yaml).unwrap().checked("signals").unwrap()
}

fn asks(count: usize, namespaces: usize) -> Vec<Ask> {
    (0..count)
        .map(|index| {
            let mut ask = ask(&format!("service-{index:05}"), &["pod-1"]);
            ask.namespace = format!("team-{:03}", index % namespaces);
            ask
        })
        .collect()
}

fn selections(asks: &[Ask]) -> Vec<(usize, &'static str)> {
    let options = options();
    let plan = plan(asks, &options, &|_, _| false);
    let [shape] = plan.shapes.as_slice() else { panic!("one shape") };
    let chunks = shape.chunks();
    assert_eq!(chunks.iter().map(Range::len).sum::<usize>(), shape.members.len(), "every member is in one chunk");
    chunks
        .into_iter()
        .map(|chunk| {
            let kind = match shape.selection(chunk.clone()) {
                Selection::Names { .. } => "names",
                Selection::Namespaces(_) => "namespaces",
                Selection::All => "all",
            };
            (chunk.len(), kind)
        })
        .collect()
}

#[test]
fn few_workloads_are_named_and_many_only_by_namespace() {
    assert_eq!(selections(&asks(1, 1)), [(1, "names")]);
    assert_eq!(selections(&asks(200, 7)), [(200, "names")]);
    assert_eq!(selections(&asks(201, 1)), [(200, "names"), (1, "names")]);
    assert_eq!(selections(&asks(800, 1)).len(), 4);
    assert_eq!(selections(&asks(10_000, 1)), [(10_000, "namespaces")]);
    let many = selections(&asks(10_000, 100));
    assert_eq!(many.len(), 4);
    assert!(many.iter().all(|(count, kind)| *count == 2_500 && *kind == "namespaces"), "{many:?}");
}

#[test]
fn more_namespaces_than_a_selection_can_hold_are_not_named() {
    let mut asks = asks(10_000, 10_000);
    for ask in &mut asks {
        ask.namespace = format!("{}-{}", "n".repeat(40), ask.service);
    }
    assert_eq!(selections(&asks), [(10_000, "all")]);
}

#[test]
fn shapes_differ_by_backend_template_and_window_only() {
    let base = ask("orders", &["a"]);
    let mut asks = vec![base.clone(); 6];
    asks[1].quantiles = BTreeMap::from([("p50".into(), 0.5)]);
    asks[1].min_requests = 99;
    asks[2].window = Duration::from_mins(5);
    asks[3].template = Some("istio".into());
    asks[4].backend = Some("other".into());
    asks[5].template = Some("plain".into());
    let options = options();
    let plan = plan(&asks, &options, &|_, _| false);
    let mut sizes: Vec<_> = plan.shapes.iter().map(|shape| (shape.asks.len(), shape.members.len())).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [(1, 1), (1, 1), (1, 1), (3, 1)], "three asks share one member of one shape");
}

#[test]
fn what_cannot_be_measured_is_not_asked() {
    let base = ask("orders", &["a"]);
    let mut asks = vec![base.clone(); 4];
    asks[0].pods.clear();
    asks[1].template = Some("nope".into());
    asks[2].backend = Some("nope".into());
    (asks[3].template, asks[3].workload) = (Some("istio".into()), None);
    let options = options();
    let plan = plan(&asks, &options, &|_, _| false);
    assert!(plan.shapes.is_empty());
    assert_eq!(plan.unmeasured.len(), 4);
}

#[test]
fn own_queries_are_shared_by_identical_text() {
    let mut asks = vec![ask("a", &[]), ask("b", &[]), ask("c", &[])];
    for (ask, text) in asks.iter_mut().zip(["up", "up", "up "]) {
        ask.queries.insert("up".into(), (text.into(), crate::model::quantity::Unit::SECONDS));
    }
    let options = options();
    let plan = plan(&asks, &options, &|_, _| false);
    assert_eq!(plan.own.iter().map(|own| own.users.len()).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn suspects_are_asked_apart() {
    let asks = asks(10, 2);
    let options = options();
    let plan = plan(&asks, &options, &|_, member| member.name == "service-00004");
    assert_eq!(plan.shapes[0].chunks(), [0..9, 9..10]);
    assert_eq!(plan.shapes[0].members[9].name, "service-00004");
}

#[test]
fn splitting_ends_with_single_members_and_loses_none() {
    for (count, namespaces) in [(2, 1), (3, 3), (150, 5), (1_000, 1), (5_000, 50)] {
        let asks = asks(count, namespaces);
        let options = options();
        let plan = plan(&asks, &options, &|_, _| false);
        let shape = &plan.shapes[0];
        let (mut open, mut single) = (std::iter::once(0..count).collect::<Vec<_>>(), 0);
        while let Some(chunk) = open.pop() {
            let parts = shape.split(chunk.clone());
            if parts.is_empty() {
                assert_eq!(chunk.len(), 1);
                single += 1;
            }
            assert!(parts.iter().all(|part| part.len() < chunk.len()), "{chunk:?} into {parts:?}");
            open.extend(parts);
        }
        assert_eq!(single, count);
    }
}
