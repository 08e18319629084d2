//! Policies of core trading from a Git repository in a real cluster: pushes that are good, bad, and not to be taken without
//! asking.

use serde_json::Value;

use crate::real::scene::{NAMESPACE, SOON};
use crate::real::sources::{Sourced, policy};
use crate::support::git_server::GitServer;
use crate::support::wait::wait_until;

fn core(url: &str) -> String {
    format!(
        "
apiVersion: policy.trade.io/v1alpha2
kind: Tenant
metadata: {{name: core}}
spec:
  class: core
  namespaceSelector: {{matchLabels: {{team: core}}}}
---
apiVersion: policy.trade.io/v1alpha2
kind: PolicySource
metadata: {{name: core}}
spec:
  tenant: core
  git: {{url: '{url}', branch: prod, path: policies, interval: 1s, credentials: policies}}
"
    )
}

fn in_namespace(name: &str, p99: &str) -> String {
    policy(name, p99).replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, namespace: {NAMESPACE}}}"))
}

/// Reason of the source's condition Ready.
fn ready(status: &Value) -> String {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default();
    format!("{} {}", ready["status"].as_str().unwrap_or_default(), ready["reason"].as_str().unwrap_or_default())
}

fn refused(status: &Value) -> &Value {
    &status["parts"][0]["rejected"]["reason"]
}

#[tokio::test]
async fn a_push_is_in_force_and_one_that_is_not_to_be_taken_changes_nothing() {
    let mut git = GitServer::start().await;
    git.set_credentials(Some(("engine", "first")));
    let many: String =
        ["quotes", "ledger", "margin"].map(|name| format!("---{}", in_namespace(name, "700ms"))).concat();
    git.push("policies/many.yaml", &many);
    let first = git.push("policies/checkout.yaml", &in_namespace("checkout", "800ms"));
    let mut core = Sourced::open("core", &core(&git.url())).await;
    core.until_source("it has no password yet", |status| ready(status) == "False SourceUnauthorized").await;
    core.engine.write("git-password", "first\n");
    core.until_judged("checkout", "800ms").await;
    let status = core.until_source("all is in force", |status| status["policies"] == 4).await;
    assert_eq!(status["active"]["revision"], first.as_str(), "{status:#}");

    git.push("policies/checkout.yaml", &in_namespace("checkout", "810ms"));
    core.until_judged("checkout", "810ms").await;

    // A file that is broken.
    git.push("policies/checkout.yaml", "kind: LatencyBudgetPolicy\nspec: [1, 2\n");
    let status = core.until_source("it is refused", |status| refused(status) == "InvalidSource").await;
    let message = status["rejected"]["message"].as_str().unwrap();
    assert!(message.starts_with("checkout.yaml:2:7: "), "{message}");
    core.until_judged("checkout", "810ms").await;

    // A commit that removes most policies waits for a person.
    git.push("policies/checkout.yaml", &in_namespace("checkout", "820ms"));
    core.until_judged("checkout", "820ms").await;
    let lean = git.push("policies/many.yaml", &in_namespace("quotes", "700ms").replace("quotes", "checkout-2"));
    core.until_source("it waits", |status| refused(status) == "MassRemoval").await;
    core.shown("ledger").await.unwrap();
    let (code, told) = core.source_command(&["accept", "core", "--reason", "the desk was closed"]).await;
    assert!(code == 0 && told.contains(&lean), "{code}: {told}");
    core.until_judged("checkout-2", "700ms").await;
    core.until_source("it is in force", |status| status["policies"] == 2 && ready(status) == "True Accepted").await;

    // History that was rewritten waits as well.
    git.reset(&first);
    let other = git.push("policies/checkout.yaml", &in_namespace("checkout", "830ms"));
    core.until_source("it waits", |status| refused(status) == "NotDescendant").await;
    assert_eq!(core.shown("checkout").await.unwrap()["signals"]["p99"]["thresholdWritten"], "820ms");
    let (code, told) = core.source_command(&["accept", "core"]).await;
    assert!(code == 0 && told.contains(&other), "{code}: {told}");
    core.until_judged("checkout", "830ms").await;

    // A password that is rotated needs no restart.
    git.set_credentials(Some(("engine", "second")));
    core.until_source("the old one is refused", |status| ready(status) == "False SourceUnauthorized").await;
    core.engine.write("git-password", "second");
    core.until_source("the new one is taken", |status| ready(status) == "True Accepted").await;

    // An engine that starts while the server is away goes on from its disk, with the policies that are there.
    git.stop().await;
    core.until_source("the server is missed", |status| ready(status) == "False SourceUnreachable").await;
    let read = ["get", "lbp", "ledger", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"];
    let uid = core.scene.control_plane.kubectl(&read).await;
    core.engine.kill9();
    core.engine.start_again();
    wait_until("the last good commit is in force", SOON, async || {
        let log = core.engine.log();
        let in_force =
            log.iter().filter(|line| line["msg"] == "revision in force" && line["revision"] == other.as_str());
        if in_force.count() >= 2 { Ok(()) } else { Err("not yet") }
    })
    .await;
    git.resume().await;
    core.until_source("all is well", |status| status["policies"] == 4 && ready(status) == "True Accepted").await;
    assert_eq!(core.scene.control_plane.kubectl(&read).await, uid, "nothing was taken away and made anew");
}
