use std::fs;

use crate::cli::{Exit, tests::run};

#[test]
fn nothing_less_than_all_can_be_asked_for() {
    assert_eq!(run(&["release", "--yes"]).0, Exit::Usage);
}

#[test]
fn a_cluster_that_is_not_there_is_exit_three_and_a_broken_kubeconfig_exit_two() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let kubeconfig = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";
    fs::write(&path, kubeconfig).unwrap();
    let (exit, out, err) = run(&["release", "--all", "--yes", "--kubeconfig", path.to_str().unwrap()]);
    assert_eq!((exit, out.as_str()), (Exit::Unreachable, ""), "{err}");
    fs::write(&path, "clusters: 1").unwrap();
    let (exit, _, err) = run(&["release", "--all", "--yes", "--kubeconfig", path.to_str().unwrap()]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("kubeconfig"), "{err}");
}
