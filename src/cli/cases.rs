//! `tradeguard test`: timelines of readings against the production chain, with a clock that the case moves.
//!
//! A case names policies, their target and steps in time; between the steps every policy is judged at its interval
//! on what was said last. The cluster is simulated: what the plan says counts as done, so that the next round meets
//! it. This file runs cases; [`format`] is how they are written, [`world`] what they run in, [`expect`] what they
//! may ask for. docs/cases.md describes the format.

mod expect;
mod format;
#[cfg(test)]
mod tests;
mod world;

use std::fmt;

use crate::api::documents;
use crate::model::problem::Problem;
use crate::model::time::Written;

use self::expect::Difference;
use self::format::Case;
use self::world::World;

/// What running a file of cases gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The file.
    pub path: String,
    /// Its cases, in their order.
    pub cases: Vec<CaseReport>,
}

/// What running one case gave.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseReport {
    /// The case's name.
    pub name: String,
    /// How many steps it has.
    pub steps: usize,
    /// Why it could not be run, if so.
    pub problems: Vec<Problem>,
    /// Where it went otherwise than expected.
    pub differences: Vec<Difference>,
}

impl Report {
    /// Whether every case ran and went as expected.
    pub fn passed(&self) -> bool {
        self.cases.iter().all(CaseReport::passed)
    }

    /// Whether every case could be run at all.
    pub fn is_readable(&self) -> bool {
        self.cases.iter().all(|case| case.problems.is_empty())
    }
}

impl CaseReport {
    /// Whether the case ran and went as expected.
    pub fn passed(&self) -> bool {
        self.problems.is_empty() && self.differences.is_empty()
    }

    fn unreadable(name: &str, problems: Vec<Problem>) -> Self {
        Self { name: name.to_owned(), steps: 0, problems, differences: Vec::new() }
    }
}

/// Runs every case of a file, one per YAML document. `path` names the file in messages.
pub fn run(text: &str, path: &str) -> Report {
    let cases = match documents::parse_documents(path, text.as_bytes()) {
        Ok(documents) => documents.into_iter().map(|document| run_case(path, document)).collect(),
        Err(problem) => vec![CaseReport::unreadable("", vec![problem])],
    };
    Report { path: path.to_owned(), cases }
}

fn run_case(path: &str, document: serde_json::Value) -> CaseReport {
    let name = document.get("name").and_then(serde_json::Value::as_str).unwrap_or("a case without a name").to_owned();
    let case: Case = match documents::read(path, document) {
        Ok(case) => case,
        Err(problem) => return CaseReport::unreadable(&name, vec![problem]),
    };
    let steps = case.steps.len();
    match play(&case) {
        Ok(differences) => CaseReport { name, steps, problems: Vec::new(), differences },
        Err(problems) => CaseReport { steps, ..CaseReport::unreadable(&name, problems) },
    }
}

fn play(case: &Case) -> Result<Vec<Difference>, Vec<Problem>> {
    let mut world = match World::of(case) {
        Ok(world) => world,
        Err(problems) => {
            return match &case.invalid {
                Some(expected) => Ok(expect::refusal(expected, &problems)),
                None => Err(problems),
            };
        }
    };
    if let Some(expected) = &case.invalid {
        return Ok(expect::refusal(expected, &[]));
    }
    if case.steps.is_empty() {
        return Err(vec![Problem::expected("steps", "is empty", "at least one step, or `invalid`")]);
    }
    let mut differences = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        let at = format!("steps[{index}]");
        world.move_to(&at, step)?;
        differences.extend(expect::compare(&world, step));
    }
    Ok(differences)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in &self.cases {
            write!(f, "{case}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.problems.is_empty(), self.differences.is_empty()) {
            (false, _) => "ERROR",
            (true, false) => "FAIL",
            (true, true) => "ok",
        };
        writeln!(f, "{verdict:5} {} ({} steps)", self.name, self.steps)?;
        for problem in &self.problems {
            writeln!(f, "      {problem}")?;
        }
        let mut at = None;
        for difference in &self.differences {
            let place = (difference.at, difference.policy.clone());
            if at.as_ref() != Some(&place) {
                write!(f, "      at {}", Written(difference.at))?;
                if let Some(policy) = &difference.policy {
                    write!(f, ", {policy}")?;
                }
                writeln!(f, ":")?;
                at = Some(place);
            }
            write!(f, "{difference}")?;
        }
        Ok(())
    }
}
