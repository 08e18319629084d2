//! A Prometheus that scrapes what tests tell it to, once a second.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{binary, directory, free_port, install_crypto_provider};
use crate::support::process::Process;
use crate::support::wait::wait_until;

const READY_WITHIN: Duration = Duration::from_mins(1);

const CONFIG: &str = "\
global:
  scrape_interval: 1s
  scrape_timeout: 900ms
scrape_configs:
  - job_name: pods
    file_sd_configs:
      - files: [targets/*.json]
";

/// One Pod to scrape, with the labels that service discovery would give it.
#[derive(Debug, Clone)]
pub(crate) struct ScrapeTarget {
    pub(crate) address: SocketAddr,
    pub(crate) namespace: String,
    pub(crate) pod: String,
}

/// A running Prometheus. Dropped, it is gone.
pub(crate) struct Prometheus {
    directory: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl Prometheus {
    /// Starts one with nothing to scrape yet, and waits until it answers.
    pub(crate) async fn start() -> Self {
        let directory = directory("prometheus");
        fs::create_dir(directory.join("targets")).expect("the directory is ours");
        fs::write(directory.join("prometheus.yml"), CONFIG).expect("the directory is ours");
        let mut prometheus = Self { directory, port: free_port(), process: None };
        prometheus.start_again().await;
        prometheus
    }

    /// Starts it after a stop, on the same port with the series it had.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut command = Command::new(binary("prometheus"));
        command
            .arg(format!("--config.file={}", self.directory.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", self.directory.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .arg("--log.level=warn");
        self.process = Some(Process::start("prometheus", &self.directory, &mut command));
        wait_until("Prometheus is ready", READY_WITHIN, async || {
            let process = self.process.as_mut().expect("it was started");
            if let Some(status) = process.ended() {
                panic!("Prometheus ended with {status}: {}", process.log());
            }
            get(&format!("{}/-/ready", self.url())).await
        })
        .await;
    }

    /// Kills it: connections are refused from now on.
    pub(crate) fn stop(&mut self) {
        self.process.take().expect("it runs").kill9();
    }

    /// Where it listens, without a slash at the end.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The file that says what to scrape on behalf of `owner`; `write_targets` fills it.
    pub(crate) fn targets_file(&self, owner: &str) -> PathBuf {
        self.directory.join("targets").join(format!("{owner}.json"))
    }

    /// The result of an instant query: a list of series, each with `metric` and `value`.
    pub(crate) async fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let address = url::Url::parse_with_params(&format!("{}/api/v1/query", self.url()), [("query", query)]);
        let body = get(address.expect("it is well-formed").as_str()).await?;
        let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        answer["data"]["result"].as_array().cloned().ok_or(body)
    }
}

/// Replaces what Prometheus scrapes by this file; it takes notice at once.
pub(crate) fn write_targets(file: &Path, targets: &[ScrapeTarget]) {
    let groups: Vec<_> = targets
        .iter()
        .map(|target| {
            json!({
                "targets": [target.address.to_string()],
                "labels": {"namespace": target.namespace, "pod": target.pod},
            })
        })
        .collect();
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, Value::from(groups).to_string()).expect("the directory is ours");
    fs::rename(&fresh, file).expect("the directory is ours");
}

async fn get(url: &str) -> Result<String, String> {
    install_crypto_provider();
    let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = answer.text().await.map_err(|error| error.to_string())?;
    if status.is_success() { Ok(body) } else { Err(format!("{status}: {body}")) }
}
