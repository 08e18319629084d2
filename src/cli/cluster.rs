//! The way to a cluster, for commands that need one.

use std::path::Path;
use std::sync::Arc;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::{Error, Result};
use crate::model::problem::Problem;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::rest::RestRequests;

/// A client by a kubeconfig file, else as `kubectl` finds its cluster, else that of the Pod this runs in. Connects to
/// nothing yet. With `metrics`, requests are counted.
pub(crate) async fn client(kubeconfig: Option<&Path>, metrics: Option<Arc<Metrics>>) -> Result<Client> {
    let config = match kubeconfig {
        Some(path) => {
            let wrong =
                |error: &dyn std::error::Error| Error::from(Problem::at(path.display().to_string(), words(error)));
            let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|error| wrong(&error))?
        }
        None => Config::infer().await.map_err(|error| {
            Error::Usage(format!(
                "no cluster: give --kubeconfig FILE, set KUBECONFIG, or run in a Pod ({})",
                words(&error)
            ))
        })?,
    };
    let host = config.cluster_url.authority().map_or_else(String::new, ToString::to_string);
    let unusable =
        |error: kube::Error| Error::Usage(format!("the cluster's configuration cannot be used: {}", words(&error)));
    match metrics {
        Some(metrics) => {
            Ok(ClientBuilder::try_from(config).map_err(unusable)?.with_layer(&RestRequests::new(metrics, host)).build())
        }
        None => Client::try_from(config).map_err(unusable),
    }
}

/// What went wrong with the API server, for people.
pub(crate) fn unreachable(error: &kube::Error) -> Error {
    Error::Unreachable(format!("the API server: {}", words(error)))
}

/// An error with its causes, in one line.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
