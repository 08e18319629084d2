//! The engine as it ships: installed by deploy/install.yaml, run as the binary of this build in a child process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde_json::Value;

use crate::support::parts::{ControlPlane, User, directory};
use crate::support::process::Process;

const INSTALL: &str = include_str!("../../../deploy/install.yaml");
/// Who the engine is in a cluster, by install.yaml.
pub(crate) const ACCOUNT: User<'static> = User::ServiceAccount { namespace: "tradeguard-system", name: "tradeguard" };

const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// `kubectl apply` of install.yaml, and a kubeconfig of the account that it creates. Nothing runs its DaemonSet here;
/// tests start `Engine`s in its place.
pub(crate) async fn install(control_plane: &ControlPlane) -> PathBuf {
    control_plane.apply(None, INSTALL).await;
    control_plane.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crds", "--all"]).await;
    control_plane.kubeconfig(ACCOUNT).await
}

/// `tradeguard run` with a directory of its own, which outlives the process. Dropped, it is killed.
pub(crate) struct Engine {
    identity: String,
    kubeconfig: PathBuf,
    directory: PathBuf,
    process: Option<Process>,
}

impl Engine {
    /// Starts an engine of this identity outside of the cluster, with this configuration (the YAML of `--config`) and the
    /// kubeconfig that `install` gave.
    pub(crate) fn start(identity: &str, kubeconfig: &Path, config: &str) -> Self {
        let directory = directory(identity);
        fs::write(directory.join("config.yaml"), config).expect("the directory is ours");
        let mut engine =
            Self { identity: identity.to_owned(), kubeconfig: kubeconfig.to_owned(), directory, process: None };
        engine.start_again();
        engine
    }

    /// Starts it after its end, with what it left on disk.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradeguard"));
        command.args(["run", "--config", "config.yaml", "--identity", &self.identity]);
        command.arg("--kubeconfig").arg(&self.kubeconfig).current_dir(&self.directory);
        self.process = Some(Process::start(&self.identity, &self.directory, &mut command));
    }

    /// Puts a file into its directory, where its configuration may name it.
    pub(crate) fn write(&self, file: &str, content: &str) {
        fs::write(self.directory.join(file), content).expect("the directory is ours");
    }

    /// The log of all its processes so far: JSON objects, one a line.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.join(format!("{}.log", self.identity))).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// How often it said this.
    pub(crate) fn said(&self, message: &str) -> usize {
        self.log().iter().filter(|line| line["msg"] == message).count()
    }

    /// The base of its HTTP surface, once it listens.
    pub(crate) fn url(&self) -> Result<String, String> {
        let log = self.log();
        let listening = log.iter().rev().find(|line| line["msg"] == "listening");
        let address = listening.and_then(|line| line["address"].as_str());
        address.map(|address| format!("http://{address}")).ok_or_else(|| String::from("it does not listen yet"))
    }

    /// SIGKILL, as by the kernel when memory runs out.
    pub(crate) fn kill9(&mut self) {
        self.process.take().expect("it runs").kill9();
    }

    /// SIGTERM, as by Kubernetes, and the status it ends with.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.process.take().expect("it runs").terminate(STOPS_WITHIN).await
    }
}
