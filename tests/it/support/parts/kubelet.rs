//! Stands in for the kubelet: gives Pods an address and says that they run. What they serve is not its business.

use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::pod_address;

const BETWEEN_TRIES: Duration = Duration::from_millis(200);

/// Runs the Pods of one namespace until it is dropped. Pods without a node are removed by the API server as soon as they
/// are deleted, so there is nothing to do about their end.
pub(crate) struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// The client is an admin's.
    pub(crate) fn start(client: Client, namespace: &str) -> Self {
        Self(tokio::spawn(run_pods(Api::namespaced(client, namespace))))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run_pods(pods: Api<Pod>) {
    // An API server that is away is waited for: the watch begins anew with everything that is there then.
    let events = watcher(pods.clone(), watcher::Config::default()).default_backoff().applied_objects();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let Some(status) = status_due(&pod) else { continue };
        let patch = Patch::Strategic(json!({"status": status}));
        while let Err(error) = pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            if matches!(&error, kube::Error::Api(answer) if answer.code == 404) {
                break;
            }
            sleep(BETWEEN_TRIES).await;
        }
    }
}

/// What a kubelet would write now, `None` if that is what stands: running from the first look, and Ready while every
/// readiness gate is True.
fn status_due(pod: &Pod) -> Option<serde_json::Value> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let ready = gates.map(|gate| &gate.condition_type).all(|gate| condition(pod, gate) == Some("True"));
    let ready = if ready { "True" } else { "False" };
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    if address.is_some() && condition(pod, "Ready") == Some(ready) {
        return None;
    }
    let address = address.unwrap_or_else(|| pod_address().to_string());
    Some(json!({
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Initialized", "status": "True"},
            {"type": "ContainersReady", "status": "True"},
            {"type": "Ready", "status": ready},
        ],
    }))
}

fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.type_ == name).map(|condition| condition.status.as_str()).next()
}
