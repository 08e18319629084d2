//! The custom resources on a real API server: their definitions are accepted, bad objects are refused at the same fields
//! as by our own checks, and `kubectl` reads well.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::OnceCell;
use tradeguard::api::{API_VERSION, admission as checks, crd, documents};

use crate::admission::{Case, cases};
use crate::support::parts::{ControlPlane, User};
use crate::support::wait::wait_until;

const SOON: Duration = Duration::from_secs(120);

/// The shared control plane with our definitions, served and explained.
pub(super) async fn with_definitions() -> &'static ControlPlane {
    static APPLIED: OnceCell<()> = OnceCell::const_new();
    let control_plane = ControlPlane::shared().await;
    let definitions: String = crd::all().iter().map(|crd| format!("---\n{}", crd::to_yaml(crd))).collect();
    APPLIED
        .get_or_init(async || {
            control_plane.apply(None, &definitions).await;
            // A server says Established before all of it knows of the new kinds; the last to know is the schema.
            wait_until("the kinds are explained", SOON, async || {
                control_plane.try_kubectl(&["explain", "iv"], "").await
            })
            .await;
        })
        .await;
    control_plane
}

fn collection(case: &Case, namespace: &str) -> String {
    let definition = crd::all().into_iter().find(|definition| definition.spec.names.kind == case.kind).unwrap();
    let scope = if definition.spec.scope == "Namespaced" { format!("namespaces/{namespace}/") } else { String::new() };
    format!("/apis/{API_VERSION}/{scope}{}", definition.spec.names.plural)
}

/// Creates the case's object as `kubectl apply` would, without keeping it: as stored, or the refused fields.
async fn create(client: &Client, case: &Case, namespace: &str) -> Result<Value, Vec<String>> {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(case, namespace));
    let body = case.object().to_string().into_bytes();
    let request = http::Request::post(path).header("Content-Type", "application/json").body(body).unwrap();
    let status = match client.request::<Value>(request).await {
        Ok(stored) => return Ok(stored),
        Err(kube::Error::Api(status)) => status,
        Err(error) => panic!("{}: {error}", case.name),
    };
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    // A cause without a field says only that there are others.
    let mut fields: BTreeSet<_> =
        causes.into_iter().map(|cause| cause.field).filter(|field| field != "<nil>").collect();
    let unknown = status.message.split("unknown field \"").nth(1).and_then(|rest| rest.split('"').next());
    fields.extend(unknown.map(str::to_owned));
    assert!(!fields.is_empty(), "{}: {}", case.name, status.message);
    Err(fields.into_iter().collect())
}

#[tokio::test]
async fn the_api_server_refuses_what_our_own_checks_refuse_at_the_same_fields() {
    let control_plane = with_definitions().await;
    let namespace = control_plane.new_namespace("crds").await;
    let client = control_plane.client(User::Admin).await;
    // The first requests after a definition may still meet a server that does not know it.
    wait_until("the kinds are served", SOON, async || {
        for case in cases() {
            let list = http::Request::get(collection(&case, &namespace)).body(Vec::new()).unwrap();
            client.request::<Value>(list).await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(())
    })
    .await;
    let mut wrong = Vec::new();
    for case in cases() {
        match create(&client, &case, &namespace).await {
            Ok(stored) => {
                let mut completed = case.object();
                checks::apply_defaults(&mut completed);
                if !case.paths().is_empty() || stored["spec"] != completed["spec"] {
                    wrong.push(format!("{}: was stored as {}", case.name, stored["spec"]));
                }
            }
            Err(fields) if fields != case.paths() => {
                wrong.push(format!("{}: expected {:?}, refused {fields:?}", case.name, case.paths()));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn kubectl_explains_lists_and_refuses_in_words() {
    let control_plane = with_definitions().await;
    let namespace = control_plane.new_namespace("crds").await;
    let explained = control_plane.kubectl(&["explain", "lbp.spec.thresholds.duration"]).await;
    assert!(explained.contains("How long a breach must last before anything is done."), "{explained}");

    let bases = include_str!("../admission/bases.yaml");
    control_plane.apply(Some(&namespace), bases.split("---\n").next().unwrap()).await;
    let table = control_plane.kubectl(&["get", "policy", "-n", &namespace]).await;
    for word in ["TARGET", "PHASE", "OBSERVED", "P99", "core-trading", "800ms"] {
        assert!(table.contains(word), "{table}");
    }

    let mut bad = documents::parse_documents("bases.yaml", bases.as_bytes()).unwrap().remove(0);
    bad["spec"]["thresholds"]["duration"] = "1h30".into();
    let refused =
        control_plane.try_kubectl(&["apply", "-n", &namespace, "-f", "-"], &bad.to_string()).await.unwrap_err();
    let expected = "spec.thresholds.duration: Invalid value: \"1h30\": expected a Go duration greater than zero";
    assert!(refused.contains(expected), "{refused}");
}
