//! Places in modules: where an error is, which lines were evaluated, which line gives a code.

use regorus::{Engine, Value};

use super::error::Location;
use super::rule::Module;

/// A line of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The module's path.
    pub file: String,
    /// From 1.
    pub number: u32,
    /// Without its indentation.
    pub text: String,
}

impl Line {
    fn of(file: &str, number: u32, text: &str) -> Self {
        Self { file: file.to_owned(), number, text: text.trim().to_owned() }
    }
}

/// The lines that evaluating `entrypoint` goes through, by file and number.
pub(super) fn covered(mut engine: Engine, entrypoint: &str, input: Value) -> Vec<Line> {
    engine.set_enable_coverage(true);
    engine.clear_coverage_data();
    engine.set_input(input);
    // A failed evaluation went through lines too.
    let _ = engine.eval_rule(entrypoint.to_owned());
    let Ok(report) = engine.get_coverage_report() else { return Vec::new() };
    let mut lines = Vec::new();
    for file in report.files {
        for (number, text) in (1_u32..).zip(file.code.lines()) {
            if file.covered.contains(&number) {
                lines.push(Line::of(&file.path, number, text));
            }
        }
    }
    lines.sort();
    lines
}

pub(super) fn line_of(modules: &[Module], code: &str) -> Option<Line> {
    let literal = format!("\"{code}\"");
    modules.iter().find_map(|module| {
        (1_u32..)
            .zip(module.text.lines())
            .find(|(_, text)| !text.trim_start().starts_with('#') && text.contains(&literal))
            .map(|(number, text)| Line::of(&module.path, number, text))
    })
}

/// The place and the words of an error that the engine gives as text only (without a place: `file`):
///
/// ```text
/// --> file:line:col
///   |
/// 1 | source
///   | ^
/// error: words
/// ```
pub(super) fn located(text: &str, file: &str) -> (Location, String) {
    let at = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("--> "))
        .and_then(|place| {
            let mut parts = place.rsplitn(3, ':');
            let column = parts.next()?.trim().parse().ok()?;
            let line = parts.next()?.parse().ok()?;
            Some(Location { file: parts.next()?.to_owned(), line, column })
        })
        .unwrap_or_else(|| Location { file: file.to_owned(), ..Location::default() });
    (at, message_of(text))
}

/// The words of such an error.
pub(super) fn message_of(text: &str) -> String {
    let words = text.lines().find_map(|line| line.trim().strip_prefix("error: "));
    words.unwrap_or(text).trim().to_owned()
}
