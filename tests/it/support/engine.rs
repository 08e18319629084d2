//! The engine as it ships: installed by deploy/install.yaml, run as the binary of this build in a child process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

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

/// A running `tradeguard run`. Dropped, it is killed.
pub(crate) struct Engine {
    process: Process,
}

impl Engine {
    /// Starts an engine of this identity outside of the cluster, with this configuration (the YAML of `--config`) and the
    /// kubeconfig that `install` gave.
    pub(crate) fn start(identity: &str, kubeconfig: &Path, config: &str) -> Self {
        let directory = directory(identity);
        let config_file = directory.join("config.yaml");
        fs::write(&config_file, config).expect("the directory is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradeguard"));
        command.arg("run").arg("--identity").arg(identity).arg("--kubeconfig").arg(kubeconfig);
        command.arg("--config").arg(config_file).current_dir(&directory);
        Self { process: Process::start(identity, &directory, &mut command) }
    }

    /// The status it ended with by itself, `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Its log so far, one JSON object a line.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// SIGKILL, as by the kernel when memory runs out.
    pub(crate) fn kill9(self) {
        self.process.kill9();
    }

    /// SIGTERM, as by Kubernetes, and the status it ends with.
    pub(crate) async fn stop(self) -> ExitStatus {
        self.process.terminate(STOPS_WITHIN).await
    }
}
