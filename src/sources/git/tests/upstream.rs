//! A repository as a person has one, and a place for the cache of a source that follows its branch `prod`.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::{Ancestry, Commit, Error, Remote, fetch};

pub(super) struct Upstream {
    directory: tempfile::TempDir,
    /// Seconds since the first commit's time: each is a second later.
    seconds: Cell<u32>,
}

impl Upstream {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("work")).unwrap();
        let upstream = Self { directory, seconds: Cell::new(0) };
        upstream.git(&["init", "-q", "-b", "prod"]);
        upstream
    }

    /// The work tree.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.directory.path().join("cache/source")
    }

    pub(super) fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    pub(super) fn remote(&self, path: &str) -> Remote {
        Remote {
            url: self.url(),
            branch: String::from("prod"),
            path: path.to_owned(),
            credentials: None,
            timeout: Duration::from_secs(30),
        }
    }

    pub(super) fn fetch(&self, path: &str, accepted: Option<&str>) -> Result<(Commit, Ancestry), Error> {
        fetch(&self.cache(), &self.remote(path), accepted)
    }

    /// The program's output, without white space around it.
    pub(super) fn git(&self, arguments: &[&str]) -> String {
        self.git_with(arguments, "")
    }

    fn git_with(&self, arguments: &[&str], input: &str) -> String {
        let date = format!("2026-03-01T10:00:{:02}Z", self.seconds.get());
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.path()).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("HOME", "/nonexistent")]);
        command.envs([("GIT_AUTHOR_NAME", "A"), ("GIT_AUTHOR_EMAIL", "a@example"), ("GIT_AUTHOR_DATE", &date)]);
        command.envs([
            ("GIT_COMMITTER_NAME", "A"),
            ("GIT_COMMITTER_EMAIL", "a@example"),
            ("GIT_COMMITTER_DATE", &date),
        ]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(super) fn write(&self, file: &str, content: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Commits all there is, and says which commit that is.
    pub(super) fn commit(&self, message: &str) -> String {
        self.seconds.set(self.seconds.get() + 1);
        self.git(&["add", "--all", "--ignore-errors"]);
        self.git(&["commit", "-q", "-m", message]);
        self.head()
    }

    pub(super) fn commit_file(&self, file: &str, content: &str) -> String {
        self.write(file, content);
        self.commit(file)
    }

    pub(super) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    pub(super) fn tree(&self, entries: &str) -> String {
        self.git_with(&["mktree"], entries)
    }

    pub(super) fn blob(&self, content: &str) -> String {
        self.git_with(&["hash-object", "-w", "--stdin"], content)
    }

    /// Makes a tree that no work tree could have the head of the branch.
    pub(super) fn commit_tree(&self, tree: &str) -> String {
        self.seconds.set(self.seconds.get() + 1);
        let commit = self.git(&["commit-tree", tree, "-p", "prod", "-m", "a tree"]);
        self.git(&["update-ref", "refs/heads/prod", &commit]);
        commit
    }

    /// What lies where the cache lies, by name.
    pub(super) fn beside_the_cache(&self) -> Vec<String> {
        names_in(self.cache().parent().unwrap())
    }
}

pub(super) fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The head's id and how it relates to what was accepted, for tests in which that works.
pub(super) fn fetched(upstream: &Upstream, accepted: Option<&str>) -> (String, Ancestry) {
    let (commit, ancestry) = upstream.fetch("", accepted).unwrap();
    (commit.id, ancestry)
}

/// While it is held, the repository is not where it was.
pub(super) struct Away<'a>(&'a Upstream);

impl Upstream {
    pub(super) fn directory_moved_away(&self) -> Away<'_> {
        fs::rename(self.path(), self.path().with_extension("away")).unwrap();
        Away(self)
    }
}

impl Away<'_> {
    pub(super) fn back(self) {
        fs::rename(self.0.path().with_extension("away"), self.0.path()).unwrap();
    }
}
