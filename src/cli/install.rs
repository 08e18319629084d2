//! `tradeguard install print`: everything that a cluster needs to run the engine, as YAML.
//!
//! The ClusterRole follows the configuration's target kinds, so that the engine may touch nothing else. deploy/install.yaml
//! is what this prints for deploy/config.yaml; a test keeps it equal.

use std::fs;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use super::config::Config;
use super::{Error, Exit, Result, Streams};
use crate::api::crd;
use crate::model::problem::Problem;

mod rights;

/// What a cluster needs to run the engine.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print CRDs, namespace, rights, configuration and DaemonSet as YAML, ready for `kubectl apply -f -`.
    ///
    /// The rights follow the target kinds of the configuration: after a change there, print and apply again.
    Print {
        /// The configuration that the engine shall run with; see deploy/config.yaml for every field.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The container image.
        #[arg(long, default_value = DEFAULT_IMAGE)]
        image: String,
    },
}

const DEFAULT_IMAGE: &str = concat!("tradeguard:", env!("CARGO_PKG_VERSION"));

/// Name of everything that is installed.
const NAME: &str = "tradeguard";

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let Command::Print { config: path, image } = &args.command;
    let config = Config::load(path)?;
    let text = fs::read_to_string(path)
        .map_err(|error| Error::from(Problem::at(path.display().to_string(), format!("cannot be read: {error}"))))?;
    write!(streams.out, "{}", render(&config, &text, image)?)?;
    Ok(Exit::Ok)
}

/// Every object as one YAML text; `text` is the configuration as written.
fn render(config: &Config, text: &str, image: &str) -> Result<String> {
    let port = probe_port(config)?;
    let mut out = String::from(
        "# Printed by `tradeguard install print --config deploy/config.yaml`. Change the configuration and print again.\n",
    );
    for definition in crd::all() {
        out.push_str("---\n");
        out.push_str(&crd::to_yaml(&definition));
    }
    let objects = [
        namespace(config),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(config)}),
        rights::cluster_role(config),
        rights::cluster_role_binding(config),
        rights::role(config),
        rights::role_binding(config),
    ];
    for object in objects {
        push(&mut out, &object);
    }
    // By hand, since the comments of the configuration are worth keeping.
    let head = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(config)});
    push(&mut out, &head);
    out.push_str("data:\n  config.yaml: |\n");
    for line in text.lines() {
        out.push_str(if line.is_empty() { "" } else { "    " });
        out.push_str(line);
        out.push('\n');
    }
    push(&mut out, &daemon_set(config, image, port));
    Ok(out)
}

fn push(out: &mut String, object: &Value) {
    out.push_str("---\n");
    out.push_str(&serde_saphyr::to_string(object).expect("plain data has a YAML form"));
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

fn metadata(config: &Config) -> Value {
    json!({"name": NAME, "namespace": config.namespace, "labels": labels()})
}

/// The kubelet asks from outside the Pod, so one address must not be loopback.
fn probe_port(config: &Config) -> Result<u16> {
    config.listen.iter().find(|address| !address.ip().is_loopback()).map(std::net::SocketAddr::port).ok_or_else(|| {
        let found = "holds loopback addresses only";
        Error::from(Problem::expected("listen", found, "one that the kubelet reaches, such as `0.0.0.0:9650`"))
    })
}

fn namespace(config: &Config) -> Value {
    let mut labels = labels();
    for mode in ["enforce", "audit", "warn"] {
        labels[format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": config.namespace, "labels": labels}})
}

fn daemon_set(config: &Config, image: &str, port: u16) -> Value {
    let probe = |path: &str, period: u32| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": period});
    let container = json!({
        "name": NAME,
        "image": image,
        "args": ["run", "--config=/etc/tradeguard/config.yaml", "--identity=$(POD_NAME)"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "http", "containerPort": port}],
        "livenessProbe": probe("/livez", 10),
        "readinessProbe": probe("/readyz", 5),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/tradeguard", "readOnly": true},
            {"name": "state", "mountPath": config.state_dir.display().to_string()},
        ],
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(config),
        "spec": {
            "selector": {"matchLabels": labels()},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {
                    "labels": labels(),
                    "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": port.to_string()},
                },
                "spec": {
                    "serviceAccountName": NAME,
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [
                        {"name": "config", "configMap": {"name": NAME}},
                        // The restricted profile allows no host path; events that wait here outlive the container,
                        // not the Pod.
                        {"name": "state", "emptyDir": {"sizeLimit": "512Mi"}},
                    ],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests;
