//! Policies from ConfigMaps: whole or not at all, the newest wins, and nobody is hurt by a neighbour's mistake.

use serde_json::{Value, json};

use super::scene::{POLICIES, Scene, breaker};

fn tenant(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "policy.trade.io/v1alpha2", "kind": "Tenant", "metadata": {"name": name},
        "spec": {"class": class, "namespaceSelector": {"matchLabels": {"team": name}}},
    })
}

fn source(tenant: &str) -> Value {
    json!({
        "apiVersion": "policy.trade.io/v1alpha2", "kind": "PolicySource", "metadata": {"name": tenant},
        "spec": {"tenant": tenant, "configMap": {}},
    })
}

/// A ConfigMap of a source, with a file for each policy.
fn config_map(source: &str, name: &str, policies: &[Value]) -> Value {
    let file = |(index, policy): (usize, &Value)| (format!("{index}.yaml"), Value::from(policy.to_string()));
    let data: serde_json::Map<String, Value> = policies.iter().enumerate().map(file).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"policy.trade.io/source": source}},
        "data": data,
    })
}

fn broken(source: &str, name: &str) -> Value {
    let mut object = config_map(source, name, &[]);
    object["data"] =
        json!({"0.yaml": "kind: LatencyBudgetPolicy\nspec: [1,\n", "1.yaml": "kind: LatencyBudgetPolicy\n"});
    object
}

/// A scene whose namespace belongs to a tenant with a source of the same name.
async fn owned_by(name: &str, class: &str) -> Scene {
    let scene = Scene::open();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trading", "labels": {"team": name}}});
    for object in [namespace, tenant(name, class), source(name)] {
        scene.apply(&object).await;
    }
    scene
}

fn status(scene: &Scene, source: &str) -> Value {
    let all = scene.world.memkube.everything();
    let found = all.iter().find(|object| object["kind"] == "PolicySource" && object["metadata"]["name"] == source);
    found.map(|source| source["status"].clone()).unwrap_or_default()
}

/// The part's status, by the name of its ConfigMap.
fn part(scene: &Scene, source: &str, name: &str) -> Value {
    let parts = status(scene, source)["parts"].as_array().cloned().unwrap_or_default();
    parts.into_iter().find(|part| part["part"] == format!("trading/{name}")).unwrap_or_default()
}

fn p99(scene: &Scene, policy: &str) -> String {
    let policy = scene.policy(policy).unwrap_or_default();
    policy["spec"]["thresholds"]["p99"].as_str().unwrap_or_default().to_owned()
}

fn with_p99(name: &str, p99: &str) -> Value {
    let mut policy = breaker(name, "10m");
    policy["spec"]["thresholds"]["p99"] = json!(p99);
    policy
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_leaves_its_config_map_goes_after_its_effects_are_undone() {
    let scene = owned_by("lab", "lab").await;
    let _engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "limits", &[breaker("orders", "10m"), breaker("quotes", "10m")])).await;
    scene.until_open("orders").await;
    let waiting = |name: &str| scene.policy(name).is_some();
    assert!(waiting("quotes"));
    scene.apply(&config_map("lab", "limits", &[])).await;
    scene.until("both are gone", 30, || !waiting("orders") && !waiting("quotes")).await;
    assert!(scene.is_untouched(), "gone only after everything was undone");
    let status = status(&scene, "lab");
    assert_eq!((&status["policies"], &status["unprocessed"]), (&json!(0), &json!(0)), "{status:#}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_deleted_takes_what_it_brought() {
    let scene = owned_by("lab", "lab").await;
    let _engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "limits", &[breaker("orders", "10m")])).await;
    scene.until_open("orders").await;
    scene.delete_cluster("PolicySource", "lab").await;
    scene.until("the policy is gone", 30, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched());
}

/// Promise 1.
#[tokio::test(start_paused = true)]
async fn a_broken_text_changes_nothing_but_what_is_told() {
    let scene = owned_by("lab", "lab").await;
    let engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "limits", &[breaker("orders", "30m"), breaker("quotes", "30m")])).await;
    scene.apply(&config_map("lab", "others", &[with_p99("ledger", "5s")])).await;
    scene.until_open("orders").await;
    scene.rest(30).await;
    let before = scene.counts();
    scene.apply(&broken("lab", "limits")).await;
    scene.until("it is refused", 5, || !part(&scene, "lab", "limits")["rejected"].is_null()).await;
    let told = part(&scene, "lab", "limits")["rejected"].clone();
    assert_eq!((&told["reason"], &told["policies"]), (&json!("InvalidSource"), &json!(2)), "{told:#}");
    assert!(told["message"].as_str().unwrap().starts_with("0.yaml:2:7: "), "{told:#}");
    scene
        .until("its policies say so", 5, || scene.condition("orders", "Accepted").starts_with("False InvalidSource"))
        .await;
    scene.rest(120).await;
    assert!(scene.stands() && scene.phase("orders") == "Active");
    assert_eq!(scene.effect_writes(&before), 0, "what stands is not touched");
    assert!(scene.condition("ledger", "Accepted").starts_with("True"), "the other ConfigMap is another matter");
    assert_eq!(status(&scene, "lab")["unprocessed"], 2);

    // An engine that never saw the good text finds it in the revisions.
    engine.kill();
    let _engine = scene.acting_engine("b").await;
    scene.rest(60).await;
    assert!(scene.stands() && scene.phase("orders") == "Active", "{}", scene.condition("orders", "Accepted"));
    assert_eq!(scene.effect_writes(&before), 0);
    assert_eq!(status(&scene, "lab")["unprocessed"], 2);

    // Put right, it is as if nothing had been.
    scene.apply(&config_map("lab", "limits", &[with_p99("orders", "801ms"), breaker("quotes", "30m")])).await;
    scene.until("it is in force", 5, || scene.condition("orders", "Accepted").starts_with("True")).await;
    assert_eq!((p99(&scene, "orders").as_str(), &status(&scene, "lab")["unprocessed"]), ("801ms", &json!(0)));
}

/// Nobody can say what a source defines of which nothing good is known, so nothing is taken away.
#[tokio::test(start_paused = true)]
async fn an_engine_that_finds_no_good_text_lets_stand_what_stands() {
    let scene = owned_by("lab", "lab").await;
    let engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "limits", &[breaker("orders", "30m")])).await;
    scene.until_open("orders").await;
    scene.apply(&broken("lab", "limits")).await;
    scene.until("it is refused", 5, || !part(&scene, "lab", "limits")["rejected"].is_null()).await;
    engine.kill();
    let kept = part(&scene, "lab", "limits")["active"]["revision"].as_str().unwrap().to_owned();
    scene.delete("apps/v1", "ControllerRevision", &format!("limits-{kept}")).await;
    let uid = scene.policy("orders").unwrap()["metadata"]["uid"].clone();
    let before = scene.counts();
    let _engine = scene.acting_engine("b").await;
    scene.rest(120).await;
    assert_eq!(scene.policy("orders").unwrap()["metadata"]["uid"], uid);
    assert!(scene.stands());
    assert_eq!(scene.effect_writes(&before), 0);
    scene.apply(&config_map("lab", "limits", &[])).await;
    scene.until("the policy is gone", 60, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched());
}

#[tokio::test(start_paused = true)]
async fn what_went_while_nobody_acted_is_undone_by_the_next() {
    let scene = owned_by("lab", "lab").await;
    let engine = scene.acting_engine("a").await;
    let standby = scene.engine("b").await;
    scene.apply(&config_map("lab", "limits", &[breaker("orders", "30m")])).await;
    scene.apply(&config_map("lab", "others", &[with_p99("quotes", "5s"), with_p99("ledger", "5s")])).await;
    scene.until_open("orders").await;
    engine.kill();
    scene.delete("v1", "ConfigMap", "limits").await;
    scene.apply(&config_map("lab", "others", &[with_p99("quotes", "5s")])).await;
    scene.rest(3).await;
    assert!(!standby.acts(), "it sees both, and may not write yet");
    scene.until("both are gone", 60, || scene.policy("orders").is_none() && scene.policy("ledger").is_none()).await;
    assert!(scene.is_untouched());
    assert_eq!(p99(&scene, "quotes"), "5s");
}

#[tokio::test(start_paused = true)]
async fn of_two_config_maps_the_newest_wins_and_the_other_takes_over_when_it_goes() {
    let scene = owned_by("lab", "lab").await;
    let _engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "older", &[with_p99("orders", "810ms")])).await;
    scene.until("it is in force", 5, || p99(&scene, "orders") == "810ms").await;
    scene.rest(10).await;
    scene.apply(&config_map("lab", "newer", &[with_p99("orders", "820ms")])).await;
    scene.until("the newer one is in force", 5, || p99(&scene, "orders") == "820ms").await;
    scene.until("the loser is told", 5, || !part(&scene, "lab", "older")["overridden"].is_null()).await;
    let overridden = part(&scene, "lab", "older")["overridden"][0].as_str().unwrap().to_owned();
    assert_eq!(overridden, "LatencyBudgetPolicy trading/orders: held by trading/newer of the source lab");
    assert!(part(&scene, "lab", "newer")["overridden"].is_null());
    // An edit makes the other one the newest.
    scene.rest(10).await;
    scene.apply(&config_map("lab", "older", &[with_p99("orders", "830ms")])).await;
    scene.until("it is in force again", 5, || p99(&scene, "orders") == "830ms").await;
    let uid = scene.policy("orders").unwrap()["metadata"]["uid"].clone();
    scene.delete("v1", "ConfigMap", "older").await;
    scene.until("the one that is left is in force", 5, || p99(&scene, "orders") == "820ms").await;
    assert_eq!(scene.policy("orders").unwrap()["metadata"]["uid"], uid, "by an edit, not by a new policy");
}

#[tokio::test(start_paused = true)]
async fn the_lab_leaves_what_was_applied_by_hand_alone_and_core_adopts_it() {
    for (class, expected, in_force) in [("lab", "800ms", "by hand"), ("core", "900ms", "from the source")] {
        let scene = owned_by("owner", class).await;
        let _engine = scene.acting_engine("a").await;
        scene.apply(&breaker("orders", "10m")).await;
        scene.until("it is judged", 30, || scene.condition("orders", "Breached").starts_with("False")).await;
        let uid = scene.policy("orders").unwrap()["metadata"]["uid"].clone();
        scene.apply(&config_map("owner", "limits", &[with_p99("orders", "900ms")])).await;
        scene.until("the source took notice", 5, || !part(&scene, "owner", "limits")["active"].is_null()).await;
        scene.rest(5).await;
        assert_eq!(p99(&scene, "orders"), expected, "{class}: {in_force}");
        assert_eq!(scene.policy("orders").unwrap()["metadata"]["uid"], uid, "{class}");
        let overridden = part(&scene, "owner", "limits")["overridden"][0].clone();
        match class {
            "lab" => assert_eq!(overridden, "LatencyBudgetPolicy trading/orders: held by an object applied by hand"),
            _ => assert_eq!(overridden, Value::Null),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_is_edited_is_put_back_told_and_never_judged_by() {
    let scene = owned_by("lab", "lab").await;
    let engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "limits", &[with_p99("orders", "5s")])).await;
    scene.until("it is judged", 30, || scene.condition("orders", "Breached").starts_with("False")).await;
    scene.breach();
    scene.edit("orders", json!({"thresholds": {"p99": "1ms"}})).await;
    scene.until("it is put back", 5, || p99(&scene, "orders") == "5s").await;
    let told = scene.world.memkube.everything();
    let put_back = told.iter().find(|object| object["kind"] == "Event" && object["reason"] == "PutBack");
    assert!(put_back.is_some(), "an Event tells it");
    // Somebody who keeps at it is answered ever more slowly, and still never heard.
    for _ in 0..20 {
        scene.edit("orders", json!({"thresholds": {"p99": "1ms"}})).await;
        scene.rest(3).await;
    }
    let writes = scene.counts().by("a").of(POLICIES).writes();
    assert!(writes < 15, "{writes} writes, status among them, against 21 edits");
    assert_eq!(scene.phase("orders"), "Healthy");
    let shown = engine.policy("orders").unwrap();
    assert_eq!(shown.signals["p99"].threshold.as_ref().unwrap().written, "5s");
    scene.until("it is put back in the end", 120, || p99(&scene, "orders") == "5s").await;
    // Deleted by hand it comes back, when the pause is over that its edits have earned.
    scene.delete_policy("orders").await;
    scene.until("it is there again", 90, || p99(&scene, "orders") == "5s").await;
}

#[tokio::test(start_paused = true)]
async fn a_config_map_outside_of_its_tenants_namespaces_defines_nothing() {
    let scene = owned_by("lab", "lab").await;
    for object in [tenant("core", "core"), source("core")] {
        scene.apply(&object).await;
    }
    let _engine = scene.acting_engine("a").await;
    // The namespace is the lab's: a claim to be of core proves nothing.
    scene.apply(&config_map("core", "core-limits", &[breaker("orders", "10m")])).await;
    scene.until("it is refused", 5, || !part(&scene, "core", "core-limits")["rejected"].is_null()).await;
    let refused = part(&scene, "core", "core-limits")["rejected"].clone();
    assert_eq!(refused["reason"], "OutOfScope", "{refused:#}");
    assert!(refused["message"].as_str().unwrap().contains("belongs to the tenant lab"), "{refused:#}");
    assert!(scene.policy("orders").is_none());
    // In its own namespace's name it may.
    let mut elsewhere = breaker("orders", "10m");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    scene.apply(&config_map("lab", "limits", &[elsewhere])).await;
    scene.until("it is refused", 5, || !part(&scene, "lab", "limits")["rejected"].is_null()).await;
    let refused = part(&scene, "lab", "limits")["rejected"].clone();
    assert!(refused["message"].as_str().unwrap().starts_with("0.yaml:1:"), "{refused:#}");
    // A namespace that another tenant takes over takes its policies away, effects first.
    scene.apply(&config_map("lab", "limits", &[breaker("orders", "10m")])).await;
    scene.until_open("orders").await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trading", "labels": {"team": "core"}}});
    scene.apply(&namespace).await;
    // Now it is core's ConfigMap that may speak, and it names the same policy.
    scene
        .until("core's text is in force", 30, || {
            let source =
                scene.policy("orders").unwrap_or_default()["metadata"]["annotations"]["policy.trade.io/source"].clone();
            source == "core"
        })
        .await;
    assert_eq!(part(&scene, "lab", "limits")["rejected"]["reason"], "OutOfScope");
}

#[tokio::test(start_paused = true)]
async fn a_pin_holds_a_revision_until_its_end() {
    let scene = owned_by("lab", "lab").await;
    let _engine = scene.acting_engine("a").await;
    scene.apply(&config_map("lab", "limits", &[with_p99("orders", "810ms")])).await;
    scene.until("it is in force", 5, || p99(&scene, "orders") == "810ms").await;
    let first = part(&scene, "lab", "limits")["active"]["revision"].clone();
    scene.apply(&config_map("lab", "limits", &[with_p99("orders", "820ms")])).await;
    scene.until("it is in force", 5, || p99(&scene, "orders") == "820ms").await;
    scene
        .until("both are kept", 5, || part(&scene, "lab", "limits")["history"].as_array().is_some_and(|h| h.len() == 2))
        .await;
    let until = scene.world.clock.now() + chrono::TimeDelta::seconds(60);
    let mut pinned = source("lab");
    pinned["spec"]["pins"] = json!([{"part": "trading/limits", "revision": first, "reason": "the new one is too lax", "until": until.to_rfc3339()}]);
    scene.apply(&pinned).await;
    scene.until("the first one is in force", 5, || p99(&scene, "orders") == "810ms").await;
    // The newest text waits for the end of the pin.
    scene.apply(&config_map("lab", "limits", &[with_p99("orders", "830ms")])).await;
    scene.rest(30).await;
    assert_eq!(p99(&scene, "orders"), "810ms");
    let waited = scene.until("the newest is in force", 60, || p99(&scene, "orders") == "830ms").await;
    assert!((20..=30).contains(&waited), "{waited} s");
    // One that nobody kept is told, and changes nothing.
    pinned["spec"]["pins"][0]["revision"] = json!("0123456789ab");
    pinned["spec"]["pins"][0]["until"] = Value::Null;
    scene.apply(&pinned).await;
    scene.until("it is told", 5, || part(&scene, "lab", "limits")["rejected"]["reason"] == "RevisionNotFound").await;
    assert_eq!(p99(&scene, "orders"), "830ms", "what is in force stays");
}

#[tokio::test(start_paused = true)]
async fn an_edit_costs_no_more_than_what_it_changes() {
    let scene = owned_by("lab", "lab").await;
    let engine = scene.acting_engine("a").await;
    let policies: Vec<Value> = (0..20).map(|n| with_p99(&format!("orders-{n}"), "5s")).collect();
    scene.apply(&config_map("lab", "many", &policies)).await;
    scene.apply(&config_map("lab", "one", &[with_p99("quotes", "5s")])).await;
    scene.until("all are judged", 60, || scene.condition("quotes", "Breached").starts_with("False")).await;
    scene.rest(60).await;
    let before = scene.counts();
    scene.apply(&config_map("lab", "one", &[with_p99("quotes", "6s")])).await;
    scene.until("it is in force", 5, || p99(&scene, "quotes") == "6s").await;
    scene.rest(3).await;
    let since = scene.counts().since(&before).by("a");
    // The mirror, its status, the source's status, the kept revision.
    assert!(since.of(POLICIES).writes() <= 3, "{since:?}");
    let others = since.of("policysources.policy.trade.io").writes() + since.of("controllerrevisions.apps").writes();
    assert!(others <= 3, "{since:?}");
    assert_eq!(engine.policy("quotes").unwrap().signals["p99"].threshold.as_ref().unwrap().written, "6s");
}
