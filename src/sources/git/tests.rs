//! Against repositories that the `git` program makes, over `file://`; what a server answers that is none, over loopback.

mod answers;
mod damage;
mod limits;
mod upstream;

use super::*;
use upstream::{Upstream, fetched};

const POLICY: &str = "kind: LatencyBudgetPolicy\n";

fn files(commit: &Commit) -> Vec<(&str, &str)> {
    let texts = commit.files.iter();
    texts.map(|(name, bytes)| (name.as_str(), str::from_utf8(bytes).expect("tests write UTF-8"))).collect()
}

#[test]
fn a_first_fetch_reads_the_policy_files_of_the_folder() {
    let upstream = Upstream::new();
    upstream.write("README.md", "no policy");
    upstream.write("policies/b.yaml", POLICY);
    upstream.write("policies/a.yml", "a");
    upstream.write("policies/rules/r.rego", "package r");
    upstream.write("policies/notes.txt", "no policy either");
    upstream.write("policies/data.json", "{}");
    let id = upstream.commit("first");
    let (commit, ancestry) = upstream.fetch("policies", None).unwrap();
    assert_eq!((commit.id.as_str(), ancestry), (id.as_str(), Ancestry::First));
    assert_eq!(
        files(&commit),
        [("a.yml", "a"), ("b.yaml", POLICY), ("data.json", "{}"), ("rules/r.rego", "package r")]
    );
    assert_eq!(commit.committed_at.to_rfc3339(), "2026-03-01T10:00:01+00:00");
    // The root, and the same folder written with a slash.
    let (root, _) = upstream.fetch("", None).unwrap();
    assert_eq!(root.files.len(), 4);
    assert!(root.files.contains_key("policies/rules/r.rego"), "{:?}", root.files.keys());
    assert_eq!(upstream.fetch("policies/", None).unwrap().0, commit);
}

#[test]
fn a_head_is_the_same_descends_or_was_rewritten() {
    let upstream = Upstream::new();
    let first = upstream.commit_file("a.yaml", "1");
    assert_eq!(fetched(&upstream, None), (first.clone(), Ancestry::First));
    assert_eq!(fetched(&upstream, Some(&first)), (first.clone(), Ancestry::Same));
    let second = upstream.commit_file("a.yaml", "2");
    assert_eq!(fetched(&upstream, Some(&first)), (second.clone(), Ancestry::Descends));
    upstream.git(&["reset", "-q", "--hard", &first]);
    // Back to an earlier one: the accepted commit is not in its history either.
    assert_eq!(fetched(&upstream, Some(&second)), (first.clone(), Ancestry::Rewritten));
    let other = upstream.commit_file("a.yaml", "3");
    assert_eq!(fetched(&upstream, Some(&second)), (other.clone(), Ancestry::Rewritten));
    assert_eq!(fetched(&upstream, Some(&first)), (other, Ancestry::Descends));
    // What the branch no longer has can still be read: it may be what is in force.
    let old = read(&upstream.cache(), &upstream.remote(""), &second).unwrap();
    assert_eq!(files(&old), [("a.yaml", "2")]);
}

#[test]
fn a_merge_descends_from_both_of_its_sides() {
    let upstream = Upstream::new();
    let base = upstream.commit_file("a.yaml", "1");
    upstream.git(&["checkout", "-q", "-b", "side"]);
    let side = upstream.commit_file("b.yaml", "1");
    upstream.git(&["checkout", "-q", "prod"]);
    let main = upstream.commit_file("c.yaml", "1");
    assert_eq!(fetched(&upstream, Some(&base)).1, Ancestry::Descends);
    // The side was not fetched yet: it is not in the history of the head.
    assert_eq!(fetched(&upstream, Some(&side)).1, Ancestry::Rewritten);
    upstream.git(&["merge", "-q", "--no-ff", "-m", "both", "side"]);
    for accepted in [&base, &side, &main] {
        assert_eq!(fetched(&upstream, Some(accepted)).1, Ancestry::Descends, "{accepted}");
    }
    let head = upstream.head();
    let subjects: Vec<_> = history(&upstream.cache(), &head, 10).unwrap().into_iter().map(|one| one.subject).collect();
    assert_eq!(subjects, ["both", "c.yaml", "b.yaml", "a.yaml"]);
    assert_eq!(history(&upstream.cache(), &head, 2).unwrap().len(), 2);
}

#[test]
fn a_repository_made_anew_has_nothing_of_the_accepted_history() {
    let upstream = Upstream::new();
    let first = upstream.commit_file("a.yaml", "1");
    fetched(&upstream, None);
    let anew = Upstream::new();
    let other = anew.commit_file("b.yaml", "1");
    let remote = anew.remote("");
    let (commit, ancestry) = fetch(&upstream.cache(), &remote, Some(&first)).unwrap();
    assert_eq!((commit.id, ancestry), (other, Ancestry::Rewritten));
}

#[test]
fn a_branch_that_is_missing_is_named_with_some_that_are_there() {
    let upstream = Upstream::new();
    let first = upstream.commit_file("a.yaml", "1");
    fetched(&upstream, None);
    for name in ["f", "e", "d", "c", "b", "production"] {
        upstream.git(&["branch", name]);
    }
    upstream.git(&["checkout", "-q", "b"]);
    upstream.git(&["branch", "-q", "-D", "prod"]);
    let error = upstream.fetch("", Some(&first)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} has no branch `prod`; expected one of its branches: b, c, d, e, f and 1 more", upstream.url())
    );
    assert_eq!(error.reason().as_str(), "BranchNotFound");
    // What was fetched can be read on, and the branch may come back.
    assert_eq!(files(&read(&upstream.cache(), &upstream.remote(""), &first).unwrap()), [("a.yaml", "1")]);
    upstream.git(&["branch", "prod"]);
    assert_eq!(fetched(&upstream, Some(&first)), (first, Ancestry::Same));
    let empty = Upstream::new();
    let error = empty.fetch("", None).unwrap_err().to_string();
    assert!(error.ends_with("has no branch `prod`; expected one of its branches: it has none yet"), "{error}");
}

#[test]
fn a_folder_that_is_missing_or_none_is_named() {
    let upstream = Upstream::new();
    let id = upstream.commit_file("policies/a.yaml", "1");
    let refused = |path: &str| upstream.fetch(path, None).unwrap_err();
    let missing = refused("policies/prod");
    assert_eq!(missing.to_string(), format!("`policies/prod` is not there in commit {id}; expected a folder"));
    assert_eq!(missing.reason().as_str(), "PathNotFound");
    assert!(refused("policies/a.yaml").to_string().starts_with("`policies/a.yaml` is a file in commit"));
    for path in ["/policies", "policies//a", "../policies", "policies/..", ".", "a\\b"] {
        let refused = refused(path);
        assert!(matches!(refused, Error::Invalid(_)), "{path}: {refused}");
    }
}

#[test]
fn what_is_no_file_is_refused_with_its_path() {
    let upstream = Upstream::new();
    let id = upstream.commit_file("policies/a.yaml", "1");
    let folder = upstream.tree(&format!("160000 commit {id}\tvendored\n"));
    upstream.commit_tree(&upstream.tree(&format!("040000 tree {folder}\tpolicies\n")));
    let refused = |path: &str| upstream.fetch(path, None).unwrap_err().to_string();
    assert_eq!(refused("policies"), "policies/vendored: is a submodule; expected only files and folders");
    std::os::unix::fs::symlink("/etc", upstream.path().join("policies/link")).unwrap();
    upstream.commit("a link");
    assert_eq!(refused("policies"), "policies/link: is a symbolic link; expected only files and folders");
    assert_eq!(refused("policies/link/passwd"), refused("policies"));
    upstream.git(&["rm", "-q", "policies/link"]);
    // Beside the folder they are nobody's business.
    std::os::unix::fs::symlink("/etc", upstream.path().join("link")).unwrap();
    upstream.commit("a link elsewhere");
    assert_eq!(upstream.fetch("policies", None).unwrap().0.files.len(), 1);
    let blob = upstream.blob("1");
    for name in ["..", "."] {
        let hostile = upstream.tree(&format!("100644 blob {blob}\t{name}\n"));
        upstream.commit_tree(&hostile);
        assert!(refused("").contains("has a name that leads elsewhere"), "{}", refused(""));
    }
}

#[test]
fn fields_that_make_no_sense_are_refused_before_anything_is_sent() {
    let upstream = Upstream::new();
    upstream.commit_file("a.yaml", "1");
    let refused = |change: &dyn Fn(&mut Remote)| {
        let mut remote = upstream.remote("");
        change(&mut remote);
        let error = fetch(&upstream.cache(), &remote, None).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        error.to_string()
    };
    let url = |text: &'static str| move |remote: &mut Remote| remote.url = text.to_owned();
    assert_eq!(
        refused(&url("https://user:s3cret@git.example/policies")),
        "url: has a user name or password in it; expected these among the source's credentials"
    );
    assert_eq!(refused(&url("ssh://git.example/p")), "url: has the scheme `ssh`; expected https, http or file");
    assert!(refused(&url("https://git.example/p?token=s3cret")).starts_with("url: has a query or fragment"));
    assert!(refused(&url("https://user:s3cret@[")).starts_with("url: is no URL"));
    assert!(!refused(&url("https://user:s3cret@[")).contains("s3cret"));
    assert!(refused(&|remote| remote.credentials = Some(Credentials::new("user", "s3cret"))).contains("file://"));
    assert!(
        refused(&|remote| {
            remote.url = String::from("http://git.example/p");
            remote.credentials = Some(Credentials::new("user", "s3cret"));
        })
        .starts_with("url: would send the credentials in clear text")
    );
    for name in ["", "a..b", "refs/heads/prod", "a b", "*", "prod:x", "a\nb", "x.lock"] {
        let message = refused(&|remote| name.clone_into(&mut remote.branch));
        assert!(message.starts_with("branch: "), "{name}: {message}");
    }
    let error = fetch(&upstream.cache(), &upstream.remote(""), Some("main")).unwrap_err();
    assert_eq!(error.to_string(), "commit: `main`; expected 40 hexadecimal digits");
    assert!(!upstream.cache().exists());
}

#[test]
fn what_is_no_repository_is_said_so_and_leaves_nothing_behind() {
    let upstream = Upstream::new();
    let mut remote = upstream.remote("");
    remote.url = format!("file://{}/nowhere", upstream.path().display());
    let error = fetch(&upstream.cache(), &remote, None).unwrap_err();
    assert!(matches!(error, Error::NotARepository { .. }), "{error}");
    assert!(upstream.beside_the_cache().is_empty(), "{:?}", upstream.beside_the_cache());
}

#[test]
fn a_password_is_never_shown() {
    let mut remote = Upstream::new().remote("");
    remote.credentials = Some(Credentials::new("reader", "s3cret"));
    let shown = format!("{remote:?}");
    assert!(shown.contains("reader") && !shown.contains("s3cret"), "{shown}");
    remote.url = String::from("https://git.example/policies");
    let checked = Checked::new(&remote).unwrap();
    let encoded = checked.authorization.clone().unwrap().secrets[1].clone();
    let cleaned = checked.clean(&format!("no s3cret, \u{7}no\n{encoded}"));
    assert_eq!(cleaned, "no [password],  no [password]");
}
