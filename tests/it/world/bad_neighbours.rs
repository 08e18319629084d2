//! A bad policy of each kind beside good ones: it is refused by name of its field, and the others are judged on.

use serde_json::{Value, json};
use tradeguard::demo::world::SERVICE;

use super::scene::{Scene, UNSERVED_KIND, breaker};

/// A bad text: what it is called, the change that makes it bad, and the path that must be named.
type Bad = (&'static str, fn(&mut Value), &'static str);

/// Refused when it is written, as by the API server (which prunes unknown fields; `kubectl` and `eval` refuse those).
const AT_THE_DOOR: &[Bad] = &[
    ("a wrong type", |p| p["spec"]["suspend"] = json!("yes"), "spec.suspend"),
    ("1h30", |p| p["spec"]["thresholds"]["duration"] = json!("1h30"), "spec.thresholds.duration"),
    ("1min", |p| p["spec"]["interval"] = json!("1min"), "spec.interval"),
    ("1.5", |p| p["spec"]["window"] = json!("1.5"), "spec.window"),
    ("-5m", |p| p["spec"]["staleAfter"] = json!("-5m"), "spec.staleAfter"),
    ("0s", |p| p["spec"]["thresholds"]["duration"] = json!("0s"), "spec.thresholds.duration"),
    ("an interval that never rests", |p| p["spec"]["interval"] = json!("1ns"), "spec.interval"),
    ("no quantile", |p| p["spec"]["thresholds"] = json!({"duration": "20s"}), "spec.thresholds"),
    ("no action", |p| p["spec"]["actions"] = json!([]), "spec.actions"),
    ("an unknown action", |p| p["spec"]["actions"] = json!([{"type": "reboot"}]), "spec.actions[0].type"),
];

/// Refused by the engine, which alone knows the configuration.
const BY_THE_ENGINE: &[Bad] = &[
    (
        "unknown-fallback",
        |p| p["spec"]["actions"][0]["config"]["fallback"] = json!("read-only"),
        "spec.actions[0].config.fallback",
    ),
    ("unlisted-kind", |p| p["spec"]["targetRef"]["kind"] = json!("PaymentService"), "spec.targetRef"),
    ("unserved-kind", |p| p["spec"]["targetRef"]["kind"] = json!(UNSERVED_KIND.1), UNSERVED_KIND.1),
    ("no-such-target", |p| p["spec"]["targetRef"]["name"] = json!("nowhere"), "nowhere"),
    ("no-promql", |p| p["spec"]["signal"] = json!({"query": "sum(rate(", "unit": "s"}), "spec.signal.query"),
    ("deep-promql", |p| p["spec"]["signal"] = json!({"query": deep(), "unit": "s"}), "spec.signal.query"),
    ("a-range", |p| p["spec"]["signal"] = json!({"query": "wait_seconds[5m]", "unit": "s"}), "spec.signal.query"),
    ("unknown-backend", |p| p["spec"]["signal"] = json!({"backend": "thanos"}), "spec.signal.backend"),
    ("unknown-template", |p| p["spec"]["signal"] = json!({"template": "linkerd"}), "spec.signal.template"),
    (
        "unknown-sink",
        |p| p["spec"]["actions"] = json!([{"type": "notify", "config": {"sink": "pager"}}]),
        "spec.actions[0].config.sink",
    ),
];

fn deep() -> String {
    format!("{}wait_seconds{}", "(".repeat(100), ")".repeat(100))
}

/// Rules that do not pass the gate, and those that say nothing of use: name, module, what status says.
const RULES: &[(&str, &str, &str)] = &[
    ("syntax", "package bad\nverdict := {", "spec.rule.module"),
    ("recursion", "package bad\nverdict := verdict", "spec.rule.module"),
    ("deep", "DEEP", "spec.rule.module"),
    ("endless", "ENDLESS", "EvaluationLimit"),
    (
        "undefined",
        "package bad\nverdict := {\"breached\": true, \"reasons\": [], \"pods\": []} if input.policy.name == \"nobody\"",
        "Undefined",
    ),
    ("wrong-shape", "package bad\nverdict := {\"breached\": \"perhaps\"}", "WrongShape"),
];

fn governed_by(name: &str, module: &str) -> Value {
    let module = match module {
        "DEEP" => format!("package bad\nverdict := {}1{}", "[".repeat(25), "]".repeat(25)),
        "ENDLESS" => {
            let many = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
            let loops = ["a", "b", "c", "d", "e"].map(|name| format!("some {name} in many")).join("; ");
            format!("package bad\nmany := [{many}]\nverdict := {{\"breached\": count([1 | {loops}; a + e < 0]) > 0}}")
        }
        other => other.to_owned(),
    };
    json!({
        "apiVersion": "policy.trade.io/v1alpha2",
        "kind": "GovernancePolicy",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": SERVICE},
            "interval": "5s",
            "thresholds": {"duration": "20s"},
            "signals": [{"name": "p99", "quantile": 0.99, "threshold": "800ms"}],
            "rule": {"module": module, "entrypoint": "data.bad.verdict"},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn good_policies_are_judged_beside_a_bad_one_of_every_kind() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    for number in 0..3 {
        scene.apply(&breaker(&format!("good-{number}"), "10m")).await;
    }
    for (what, spoil, path) in AT_THE_DOOR {
        let mut bad = breaker("bad", "10m");
        spoil(&mut bad);
        let refused = scene.try_apply(&bad).await.expect_err(what);
        assert!(refused.contains(path), "{what}: no `{path}` in: {refused}");
        assert!(scene.policy("bad").is_none(), "{what}");
    }
    for (name, spoil, path) in BY_THE_ENGINE {
        let mut bad = breaker(name, "10m");
        spoil(&mut bad);
        scene.apply(&bad).await;
        scene.until(name, 30, || scene.condition(name, "Accepted").starts_with("False")).await;
        let accepted = scene.condition(name, "Accepted");
        assert!(accepted.contains(path), "{name}: no `{path}` in: {accepted}");
    }
    for (name, module, told) in RULES {
        scene.apply(&governed_by(name, module)).await;
        let says = || {
            let policy = scene.world.object("GovernancePolicy", name).expect("is there");
            policy["status"]["conditions"].to_string().contains(told)
                || engine.policy(name).is_some_and(|shown| shown.reason.as_str() == *told)
        };
        scene.until(&format!("{name} says {told}"), 60, says).await;
    }
    // A good text that was in force stays so when a bad one comes over it.
    scene.edit("good-2", json!({"signal": {"query": "sum(", "unit": "s"}})).await;
    scene.until("the edit is refused", 10, || scene.condition("good-2", "Accepted").starts_with("False")).await;
    scene.breach();
    for name in ["good-0", "good-1", "good-2"] {
        scene.until(&format!("{name} is Active"), 90, || scene.phase(name) == "Active").await;
    }
    scene.until("the breaker is open", 20, || scene.stands()).await;
    assert!(engine.acts());
}
