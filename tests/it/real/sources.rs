//! Policies from ConfigMaps in a real cluster, as a team of the lab and its platform people meet them.

use std::time::Duration;

use serde_json::Value;

use crate::real::scene::{NAMESPACE, SOON, Scene};
use crate::support::engine::Engine;
use crate::support::wait::wait_until;

/// The lab owns the namespace; its policies come from ConfigMaps.
const LAB: &str = r"
apiVersion: policy.trade.io/v1alpha2
kind: Tenant
metadata: {name: lab}
spec:
  class: lab
  namespaceSelector: {matchLabels: {team: lab}}
---
apiVersion: policy.trade.io/v1alpha2
kind: PolicySource
metadata: {name: lab}
spec:
  tenant: lab
  configMap: {}
";

/// Judged when its text changes, and otherwise once an hour.
pub(super) fn policy(name: &str, p99: &str) -> String {
    format!(
        r"
apiVersion: policy.trade.io/v1alpha2
kind: LatencyBudgetPolicy
metadata: {{name: {name}}}
spec:
  targetRef: {{apiVersion: trade.io/v1, kind: OrderService, name: core-trading}}
  interval: 1h
  thresholds: {{p99: {p99}, duration: 2m}}
  actions: [{{type: circuit-breaker, config: {{timeout: 30s, fallback: cache-only}}}}]
"
    )
}

/// A scene with a source of policies.
pub(super) struct Sourced {
    pub(super) scene: Scene,
    pub(super) engine: Engine,
    /// Name of the source, and of its tenant.
    name: &'static str,
}

impl Sourced {
    /// The namespace of the service belongs to the tenant of this name; `objects` are Tenant and PolicySource.
    pub(super) async fn open(name: &'static str, objects: &str) -> Self {
        let scene = Scene::open().await;
        scene.control_plane.kubectl(&["label", "namespace", NAMESPACE, &format!("team={name}")]).await;
        scene.control_plane.apply(None, objects).await;
        let engine = scene.engine("one");
        wait_until("the engine serves", SOON, async || engine.url()).await;
        Self { scene, engine, name }
    }

    /// Writes a ConfigMap of the source with these files.
    async fn write(&self, name: &str, files: &[(&str, &str)]) {
        let data: serde_json::Map<String, Value> =
            files.iter().map(|(file, text)| ((*file).to_owned(), Value::from(*text))).collect();
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"policy.trade.io/source": "lab"}},
            "data": data,
        });
        self.scene.apply(&object.to_string()).await;
    }

    /// What the engine shows of a policy, with when it was judged last.
    pub(super) async fn shown(&self, name: &str) -> Result<Value, String> {
        let url = format!("{}/v1/policies?namespace={NAMESPACE}", self.engine.url()?);
        let answer = reqwest::get(&url).await.map_err(|error| error.to_string())?;
        let body = answer.text().await.map_err(|error| error.to_string())?;
        let listed: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["name"] == name).ok_or(body)
    }

    /// Waits until the policy was judged by this threshold.
    pub(super) async fn until_judged(&self, name: &str, p99: &str) {
        wait_until(&format!("{name} is judged by {p99}"), SOON, async || {
            let shown = self.shown(name).await?;
            let judged = shown["signals"]["p99"]["thresholdWritten"] == p99 && !shown["judgedAt"].is_null();
            if judged { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    }

    async fn source(&self) -> Result<Value, String> {
        let text = self.scene.control_plane.kubectl(&["get", "policysource", self.name, "-o", "json"]).await;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// Waits until the status of the source is as wanted, and returns it.
    pub(super) async fn until_source(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, SOON, async || {
            let status = self.source().await?["status"].clone();
            if wanted(&status) { Ok(status) } else { Err(status.to_string()) }
        })
        .await
    }

    /// Runs `tradeguard source …` as a person would.
    pub(super) async fn source_command(&self, arguments: &[&str]) -> (i32, String) {
        let kubeconfig = self.scene.control_plane.kubeconfig(crate::support::parts::User::Admin).await;
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tradeguard"))
            .arg("source")
            .args(arguments)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .output()
            .await
            .expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }
}

#[tokio::test]
async fn a_config_map_is_in_force_at_once_refused_alone_and_rolled_back_by_hand() {
    let lab = Sourced::open("lab", LAB).await;
    lab.write("limits", &[("a.yaml", &policy("checkout", "800ms")), ("b.yaml", &policy("quotes", "700ms"))]).await;
    lab.write("others", &[("c.yaml", &policy("ledger", "900ms"))]).await;
    lab.until_judged("checkout", "800ms").await;
    lab.until_judged("ledger", "900ms").await;
    let good = lab.until_source("all is in force", |status| status["policies"] == 3).await;
    assert_eq!(good["unprocessed"], 0, "{good:#}");

    // An edit, and what somebody does to the mirror.
    lab.write("limits", &[("a.yaml", &policy("checkout", "810ms")), ("b.yaml", &policy("quotes", "700ms"))]).await;
    lab.until_judged("checkout", "810ms").await;
    let patch = r#"{"spec":{"thresholds":{"p99":"5s"}}}"#;
    lab.scene.control_plane.kubectl(&["patch", "lbp", "checkout", "-n", NAMESPACE, "--type=merge", "-p", patch]).await;
    let read = ["get", "lbp", "checkout", "-n", NAMESPACE, "-o", "jsonpath={.spec.thresholds.p99}"];
    wait_until("the edit is put back", SOON, async || {
        let p99 = lab.scene.control_plane.kubectl(&read).await;
        if p99 == "810ms" { Ok(()) } else { Err(p99) }
    })
    .await;
    assert_eq!(
        lab.shown("checkout").await.unwrap()["signals"]["p99"]["thresholdWritten"],
        "810ms",
        "never judged by it"
    );

    // A broken text: its last good one stays, the other ConfigMap is untouched.
    lab.write(
        "limits",
        &[("a.yaml", "kind: LatencyBudgetPolicy\nspec: [1, 2\n"), ("b.yaml", &policy("quotes", "1ms"))],
    )
    .await;
    let refused = lab.until_source("the broken text is refused", |status| !status["rejected"].is_null()).await;
    assert_eq!((&refused["policies"], &refused["unprocessed"]), (&Value::from(3), &Value::from(2)), "{refused:#}");
    let message = refused["rejected"]["message"].as_str().unwrap();
    assert!(message.starts_with("a.yaml:2:7: "), "{message}");
    lab.until_judged("quotes", "700ms").await;
    let (code, listed) = lab.source_command(&["list"]).await;
    assert!(code == 1 && listed.contains("2 not as written") && listed.contains("a.yaml:2:7"), "{code}: {listed}");
    let metrics = reqwest::get(format!("{}/metrics", lab.engine.url().unwrap())).await.unwrap().text().await.unwrap();
    let rejected = r#"tradeguard_policies{reason="InvalidSource",state="rejected",tenant="lab"} 2"#;
    assert!(metrics.contains(rejected), "{metrics}");

    // Another engine, which never saw the good text, finds it all the same.
    let second = lab.scene.engine("two");
    wait_until("the second engine has the last good text", SOON, async || {
        let log = second.log();
        let in_force = log.iter().any(|line| line["msg"] == "revision in force" && line["request"] == "trading/limits");
        if in_force { Ok(()) } else { Err(format!("{log:?}")) }
    })
    .await;

    // A person holds the good revision; then lets go of it, and repairs the text.
    let (code, told) = lab.source_command(&["rollback", "lab", "--reason", "the new limits do not parse"]).await;
    assert!(code == 0 && told.contains("trading/limits is held at revision "), "{code}: {told}");
    lab.until_source("nothing is unprocessed", |status| status["unprocessed"] == 0).await;
    let (code, listed) = lab.source_command(&["history", "lab"]).await;
    assert!(code == 0 && listed.contains("held at ") && listed.contains("the new limits do not parse"), "{listed}");
    lab.write("limits", &[("a.yaml", &policy("checkout", "820ms"))]).await;
    let (code, told) = lab.source_command(&["rollback", "lab", "--part", "trading/limits", "--unpin"]).await;
    assert_eq!(code, 0, "{told}");
    lab.until_judged("checkout", "820ms").await;
    wait_until("the policy that was left out is gone", SOON, async || match lab.shown("quotes").await {
        Err(_) => Ok(()),
        Ok(shown) => Err(shown.to_string()),
    })
    .await;

    // The source goes, and what it brought.
    lab.scene.control_plane.kubectl(&["delete", "policysource", "lab"]).await;
    wait_until("no policy is left", SOON, async || {
        let left = lab.scene.control_plane.kubectl(&["get", "lbp", "-n", NAMESPACE, "-o", "name"]).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Each is seen before the next is made; how long that takes is what docs/benchmarks.md shows, and nothing is held to it.
#[tokio::test]
async fn every_one_of_many_edits_is_judged_by() {
    const EDITS: usize = 200;
    let lab = Sourced::open("lab", LAB).await;
    lab.write("limits", &[("a.yaml", &policy("checkout", "800ms"))]).await;
    lab.until_judged("checkout", "800ms").await;
    let config_maps = lab.scene.config_maps();
    let mut took = Vec::new();
    for edit in 0..EDITS {
        let p99 = format!("{}ms", 801 + edit);
        let patch = kube::api::Patch::Merge(serde_json::json!({"data": {"a.yaml": policy("checkout", &p99)}}));
        let before = lab.shown("checkout").await.expect("it is known")["judgedAt"].clone();
        let started = tokio::time::Instant::now();
        config_maps.patch("limits", &kube::api::PatchParams::default(), &patch).await.expect("it is there");
        loop {
            let shown = lab.shown("checkout").await.unwrap_or_default();
            let is_new = shown["signals"]["p99"]["thresholdWritten"] == p99.as_str();
            if is_new && shown["judgedAt"] != before {
                break;
            }
            assert!(started.elapsed() < SOON, "{shown}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        took.push(started.elapsed());
    }
    took.sort_unstable();
    println!("edit to first decision over {EDITS} edits: p50 {:?}, p99 {:?}", took[EDITS / 2], took[EDITS * 99 / 100]);
}
