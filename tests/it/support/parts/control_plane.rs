//! A Kubernetes control plane: etcd and kube-apiserver, and kube-controller-manager for whoever needs Deployments to
//! have Pods. No scheduler and no kubelet; `Kubelet` stands in for the latter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, OnceCell};

use super::{binary, directory, free_port, install_crypto_provider};
use crate::support::process::Process;
use crate::support::wait::wait_until;

/// A loaded machine took 7 s; nothing is wrong below this.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// Without EndpointSlices: they refuse the loopback addresses that Pods have here, and nothing here reads them.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,\
                           garbage-collector-controller,namespace-controller,serviceaccount-controller";

/// Who speaks to the API server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum User<'a> {
    /// May do everything. For what tests prepare and look at, never for the engine.
    Admin,
    /// What the object's RBAC allows, with a token from the TokenRequest API as a Pod would have it.
    ServiceAccount { namespace: &'a str, name: &'a str },
}

/// A running control plane. Dropped, it is gone.
pub(crate) struct ControlPlane {
    directory: PathBuf,
    port: u16,
    etcd_url: String,
    admin_token: String,
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
    _etcd: Process,
    /// Tests that share this one may apply the same objects; two at once would both try to create them.
    applying: Mutex<()>,
}

impl ControlPlane {
    /// etcd and kube-apiserver, ready for requests.
    pub(crate) async fn start() -> Self {
        install_crypto_provider();
        let directory = directory("control-plane");
        let (etcd, etcd_url) = start_etcd(&directory);
        let admin_token = format!("{:032x}", fastrand::u128(..));
        fs::write(directory.join("tokens.csv"), format!("{admin_token},admin,admin,system:masters\n"))
            .expect("the directory is ours");
        let mut control_plane = Self {
            directory,
            port: free_port(),
            etcd_url,
            admin_token,
            controller_manager: None,
            apiserver: None,
            _etcd: etcd,
            applying: Mutex::new(()),
        };
        control_plane.start_apiserver().await;
        control_plane
    }

    /// The one that tests share which need only a namespace of their own; with the controllers of Deployments.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED
            .get_or_init(async || {
                let mut control_plane = Self::start().await;
                control_plane.start_controllers();
                control_plane
            })
            .await
    }

    /// Starts kube-apiserver on the same port and data as before, and waits until it is ready.
    pub(crate) async fn start_apiserver(&mut self) {
        assert!(self.apiserver.is_none(), "it runs already");
        let certificates = self.certificates();
        let key = certificates.join("apiserver.key");
        let mut command = Command::new(binary("kube-apiserver"));
        command
            .arg(format!("--etcd-servers={}", self.etcd_url))
            .arg(format!("--secure-port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"])
            .arg(format!("--cert-dir={}", certificates.display()))
            // The key that it makes for its own certificate at its first start serves to sign tokens as well.
            .arg(format!("--service-account-key-file={}", key.display()))
            .arg(format!("--service-account-signing-key-file={}", key.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--token-auth-file={}", self.directory.join("tokens.csv").display()))
            .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24"])
            // Pods here have no kubelet to mount tokens for.
            .args(["--disable-admission-plugins=ServiceAccount", "--allow-privileged=true"]);
        self.apiserver = Some(Process::start("kube-apiserver", &self.directory, &mut command));
        self.wait_until_ready().await;
    }

    /// Kills kube-apiserver; etcd keeps the data.
    pub(crate) fn stop_apiserver(&mut self) {
        self.apiserver.take().expect("it runs").kill9();
    }

    /// Starts kube-controller-manager: Deployments get Pods, deleted owners take their dependents along.
    pub(crate) fn start_controllers(&mut self) {
        let mut command = Command::new(binary("kube-controller-manager"));
        command
            .arg(format!("--kubeconfig={}", self.write_kubeconfig("admin", &self.admin_token).display()))
            .args(["--leader-elect=false", "--secure-port=0"])
            .arg(format!("--service-account-private-key-file={}", self.certificates().join("apiserver.key").display()))
            .arg(format!("--controllers={CONTROLLERS}"));
        self.controller_manager = Some(Process::start("kube-controller-manager", &self.directory, &mut command));
    }

    /// A new connection. Each test makes its own: a client's connections die with the test's runtime.
    pub(crate) async fn client(&self, user: User<'_>) -> Client {
        connect(&self.kubeconfig(user).await).await
    }

    /// The path of a kubeconfig for this user.
    pub(crate) async fn kubeconfig(&self, user: User<'_>) -> PathBuf {
        match user {
            User::Admin => self.write_kubeconfig("admin", &self.admin_token),
            User::ServiceAccount { namespace, name } => {
                let token = self.token_for(namespace, name).await;
                self.write_kubeconfig(&format!("{namespace}-{name}"), &token)
            }
        }
    }

    /// A token for a ServiceAccount that exists, good for an hour.
    async fn token_for(&self, namespace: &str, name: &str) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await, namespace);
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &TokenRequest::default())
            .await
            .unwrap_or_else(|error| panic!("no token for ServiceAccount {namespace}/{name}: {error}"));
        answer.status.expect("a granted request has a status").token
    }

    async fn admin(&self) -> Client {
        connect(&self.write_kubeconfig("admin", &self.admin_token)).await
    }

    fn write_kubeconfig(&self, user: &str, token: &str) -> PathBuf {
        // JSON is YAML, and quotes itself.
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority": self.certificates().join("apiserver.crt"),
            }}],
            "users": [{"name": user, "user": {"token": token}}],
        });
        let path = self.directory.join(format!("{user}.kubeconfig"));
        // Renamed into place: others read the admin's while we write the same again.
        let fresh = self.directory.join(format!("{user}.{:x}", fastrand::u64(..)));
        fs::write(&fresh, kubeconfig.to_string()).expect("the directory is ours");
        fs::rename(&fresh, &path).expect("the directory is ours");
        path
    }

    /// Runs kubectl as admin and returns what it printed; panics with its complaint if it fails.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let answer = self.try_kubectl(arguments, "").await;
        answer.unwrap_or_else(|complaint| panic!("kubectl {}: {complaint}", arguments.join(" ")))
    }

    /// `kubectl apply` of this YAML, as admin.
    pub(crate) async fn apply(&self, namespace: Option<&str>, yaml: &str) {
        let namespace = namespace.map(|namespace| ["--namespace", namespace]);
        let arguments: Vec<_> = ["apply", "-f", "-"].into_iter().chain(namespace.into_iter().flatten()).collect();
        let _one_at_a_time = self.applying.lock().await;
        let answer = self.try_kubectl(&arguments, yaml).await;
        answer.unwrap_or_else(|complaint| panic!("kubectl apply: {complaint}\n{yaml}"));
    }

    /// Runs kubectl as admin with this input: what it printed, or its complaint.
    pub(crate) async fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = tokio::process::Command::new(binary("kubectl"))
            .arg("--kubeconfig")
            .arg(self.write_kubeconfig("admin", &self.admin_token))
            // Its discovery cache is named by host and port, and must not outlive this server.
            .arg("--cache-dir")
            .arg(self.directory.join("kubectl-cache"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl starts");
        let mut stdin = kubectl.stdin.take().expect("it was asked for");
        // One that ends without reading says why on its own.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = kubectl.wait_with_output().await.expect("we are its parent");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Creates a namespace that no other test has.
    pub(crate) async fn new_namespace(&self, purpose: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{purpose}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespaces: Api<Namespace> = Api::all(self.admin().await);
        namespaces.create(&PostParams::default(), &namespace).await.expect("the name is new");
        name
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certificates")
    }

    async fn wait_until_ready(&mut self) {
        wait_until("kube-apiserver is ready", READY_WITHIN, async || {
            let apiserver = self.apiserver.as_mut().expect("it was started");
            if let Some(status) = apiserver.ended() {
                panic!("kube-apiserver ended with {status}: {}", apiserver.log());
            }
            // The certificate is the first thing that it writes; without it there is nobody to trust.
            if !self.certificates().join("apiserver.crt").exists() {
                return Err(String::from("it has no certificate yet"));
            }
            let request = http::Request::get("/readyz").body(Vec::new()).expect("the request is well-formed");
            let answer = self.admin().await.request_text(request).await;
            answer.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("we wrote it");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("we wrote it");
    Client::try_from(config).expect("the kubeconfig names what is needed")
}

fn start_etcd(directory: &Path) -> (Process, String) {
    let url = format!("http://127.0.0.1:{}", free_port());
    let peer_url = format!("http://127.0.0.1:{}", free_port());
    let mut command = Command::new(binary("etcd"));
    command
        .arg("--data-dir")
        .arg(directory.join("etcd"))
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
        .arg(format!("--initial-cluster=default={peer_url}"))
        // Nothing here outlives the machine.
        .args(["--unsafe-no-fsync", "--log-level=warn"]);
    (Process::start("etcd", directory, &mut command), url)
}
