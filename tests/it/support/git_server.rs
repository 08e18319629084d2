//! A Git server over smart HTTP on loopback: a bare repository behind the `git http-backend` of the machine, with
//! credentials that can be changed while it runs, and a work tree from which it is pushed to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// What the server can do, and with old clients its branches.
    Advertisement,
    /// Its branches.
    Branches,
    /// Objects.
    Objects,
}

/// A repository with the branch `prod`, served. Dropped, it is away and gone.
pub(crate) struct GitServer {
    directory: tempfile::TempDir,
    address: SocketAddr,
    served: Arc<Served>,
    task: Option<JoinHandle<()>>,
}

struct Served {
    root: PathBuf,
    /// The Authorization header that is wanted.
    wanted: Mutex<Option<String>>,
    asked: Mutex<Vec<Asked>>,
}

impl GitServer {
    /// Serves an empty repository to everybody.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().expect("the machine has room");
        let served = Arc::new(Served {
            root: directory.path().join("served"),
            wanted: Mutex::default(),
            asked: Mutex::default(),
        });
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Self { directory, address: any_port, served, task: None };
        for folder in ["served", "work"] {
            std::fs::create_dir(server.directory.path().join(folder)).expect("the directory is the test's own");
        }
        server.git(&["init", "-q", "-b", "prod"]);
        server.git(&["init", "-q", "--bare", "-b", "prod", "../served/policies.git"]);
        server.git(&["remote", "add", "origin", "../served/policies.git"]);
        server.resume().await;
        server
    }

    /// The address of the repository.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/policies.git", self.address)
    }

    /// Commits one file on top of what the work tree has, pushes it over whatever the branch was, and returns its id.
    pub(crate) fn push(&self, file: &str, content: &str) -> String {
        let path = self.directory.path().join("work").join(file);
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the work tree is writable");
        std::fs::write(path, content).expect("the work tree is writable");
        self.git(&["add", "--all"]);
        self.git(&["commit", "-q", "-m", file]);
        self.git(&["push", "-q", "--force", "origin", "prod"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Sets the work tree back to a commit; the next push rewrites the branch.
    pub(crate) fn reset(&self, commit: &str) {
        self.git(&["reset", "-q", "--hard", commit]);
    }

    /// From now on only these may read; `None` lets everybody.
    pub(crate) fn set_credentials(&self, credentials: Option<(&str, &str)>) {
        let wanted = credentials
            .map(|(user, password)| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))));
        *self.served.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
    }

    /// What was asked for since the last call, refused or not.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.served.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes away: nobody listens any more.
    pub(crate) async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Only then is the port closed.
            let _ = task.await;
        }
    }

    /// Comes back at the same address.
    pub(crate) async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the port is free or its own");
        self.address = listener.local_addr().expect("it is bound");
        let router = Router::new().fallback(answer).with_state(Arc::clone(&self.served));
        self.task = Some(tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves until it is aborted");
        }));
    }

    fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.directory.path().join("work")).envs(environment());
        command.stdin(Stdio::null());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "A").env(format!("GIT_{role}_EMAIL"), "a@example");
            command.env(format!("GIT_{role}_DATE"), "2026-03-01T10:00:00Z");
        }
        let output = command.output().expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Neither the machine's nor the user's configuration has a say.
fn environment() -> [(&'static str, &'static str); 2] {
    [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]
}

async fn answer(
    State(served): State<Arc<Served>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let contains = |what: &str| body.windows(what.len()).any(|window| window == what.as_bytes());
    let asked = match (&method, contains("command=ls-refs")) {
        (&Method::GET, _) => Asked::Advertisement,
        (_, true) => Asked::Branches,
        (_, false) => Asked::Objects,
    };
    served.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    let wanted = served.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if wanted.is_some() && wanted.as_deref() != given {
        let refused = Response::builder().status(StatusCode::UNAUTHORIZED);
        let refused = refused.header(header::WWW_AUTHENTICATE, "Basic realm=\"policies\"");
        return refused.body(Body::empty()).expect("the parts are plain");
    }
    backend(&served, &method, &uri, &headers, &body).await
}

/// The program speaks CGI: the request in its environment and input, the answer with its headers on its output.
async fn backend(served: &Served, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Response<Body> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut command = tokio::process::Command::new("git");
    command.arg("http-backend").envs(environment()).kill_on_drop(true);
    command.env("GIT_PROJECT_ROOT", &served.root).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("REQUEST_METHOD", method.as_str()).env("PATH_INFO", uri.path());
    command.env("QUERY_STRING", uri.query().unwrap_or_default());
    command.env("CONTENT_TYPE", text("content-type")).env("CONTENT_LENGTH", body.len().to_string());
    command.env("HTTP_CONTENT_ENCODING", text("content-encoding")).env("GIT_PROTOCOL", text("git-protocol"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git is installed");
    child.stdin.take().expect("it is piped").write_all(body).await.expect("it reads its input");
    let output = child.wait_with_output().await.expect("it ends").stdout;
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").expect("it answers with headers");
    let (head, content) = (String::from_utf8_lossy(&output[..end]).into_owned(), output[end + 4..].to_vec());
    let mut response = Response::builder();
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap_or("500")),
            name => response.header(name, value),
        };
    }
    response.body(Body::from(content)).expect("the program writes headers as they should be")
}
