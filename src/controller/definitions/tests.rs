use std::time::Duration;

use super::*;
use crate::controller::review::Rules;
use crate::sources::snapshot;

const POLICY: &str = "\
apiVersion: policy.trade.io/v1alpha2
kind: LatencyBudgetPolicy
metadata: {name: checkout}
spec:
  targetRef: {apiVersion: trade.io/v1, kind: OrderService, name: checkout}
  thresholds: {p99: 800ms, duration: 2m}
  actions: [{type: circuit-breaker, config: {timeout: 30s, fallback: cache-only}}]
";

fn tenant(name: &str, class: Class, priority: i32) -> Arc<Tenant> {
    Arc::new(Tenant { name: name.into(), class, priority, ..Tenant::built_in() })
}

/// A part with one policy, written so many seconds after the epoch.
async fn part(source: &str, name: &str, tenant: &Arc<Tenant>, written: u64) -> (PartId, Arc<Active>) {
    let id = PartId { source: source.into(), namespace: "trading".into(), name: name.into() };
    let changed_at = DateTime::UNIX_EPOCH + Duration::from_secs(written);
    let files = BTreeMap::from([("p.yaml".to_owned(), POLICY.as_bytes().to_vec())]);
    let texts = Texts { revision: format!("{name}-{written}"), changed_at, files };
    let snapshot = snapshot::read(&texts, &snapshot::Scope::Own(id.namespace.clone())).unwrap();
    let mut policies = BTreeMap::new();
    for (key, text) in snapshot.policies {
        let mut draft = text.object.draft(changed_at);
        draft.changed_at = changed_at;
        let rules = Rules::for_kind("trade.io/v1", "OrderService");
        let entry = crate::controller::review::prepare(&draft, text.object.spec_json(), tenant, &rules).await;
        let definition = Definition { object: text.object, entry: Arc::new(entry.unwrap()) };
        policies.insert(key, definition);
    }
    let active = Active { texts, tenant: Arc::clone(tenant), since: changed_at, policies };
    (id, Arc::new(active))
}

fn key() -> PolicyKey {
    let kind = crate::model::policy::PolicyKind::LatencyBudgetPolicy;
    PolicyKey { kind, namespace: "trading".into(), name: "checkout".into() }
}

fn winner(definitions: &Definitions) -> Option<String> {
    definitions.winner(&key()).map(|in_force| in_force.id.part())
}

#[tokio::test]
async fn whoever_comes_first_the_same_text_wins() {
    let (core, lab, busy_lab) =
        (tenant("core", Class::Core, 0), tenant("lab", Class::Lab, 0), tenant("busy", Class::Lab, 9));
    let mut parts = vec![
        part("lab", "old", &lab, 10).await,
        part("lab", "new", &lab, 20).await,
        part("busy", "oldest", &busy_lab, 1).await,
        part("core", "core", &core, 5).await,
        part("lab", "newer", &lab, 30).await,
    ];
    // Who is first of those that are left, as the winners leave one by one.
    let expected = ["trading/core", "trading/oldest", "trading/newer", "trading/new", "trading/old"];
    for rotation in 0..parts.len() {
        parts.rotate_left(1);
        let mut order = parts.clone();
        if rotation % 2 == 0 {
            order.reverse();
        }
        let mut definitions = Definitions::default();
        for (id, active) in &order {
            definitions.swap(id, Arc::clone(active));
        }
        for expected in expected {
            assert_eq!(winner(&definitions).as_deref(), Some(expected));
            let gone = order.iter().find(|(id, _)| id.part() == expected).unwrap();
            assert_eq!(definitions.remove(&gone.0), BTreeSet::from([key()]));
        }
        assert_eq!(winner(&definitions), None);
    }
}

#[tokio::test]
async fn a_swap_names_what_it_takes_away() {
    let lab = tenant("lab", Class::Lab, 0);
    let (id, active) = part("lab", "limits", &lab, 1).await;
    let mut definitions = Definitions::default();
    definitions.swap(&id, Arc::clone(&active));
    let empty = Active {
        texts: Texts { revision: "empty".into(), ..active.texts.clone() },
        tenant: lab,
        since: active.since,
        policies: BTreeMap::new(),
    };
    assert_eq!(definitions.swap(&id, Arc::new(empty)), BTreeSet::from([key()]));
    assert!(definitions.keys().is_empty());
    assert!(definitions.is_over(&id), "it is known, and does not define the policy");
}

#[test]
fn nobody_can_say_what_a_part_without_a_good_text_defines() {
    let id = PartId { source: "lab".into(), namespace: "trading".into(), name: "limits".into() };
    let mut definitions = Definitions::default();
    assert!(definitions.is_over(&id), "there is no such part");
    let part = definitions.part_mut(&id);
    let rejected = |tenant| Rejected {
        revision: "r".into(),
        tenant,
        at: DateTime::UNIX_EPOCH,
        reason: Reason::InvalidSource,
        problems: Vec::new(),
        policies: 3,
    };
    part.rejected = Some(rejected(Some(tenant("lab", Class::Lab, 0))));
    assert_eq!(part.unprocessed(), 3);
    assert!(!definitions.is_over(&id), "its newest text is broken and the one before is not known");
    definitions.part_mut(&id).rejected = Some(rejected(None));
    assert!(definitions.is_over(&id), "nobody may act for it");
}
