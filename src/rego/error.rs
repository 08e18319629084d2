//! What can be wrong with modules, and with what they answer.

use std::fmt;
use std::time::Duration;

use crate::model::reason::Reason;

/// Shorthand of this room.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A place in a module: `file:line:column`, as far as it is known (0: unknown).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The module's path.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.file),
            (line, 0) => write!(f, "{}:{line}", self.file),
            (line, column) => write!(f, "{}:{line}:{column}", self.file),
        }
    }
}

/// Everything from `TooLarge` to `Compile` is the gate's, and for the author of the module to mend; the rest
/// happens when a rule that passed is asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A module's source is longer than it may be.
    #[error("{file}: {bytes} bytes; expected at most {limit}")]
    TooLarge {
        /// The module.
        file: String,
        /// Its size.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// Brackets are nested too deep: parsing would take seconds to days.
    #[error("{at}: brackets are nested {depth} deep; expected at most {limit} (nested JSON belongs in data)")]
    TooDeep {
        /// The first bracket that is too deep.
        at: Location,
        /// How deep it is.
        depth: u32,
        /// What is allowed.
        limit: u32,
    },
    /// All brackets together would keep the parser busy for seconds.
    #[error("{file}: too many nested brackets; expected fewer or flatter literals (nested JSON belongs in data)")]
    TooMuchNesting {
        /// The module in which the limit was reached.
        file: String,
    },
    /// More of something than the engine takes in bearable time.
    #[error("{file}: too many {what}; expected at most {limit}")]
    TooMany {
        /// The module.
        file: String,
        /// Of what.
        what: &'static str,
        /// What is allowed.
        limit: u32,
    },
    /// A row of operators in one expression, or of rules that depend on one another, is so long that the stack
    /// could overflow.
    #[error("{at}: more than {limit} operators, or rules that depend on one another, in a row; expected fewer")]
    TooLong {
        /// Where the limit was reached.
        at: Location,
        /// What is allowed.
        limit: u32,
    },
    /// A Rego version that the engine does not have.
    #[error("{at}: Rego version `{found}`; expected v1")]
    Version {
        /// The import.
        at: Location,
        /// What was asked for.
        found: String,
    },
    /// The module is no Rego.
    #[error("{at}: {message}")]
    Syntax {
        /// Where.
        at: Location,
        /// What the parser said.
        message: String,
    },
    /// A rule or function depends on itself.
    #[error("{at}: recursion: {cycle}")]
    Recursion {
        /// The rule where the cycle was entered.
        at: Location,
        /// `data.p.a -> data.p.b -> data.p.a`.
        cycle: String,
    },
    /// A builtin that would make decisions depend on more than their input.
    #[error("{at}: `{name}` is refused: {why}")]
    Refused {
        /// The call.
        at: Location,
        /// The builtin.
        name: String,
        /// Why.
        why: &'static str,
    },
    /// A function that neither the modules nor the engine have.
    #[error("{at}: there is no function `{name}`")]
    UnknownFunction {
        /// The call.
        at: Location,
        /// As written.
        name: String,
    },
    /// A module imports its own package under a name; the engine would read it as undefined.
    #[error("{at}: the module imports its own package; expected the rule's own name or its full path")]
    OwnPackage {
        /// The import.
        at: Location,
    },
    /// The entrypoint is no rule of the modules.
    #[error("entrypoint `{entrypoint}` is not a rule of the modules; expected data.<package>.<rule>")]
    Entrypoint {
        /// As asked for.
        entrypoint: String,
    },
    /// The modules parse but do not compile (unsafe variables, conflicting heads and the like).
    #[error("{at}: {message}")]
    Compile {
        /// Where.
        at: Location,
        /// What the compiler said.
        message: String,
    },

    /// The entrypoint has no value for this input.
    #[error("`{entrypoint}` is undefined for this input")]
    Undefined {
        /// The entrypoint.
        entrypoint: String,
    },
    /// The entrypoint's value has not the shape of docs/schemas/output.schema.json.
    #[error("{path}: {found}; expected {expected}")]
    WrongShape {
        /// Path in the output (`output.reasons[2].code`).
        path: String,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// The evaluation went past a limit.
    #[error("evaluation went past its limit of {limit:?}, or of what else it may use")]
    Limit {
        /// The wall time that was allowed.
        limit: Duration,
    },
    /// The evaluation failed (conflicting values of a rule and the like).
    #[error("evaluation failed: {message}")]
    Failed {
        /// What the engine said.
        message: String,
    },
}

impl Error {
    /// The reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Undefined { .. } => Reason::Undefined,
            Self::WrongShape { .. } => Reason::WrongShape,
            Self::Limit { .. } => Reason::EvaluationLimit,
            Self::Failed { .. } => Reason::EvaluationFailed,
            _ => Reason::InvalidRule,
        }
    }

    /// Where in the modules, if the error is about a place.
    pub fn location(&self) -> Option<Location> {
        match self {
            Self::TooDeep { at, .. }
            | Self::TooLong { at, .. }
            | Self::Version { at, .. }
            | Self::Syntax { at, .. }
            | Self::Recursion { at, .. }
            | Self::Refused { at, .. }
            | Self::UnknownFunction { at, .. }
            | Self::OwnPackage { at }
            | Self::Compile { at, .. } => Some(at.clone()),
            Self::TooLarge { file, .. } | Self::TooMuchNesting { file } | Self::TooMany { file, .. } => {
                Some(Location { file: file.clone(), ..Location::default() })
            }
            _ => None,
        }
    }
}
