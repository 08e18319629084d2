use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{DEFAULT_IMAGE, render};
use crate::api::{crd, documents::parse_documents};
use crate::cli::config::Config;
use crate::cli::{Exit, tests::run};

fn deploy(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

fn printed(config: &str) -> Vec<Value> {
    let text = render(&Config::parse("config.yaml", config).unwrap(), config, DEFAULT_IMAGE).unwrap();
    parse_documents("install.yaml", text.as_bytes()).unwrap()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

const LISTEN: &str = "listen: ['0.0.0.0:9650']\n";

#[test]
fn what_lies_in_deploy_is_what_is_printed() {
    let config = deploy("config.yaml");
    let (exit, out, err) = run(&["install", "print", "--config", config.to_str().unwrap()]);
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
    let path = deploy("install.yaml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &out).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap_or_default() == out,
        "deploy/install.yaml is not current: run again with UPDATE_GOLDEN=1"
    );
}

#[test]
fn the_configuration_arrives_as_written() {
    let text = fs::read_to_string(deploy("config.yaml")).unwrap();
    let objects = printed(&text);
    assert_eq!(of_kind(&objects, "ConfigMap")["data"]["config.yaml"], text);
}

#[test]
fn rights_follow_the_target_kinds_and_hold_no_wildcard() {
    let config = format!(
        "{LISTEN}targets: [{{apiVersion: trade.io/v1, kind: OrderService}}, {{apiVersion: apps/v1, kind: Deployment}}]"
    );
    let objects = printed(&config);
    let mut patched = Vec::new();
    for kind in ["ClusterRole", "Role"] {
        for rule in of_kind(&objects, kind)["rules"].as_array().unwrap() {
            assert!(!rule.to_string().contains('*'), "{rule}");
            let verbs = rule["verbs"].as_array().unwrap();
            let resources = rule["resources"].as_array().unwrap();
            if verbs.contains(&"patch".into()) {
                patched.extend(resources.iter().map(|resource| {
                    format!("{}/{}", rule["apiGroups"][0].as_str().unwrap(), resource.as_str().unwrap())
                }));
            }
            assert!(!resources.contains(&"secrets".into()), "{rule}");
        }
    }
    patched.sort();
    assert_eq!(
        patched,
        [
            "/pods",
            "/pods/status",
            "apps/controllerrevisions",
            "apps/deployments",
            "events.k8s.io/events",
            "networking.istio.io/virtualservices",
            "policy.trade.io/governancepolicies",
            "policy.trade.io/governancepolicies/status",
            "policy.trade.io/latencybudgetpolicies",
            "policy.trade.io/latencybudgetpolicies/status",
            "policy.trade.io/policysources/status",
            "trade.io/orderservices",
        ]
    );
}

#[test]
fn every_kind_of_ours_is_installed_and_readable() {
    let objects = printed(LISTEN);
    let rules = of_kind(&objects, "ClusterRole")["rules"].to_string();
    for definition in crd::all() {
        let plural = definition.spec.names.plural;
        assert!(rules.contains(&format!("\"{plural}\"")), "{plural}");
        assert!(objects.iter().any(|object| object["spec"]["names"]["plural"] == plural), "{plural}");
    }
}

#[test]
fn the_pod_passes_the_restricted_profile() {
    let objects = printed(LISTEN);
    let namespace = &of_kind(&objects, "Namespace")["metadata"]["labels"];
    assert_eq!(namespace["pod-security.kubernetes.io/enforce"], "restricted");
    let pod = &of_kind(&objects, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"]["drop"][0], "ALL");
    for volume in pod["volumes"].as_array().unwrap() {
        assert!(volume.get("hostPath").is_none(), "{volume}");
    }
}

#[test]
fn a_configuration_that_the_kubelet_cannot_probe_is_refused() {
    let config = Config::parse("config.yaml", "{}").unwrap();
    let refused = render(&config, "{}", DEFAULT_IMAGE).unwrap_err();
    assert!(refused.to_string().starts_with("listen: "), "{refused}");
}
