//! What is wrong with something that a person wrote: the field, what was found, what is expected.

use std::fmt;

/// One finding. `path` is a field path as the API server writes it (`spec.thresholds.duration`), or a file path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The field or file.
    pub path: String,
    /// What was found and what is expected, as one sentence part: "`1h30` has no unit; expected …".
    pub message: String,
}

impl Problem {
    /// A finding at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// A finding that says what stood there and what should.
    pub fn expected(path: impl Into<String>, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::at(path, format!("{found}; expected {expected}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}
