//! Who may use whom: reads the sources under `src/` and holds the borders of docs/ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms and the rooms of ours they may name, beside themselves.
const MAY_USE: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("model", &[]),
    ("telemetry", &["clock", "model"]),
    ("rego", &["model"]),
    ("bundle", &["model"]),
    ("decide", &["model", "rego"]),
    ("api", &["model"]),
    ("signals", &["model", "rego", "decide", "bundle", "api", "clock", "telemetry"]),
    ("sources", &["model", "rego", "decide", "bundle", "api", "clock", "telemetry"]),
    ("effects", &["model", "rego", "decide", "bundle", "api", "clock", "telemetry"]),
    (
        "controller",
        &["model", "rego", "decide", "bundle", "api", "signals", "sources", "effects", "clock", "telemetry"],
    ),
    ("serve", &["model", "decide", "api", "clock", "telemetry"]),
    ("memkube", &["clock"]),
];

/// `cli` and `demo` may use all.
const FREE: &[&str] = &["cli", "demo"];

const PURE: &[&str] = &["model", "rego", "decide", "bundle"];

/// What a pure room must not contain, as written in code.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "tokio::",
    "kube::",
    "k8s_openapi",
    "reqwest",
    "axum",
    "tonic",
    "tracing::",
    "rand::",
    "fastrand",
    "SystemTime",
    "Instant::now",
    "Utc::now",
    "Timestamp::now",
    "std::fs",
    "std::env",
    "println!",
    "eprintln!",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("entry is readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn room_of(path: &Path, src: &Path) -> String {
    let relative = path.strip_prefix(src).expect("below src");
    let first = relative.iter().next().expect("has a component").to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// Code without comments and without what follows the first column-0 `#[cfg(test)]`.
fn code_of(text: &str) -> String {
    let production = text.split("\n#[cfg(test)]").next().unwrap_or(text);
    production.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn rooms_named(code: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (index, _) in code.match_indices("crate::") {
        let rest = &code[index + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut item = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        named.insert(std::mem::take(&mut item));
                        continue;
                    }
                    _ => {}
                }
                item.push(c);
            }
            named.insert(item);
        } else {
            named.insert(rest.to_owned());
        }
    }
    named
        .into_iter()
        .map(|path| path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        .filter(|room| !room.is_empty())
        .collect()
}

#[test]
fn no_room_reaches_over_its_borders() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut broken = Vec::new();
    for path in files {
        let room = room_of(&path, &src);
        if room == "main" || room == "lib" || FREE.contains(&room.as_str()) {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == room) else {
            broken.push(format!("{}: the room `{room}` is not in the list of rooms", path.display()));
            continue;
        };
        let text = fs::read_to_string(&path).expect("source is UTF-8");
        let code = code_of(&text);
        for named in rooms_named(&code) {
            let is_room = MAY_USE.iter().any(|(name, _)| *name == named) || FREE.contains(&named.as_str());
            if is_room && named != room && !allowed.contains(&named.as_str()) {
                broken.push(format!("{}: `{room}` uses `{named}`", path.display()));
            }
        }
        if PURE.contains(&room.as_str()) && path.file_name().is_some_and(|name| name != "tests.rs") {
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                broken.push(format!("{}: the pure room `{room}` contains `{word}`", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "borders are broken:\n{}", broken.join("\n"));
}

#[test]
fn the_reader_of_borders_sees_grouped_imports() {
    let named = rooms_named("use crate::{model::{a, b}, effects};\nlet x = crate::signals::y();");
    assert_eq!(named, ["effects", "model", "signals"].into_iter().map(str::to_owned).collect());
}
