//! A branch over smart HTTP, served by Git's own program.

use std::time::Duration;

use tradeguard::sources::git::{self, Ancestry, Commit, Credentials, Error, Remote};

use crate::support::git_server::{Asked, GitServer};

struct Source {
    server: GitServer,
    state: tempfile::TempDir,
    credentials: Option<Credentials>,
}

impl Source {
    async fn open() -> Self {
        let state = tempfile::tempdir().expect("the machine has room");
        Self { server: GitServer::start().await, state, credentials: None }
    }

    fn remote(&self) -> Remote {
        Remote {
            url: self.server.url(),
            branch: String::from("prod"),
            path: String::from("policies"),
            credentials: self.credentials.clone(),
            timeout: Duration::from_mins(1),
        }
    }

    async fn fetch(&self, accepted: Option<&str>) -> Result<(Commit, Ancestry), Error> {
        let (cache, remote) = (self.state.path().join("source"), self.remote());
        let accepted = accepted.map(str::to_owned);
        let task = tokio::task::spawn_blocking(move || git::fetch(&cache, &remote, accepted.as_deref()));
        task.await.expect("it does not panic")
    }

    async fn read(&self, commit: &str) -> Result<Commit, Error> {
        let (cache, remote, commit) = (self.state.path().join("source"), self.remote(), commit.to_owned());
        tokio::task::spawn_blocking(move || git::read(&cache, &remote, &commit)).await.expect("it does not panic")
    }
}

#[tokio::test]
async fn a_branch_is_followed_over_http_and_an_unchanged_head_transfers_nothing() {
    let source = Source::open().await;
    let first = source.server.push("policies/a.yaml", "1");
    let (commit, ancestry) = source.fetch(None).await.unwrap();
    assert_eq!((commit.id.as_str(), ancestry), (first.as_str(), Ancestry::First));
    assert_eq!(commit.files.into_iter().collect::<Vec<_>>(), [(String::from("a.yaml"), b"1".to_vec())]);
    assert_eq!(source.server.take_asked(), [Asked::Advertisement, Asked::Branches, Asked::Objects]);

    assert_eq!(source.fetch(Some(&first)).await.unwrap().1, Ancestry::Same);
    assert_eq!(source.server.take_asked(), [Asked::Advertisement, Asked::Branches]);

    let second = source.server.push("policies/b.yaml", "2");
    let (commit, ancestry) = source.fetch(Some(&first)).await.unwrap();
    assert_eq!((commit.id.as_str(), ancestry, commit.files.len()), (second.as_str(), Ancestry::Descends, 2));

    source.server.reset(&first);
    let forced = source.server.push("policies/c.yaml", "3");
    let (commit, ancestry) = source.fetch(Some(&second)).await.unwrap();
    assert_eq!((commit.id.as_str(), ancestry), (forced.as_str(), Ancestry::Rewritten));
    // Not accepted, it is asked about again, and not transferred again.
    source.server.take_asked();
    assert_eq!(source.fetch(Some(&second)).await.unwrap().1, Ancestry::Rewritten);
    assert_eq!(source.server.take_asked(), [Asked::Advertisement, Asked::Branches]);
    assert_eq!(source.read(&second).await.unwrap().files.len(), 2);
}

#[tokio::test]
async fn credentials_are_rotated_without_a_restart() {
    let mut source = Source::open().await;
    let first = source.server.push("policies/a.yaml", "1");
    source.server.set_credentials(Some(("reader", "old-s3cret")));
    let refused = source.fetch(None).await.unwrap_err();
    assert!(matches!(refused, Error::Unauthorized { .. }), "without any: {refused}");
    source.credentials = Some(Credentials::new("reader", "old-s3cret"));
    source.server.take_asked();
    assert_eq!(source.fetch(None).await.unwrap().0.id, first);
    // They go with the first request: nothing is asked twice.
    assert_eq!(source.server.take_asked().len(), 3);

    source.server.set_credentials(Some(("reader", "new-s3cret")));
    let refused = source.fetch(Some(&first)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "{}: it refuses the credentials (status 401); expected credentials that may read the repository",
            source.server.url()
        )
    );
    source.credentials = Some(Credentials::new("reader", "new-s3cret"));
    assert_eq!(source.fetch(Some(&first)).await.unwrap().1, Ancestry::Same);
}

#[tokio::test]
async fn a_server_that_is_away_is_said_so_and_found_again() {
    let mut source = Source::open().await;
    let first = source.server.push("policies/a.yaml", "1");
    source.fetch(None).await.unwrap();
    source.server.stop().await;
    let second = source.server.push("policies/a.yaml", "2");
    let away = source.fetch(Some(&first)).await.unwrap_err();
    assert!(matches!(away, Error::Unreachable { .. }), "{away}");
    // What was fetched is read on meanwhile.
    assert_eq!(source.read(&first).await.unwrap().files["a.yaml"], b"1");
    source.server.resume().await;
    let (commit, ancestry) = source.fetch(Some(&first)).await.unwrap();
    assert_eq!((commit.id, ancestry), (second, Ancestry::Descends));
}
