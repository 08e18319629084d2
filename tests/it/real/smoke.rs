//! The real parts come up, do what the other tests rely on, and come back after a stop.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};

use crate::support::order_service::{OBJECTS, OrderService};
use crate::support::parts::{ControlPlane, Kubelet, Prometheus, User};
use crate::support::wait::{holds_for, wait_until};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_control_plane_reports_its_version() {
    let control_plane = ControlPlane::shared().await;
    let version = control_plane.client(User::Admin).await.apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.37.2");
    let client = control_plane.kubectl(&["version", "--client"]).await;
    assert!(client.contains("v1.37.2"), "{client}");
}

#[tokio::test]
async fn a_service_account_may_do_what_its_role_allows_and_no_more() {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.new_namespace("account").await;
    let admin = control_plane.client(User::Admin).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, &namespace);
    let metadata = ObjectMeta { name: Some("engine".into()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let account = format!("{namespace}:engine");
    control_plane
        .kubectl(&["create", "role", "reader", "-n", &namespace, "--verb=list", "--resource=configmaps"])
        .await;
    control_plane
        .kubectl(&["create", "rolebinding", "r", "-n", &namespace, "--role=reader", "--serviceaccount", &account])
        .await;

    let engine = control_plane.client(User::ServiceAccount { namespace: &namespace, name: "engine" }).await;
    let config_maps: Api<ConfigMap> = Api::namespaced(engine.clone(), &namespace);
    wait_until("the binding is in force", SOON, async || config_maps.list(&ListParams::default()).await).await;
    let refused = Api::<Pod>::namespaced(engine, &namespace).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(answer) if answer.code == 403), "{refused}");
}

#[tokio::test]
async fn an_apiserver_that_was_stopped_comes_back_with_its_data() {
    let mut control_plane = ControlPlane::start().await;
    let namespace = control_plane.new_namespace("kept").await;
    control_plane.stop_apiserver();
    let away = control_plane.try_kubectl(&["get", "namespaces"], "").await.unwrap_err();
    assert!(away.contains("refused"), "{away}");
    control_plane.start_apiserver().await;
    let names = control_plane.kubectl(&["get", "namespaces", "-o", "name"]).await;
    assert!(names.contains(&namespace), "{names}");
}

#[tokio::test]
async fn a_pod_is_ready_only_while_its_gate_is_open() {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.new_namespace("gate").await;
    let client = control_plane.client(User::Admin).await;
    let _kubelet = Kubelet::start(client.clone(), &namespace);
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "readinessGates": [{"conditionType": "policy.trade.io/serving"}]},
    });
    control_plane.apply(Some(&namespace), &pod.to_string()).await;
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let ready = async |wanted: &str| {
        wait_until(&format!("Ready is {wanted}"), SOON, async || {
            let status = pods.get("gated").await.map_err(|error| error.to_string())?.status;
            let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
            let found = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == wanted);
            if found { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await;
    };
    ready("False").await;
    let gate = r#"{"status":{"conditions":[{"type":"policy.trade.io/serving","status":"True"}]}}"#;
    control_plane.kubectl(&["patch", "pod", "gated", "-n", &namespace, "--subresource=status", "-p", gate]).await;
    ready("True").await;
}

#[tokio::test]
async fn a_prometheus_that_was_stopped_comes_back_with_its_series() {
    let mut prometheus = Prometheus::start().await;
    assert_eq!(prometheus.query("vector(1)").await.unwrap().len(), 1);
    prometheus.stop();
    assert!(prometheus.query("vector(1)").await.is_err());
    prometheus.start_again().await;
    assert_eq!(prometheus.query("vector(1)").await.unwrap().len(), 1);
}

/// The world that the engine is tested in: what a test does to it shows in Prometheus and in who is served.
#[tokio::test]
async fn latency_labels_and_weights_show_in_the_order_service() {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.new_namespace("orders").await;
    let prometheus = Prometheus::start().await;
    let service = OrderService::deploy(control_plane, &namespace, &prometheus, OBJECTS).await;
    holds_for("a destination with weight zero gets no requests", Duration::from_secs(1), async || {
        let served = service.served();
        if served_by("cache-only", &service) == 0 { Ok(()) } else { Err(format!("{served:?}")) }
    })
    .await;

    let slow = service.served().into_keys().find(|pod| !pod.contains("cache-only")).unwrap();
    let chosen = slow.clone();
    service.set_latency(move |pod, _| Duration::from_millis(if pod == chosen { 1_000 } else { 20 }));
    wait_until("one Pod shows as slow", SOON, async || {
        let series = "sum by (pod, le) (rate(http_request_duration_seconds_bucket{namespace=\"NS\"}[5s]))";
        let query = format!("histogram_quantile(0.99, {series}) > 0.8", series = series.replace("NS", &namespace));
        let found = prometheus.query(&query).await?;
        if found.len() == 1 && found[0]["metric"]["pod"] == *slow { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;

    control_plane.kubectl(&["label", "pod", &slow, "-n", &namespace, "traffic-"]).await;
    let others = |served: &BTreeMap<String, u64>| served.values().sum::<u64>() - served[&slow];
    wait_until("the others are served and the Pod is not", SOON, async || {
        let before = service.served();
        wait_until("the others are served", SOON, async || {
            if others(&service.served()) > others(&before) + 40 { Ok(()) } else { Err(format!("{before:?}")) }
        })
        .await;
        let now = service.served();
        if now[&slow] == before[&slow] { Ok(()) } else { Err(format!("{before:?}, then {now:?}")) }
    })
    .await;

    let weights = r#"[{"op":"replace","path":"/spec/http/0/route/0/weight","value":20},
                      {"op":"replace","path":"/spec/http/0/route/1/weight","value":80}]"#;
    control_plane.kubectl(&["patch", "vs", "core-trading", "-n", &namespace, "--type=json", "-p", weights]).await;
    wait_until("cache-only gets most requests", SOON, async || {
        let (cache_only, all) = (served_by("cache-only", &service), service.served().values().sum::<u64>());
        if cache_only * 2 > all { Ok(()) } else { Err(format!("{cache_only} of {all}")) }
    })
    .await;

    let pods: Api<Pod> = Api::namespaced(control_plane.client(User::Admin).await, &namespace);
    let listed = pods.list(&ListParams::default()).await.unwrap();
    let owner = listed.items.iter().find(|pod| pod.name_any() == slow).unwrap().owner_references().len();
    assert_eq!(owner, 1, "a Pod without traffic still belongs to its ReplicaSet");
    pods.delete(&slow, &DeleteParams::default()).await.unwrap();
    wait_until("another Pod takes its place and serves", SOON, async || {
        let served = service.served();
        let serving = served.iter().filter(|(pod, count)| !pod.contains("cache-only") && **count > 0).count();
        if serving == 3 && !served.contains_key(&slow) { Ok(()) } else { Err(format!("{served:?}")) }
    })
    .await;
}

fn served_by(version: &str, service: &OrderService) -> u64 {
    service.served().iter().filter(|(pod, _)| pod.contains(version)).map(|(_, count)| count).sum()
}
