//! A folder of policy files with bad ones among them, kept in step with the world as the demo does.

use std::fs;
use std::path::Path;

use tokio::sync::watch;
use tradeguard::demo::policy_files::PolicyFiles;
use tradeguard::demo::run::SEED_POLICY;
use tradeguard::rego::Rule;

use super::scene::Scene;

fn named(name: &str) -> String {
    SEED_POLICY.replace("name: order-processing", &format!("name: {name}"))
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    fs::write(folder.join(name), content).expect("is written");
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_is_told_by_name_once_and_the_others_take_effect() {
    let scene = Scene::open();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write(folder, "good.yaml", named("good"));
    write(folder, "empty.yaml", "");
    write(folder, "comment.yaml", "# nothing yet\n");
    write(folder, "huge.yaml", vec![b'#'; 10_000_000]);
    write(folder, "latin.yaml", b"kind: \xe9t\xe9\n");
    write(folder, "syntax.yaml", "spec: [1, 2\nkind: x\n");
    write(folder, "list.yaml", "[1, 2]\n");
    write(folder, "other.yaml", "apiVersion: v9\nkind: Nothing\nmetadata: {name: x}\n");
    write(folder, "field.yaml", named("field").replace("2m", "2min"));
    write(folder, "several.yaml", format!("{}\n---\n{}", named("one"), named("two")));
    write(folder, "notes.txt", "not a policy");
    let (rule, _kept) = watch::channel(Rule::shipped_latency_budget());
    let mut files = PolicyFiles::new(folder);
    let problems: Vec<String> = files.sync(&scene.world, &rule).await.iter().map(ToString::to_string).collect();
    for file in ["empty", "comment", "huge", "latin", "syntax", "list", "other", "field"] {
        let told = problems.iter().filter(|problem| problem.contains(&format!("{file}.yaml")));
        assert_eq!(told.count(), 1, "{file}: {problems:#?}");
    }
    assert_eq!(problems.len(), 8, "{problems:#?}");
    assert!(problems.iter().any(|problem| problem.contains("spec.thresholds.duration")), "{problems:#?}");
    for name in ["good", "one", "two"] {
        assert!(scene.policy(name).is_some(), "{name} is applied");
    }
    assert!(files.sync(&scene.world, &rule).await.is_empty(), "told once");
    // A good file that becomes bad keeps what it brought; one that goes takes it along.
    write(folder, "good.yaml", named("good").replace("800ms", "800"));
    let problems = files.sync(&scene.world, &rule).await;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    let kept = scene.policy("good").expect("is kept");
    assert_eq!(kept["spec"]["thresholds"]["p99"], "800ms");
    fs::remove_file(folder.join("several.yaml")).expect("is removed");
    assert!(files.sync(&scene.world, &rule).await.is_empty());
    assert!(scene.policy("one").is_none() && scene.policy("two").is_none() && scene.policy("good").is_some());
}
