//! The decision tests: every timeline under tests/cases, through the function that `tradeguard test` calls.

use std::fs;
use std::path::{Path, PathBuf};

use tradeguard::cli::cases;
use tradeguard::model::reading::NoReading;
use tradeguard::model::reason::Reason;

/// Reasons that decisions give, beside those for missing readings. Validation's are in the unit tests of `decide`.
const DECIDED: &[Reason] = &[
    Reason::Suspended,
    Reason::TargetNotFound,
    Reason::NoWorkload,
    Reason::Undefined,
    Reason::WrongShape,
    Reason::Excepted,
    Reason::BreachPending,
    Reason::BreachConfirmed,
    Reason::BreachEnded,
    Reason::HalfOpen,
    Reason::ProbeOk,
    Reason::ProbeFailed,
    Reason::Recovered,
    Reason::NoEvidence,
    Reason::Blind,
    Reason::NoFallbackDestination,
    Reason::NoRoute,
    Reason::AmbiguousRoute,
    Reason::UnsupportedRoute,
    Reason::IsolationBudget,
    Reason::EffectBudget,
    Reason::Storm,
    Reason::Frozen,
    Reason::NotIsolable,
    Reason::Contested,
    Reason::Overridden,
];

/// Everything under tests/cases is a timeline, so that `tradeguard test tests/cases` works.
fn timelines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("entry is readable").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn every_timeline_goes_as_it_says() {
    let reports: Vec<cases::Report> = files(&timelines())
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

#[test]
fn every_reason_that_a_decision_gives_is_expected_by_a_timeline() {
    let texts: Vec<String> =
        files(&timelines()).iter().map(|path| fs::read_to_string(path).expect("a case is UTF-8")).collect();
    // What a case expects, not what it feeds in.
    let expected: String = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| !line.contains("reason:"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let missing = NoReading::ALL.iter().map(|why| why.reason()).chain(DECIDED.iter().copied());
    let missing: Vec<&str> = missing.map(Reason::as_str).filter(|reason| !expected.contains(reason)).collect();
    assert!(missing.is_empty(), "no timeline expects {missing:?}");
}
