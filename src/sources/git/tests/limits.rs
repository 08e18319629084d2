//! Repositories that are more than the engine wants.

use super::super::{Error, LARGEST_SUM, MOST_FILES};
use super::upstream::Upstream;

fn refused(upstream: &Upstream) -> String {
    let error = upstream.fetch("", None).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(error.reason().as_str(), "SourceTooLarge");
    error.to_string()
}

#[test]
fn a_file_that_is_too_large_is_refused_by_name_and_size() {
    let upstream = Upstream::new();
    upstream.write("large.txt", &"x".repeat(1_100_000));
    upstream.commit_file("policies/large.yaml", &"x".repeat(1_048_576));
    assert_eq!(upstream.fetch("", None).unwrap().0.files.len(), 1, "what is no policy file may be large");
    upstream.commit_file("policies/large.yaml", &"x".repeat(1_048_577));
    assert_eq!(refused(&upstream), "policies/large.yaml: has 1048577 bytes; expected at most 1048576");
}

#[test]
fn all_files_together_are_bounded_in_number_and_size() {
    let upstream = Upstream::new();
    upstream.commit_file("a.yaml", "1");
    let large = upstream.blob(&"x".repeat(1 << 20));
    let entries: String =
        (0..=LARGEST_SUM >> 20).map(|file| format!("100644 blob {large}\tf{file:05}.yaml\n")).collect();
    upstream.commit_tree(&upstream.tree(&entries));
    assert_eq!(
        refused(&upstream),
        "f00032.yaml: the files before it have more; expected at most 33554432 bytes together"
    );
    let small = upstream.blob("x");
    let entries: String = (0..=MOST_FILES).map(|file| format!("100644 blob {small}\tf{file:05}.yaml\n")).collect();
    upstream.commit_tree(&upstream.tree(&entries));
    assert_eq!(refused(&upstream), "f10000.yaml: there are more; expected at most 10000 files");
}

#[test]
fn a_tree_that_names_one_subtree_many_times_is_refused_in_time() {
    let upstream = Upstream::new();
    upstream.commit_file("a.yaml", "1");
    let mut tree = upstream.tree(&format!("100644 blob {}\tx.txt\n", upstream.blob("x")));
    for _ in 0..8 {
        let entries: String = (0..100).map(|entry| format!("040000 tree {tree}\t{entry:02}\n")).collect();
        tree = upstream.tree(&entries);
    }
    upstream.commit_tree(&tree);
    assert!(refused(&upstream).ends_with("there are more; expected at most 100000 files and folders"));
    let mut tree = upstream.tree("");
    for _ in 0..40 {
        tree = upstream.tree(&format!("040000 tree {tree}\td\n"));
    }
    upstream.commit_tree(&tree);
    assert!(refused(&upstream).ends_with("d: lies too deep; expected at most 32 folders in one another"));
}
