//! The engine as it ships: the binary of this build, as a child process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::support::parts::directory;
use crate::support::process::Process;

const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// A running `tradeguard run`. Dropped, it is killed.
pub(crate) struct Engine {
    process: Process,
}

impl Engine {
    /// Starts the engine outside of the cluster with this configuration (the YAML of `--config`). The kubeconfig is that
    /// of the ServiceAccount it ships with, never an admin's. `name` is for its log.
    pub(crate) fn start(name: &str, kubeconfig: &Path, config: &str) -> Self {
        let directory: PathBuf = directory(name);
        let config_file = directory.join("config.yaml");
        fs::write(&config_file, config).expect("the directory is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradeguard"));
        command.arg("run").arg("--kubeconfig").arg(kubeconfig).arg("--config").arg(config_file);
        command.current_dir(&directory);
        Self { process: Process::start(name, &directory, &mut command) }
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
