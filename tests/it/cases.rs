//! The decision tests: every timeline under tests/cases, through the function that `tradeguard test` calls.

use std::fs;
use std::path::{Path, PathBuf};

use tradeguard::cli::cases;

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("entry is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_timeline_goes_as_it_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/timelines");
    let reports: Vec<cases::Report> = files(&dir)
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).expect("a case is UTF-8");
            cases::run(&text, &path.file_name().expect("is a file").to_string_lossy())
        })
        .collect();
    let count: usize = reports.iter().map(|report| report.cases.len()).sum();
    assert!(count >= 100, "only {count} timelines");
    let failed: Vec<String> = reports
        .iter()
        .filter(|report| !report.passed())
        .map(|report| {
            let cases = report.cases.iter().filter(|case| !case.passed()).map(ToString::to_string);
            format!("{}\n{}", report.path, cases.collect::<String>())
        })
        .collect();
    assert!(failed.is_empty(), "timelines went otherwise:\n{}", failed.join("\n"));
}
