//! deploy/install.yaml in a real cluster: what it allows the engine, and that its Pod is admitted.

use serde_json::{Value, json};

use crate::support::engine::install;
use crate::support::order_service::create_kinds;
use crate::support::parts::ControlPlane;

/// The engine's account as RBAC knows it.
const ACCOUNT: &str = "system:serviceaccount:tradeguard-system:tradeguard";

#[tokio::test]
async fn the_engine_may_do_its_work_and_nothing_else() {
    let control_plane = ControlPlane::shared().await;
    install(control_plane).await;
    // RBAC knows no kinds, kubectl does.
    create_kinds(control_plane).await;
    let may = async |arguments: &[&str]| {
        let arguments = [&["auth", "can-i", "--as", ACCOUNT], arguments].concat();
        // It answers "no" with a failure.
        control_plane.try_kubectl(&arguments, "").await.is_ok_and(|answer| answer.trim() == "yes")
    };
    for allowed in [
        &["watch", "latencybudgetpolicies.policy.trade.io", "--all-namespaces"][..],
        &["patch", "latencybudgetpolicies.policy.trade.io", "--subresource=status", "-n", "default"],
        &["create", "interventions.policy.trade.io", "-n", "default"],
        &["get", "orderservices.trade.io", "-n", "default"],
        &["patch", "orderservices.trade.io", "-n", "default"],
        &["patch", "virtualservices.networking.istio.io", "-n", "default"],
        &["patch", "pods", "-n", "default"],
        &["update", "leases.coordination.k8s.io/tradeguard-actor", "-n", "tradeguard-system"],
    ] {
        assert!(may(allowed).await, "it needs to {allowed:?}");
    }
    for refused in [
        &["get", "secrets", "--all-namespaces"][..],
        &["create", "pods", "-n", "default"],
        &["patch", "deployments.apps", "-n", "default"],
        &["update", "leases.coordination.k8s.io/another", "-n", "tradeguard-system"],
        &["create", "clusterroles.rbac.authorization.k8s.io"],
        &["get", "configmaps", "-n", "kube-system"],
        &["*", "*", "--all-namespaces"],
    ] {
        assert!(!may(refused).await, "it has no business to {refused:?}");
    }
}

/// The namespace enforces Pod Security "restricted"; nothing creates the DaemonSet's Pods here, so we try one ourselves.
#[tokio::test]
async fn the_engines_pod_is_admitted_where_pods_are_restricted() {
    let control_plane = ControlPlane::shared().await;
    install(control_plane).await;
    let enforced = r"jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}";
    let enforced = control_plane.kubectl(&["get", "namespace", "tradeguard-system", "-o", enforced]).await;
    assert_eq!(enforced, "restricted");
    let daemon_set = control_plane.kubectl(&["get", "ds", "tradeguard", "-n", "tradeguard-system", "-o", "json"]).await;
    let daemon_set: Value = serde_json::from_str(&daemon_set).unwrap();
    let pod = |spec: &Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "trial-"}, "spec": spec}).to_string()
    };
    let create = ["create", "-n", "tradeguard-system", "--dry-run=server", "-f", "-"];
    let spec = &daemon_set["spec"]["template"]["spec"];
    control_plane.try_kubectl(&create, &pod(spec)).await.unwrap();

    let mut on_the_host = spec.clone();
    on_the_host["hostNetwork"] = json!(true);
    let refused = control_plane.try_kubectl(&create, &pod(&on_the_host)).await.unwrap_err();
    assert!(refused.contains("violates PodSecurity"), "{refused}");
}
