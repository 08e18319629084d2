//! A compiled entrypoint and how it is asked.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use regorus::rvm::program::Program;
use regorus::rvm::vm::{RegoVM, VmError};
use regorus::{Engine, LimitError, Value};

use crate::model::verdict::Verdict;

use super::error::{Error, Result};
use super::excerpt::{self, Line};
use super::input::{Input, json_of};
use super::limits::Limits;
use super::{bytecode, gate, output, shipped};

/// One Rego module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// File name, for messages.
    pub path: String,
    /// Rego v1 source.
    pub text: String,
}

impl Module {
    /// A module with this file name and source.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// What of its input a rule's answer can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footprint {
    /// `input.thresholds`, and the `value`, `unit` and `reason` of `input.readings` and `input.pods`.
    Readings,
    /// Anything, `input.now` included, as far as is known.
    Everything,
}

/// A compiled entrypoint. A clone copies a pointer; any number of threads may ask at once.
#[derive(Clone)]
pub struct Rule {
    body: Arc<Body>,
}

enum Body {
    Compiled(Box<Compiled>),
    Refused(Error),
}

struct Compiled {
    entrypoint: String,
    modules: Vec<Module>,
    limits: Limits,
    footprint: Footprint,
    engine: Engine,
    engines: Pool<Engine>,
    program: Option<Arc<Program>>,
    machines: Pool<RegoVM>,
}

impl Rule {
    /// The shipped latency rule: bytecode, or interpreted should the bytecode ever answer otherwise. Compiled once.
    pub fn shipped_latency_budget() -> Self {
        shipped::latency_budget()
    }

    /// Passes the modules through the gate and compiles `entrypoint` (`data.<package>.<rule>`); interpreted.
    pub fn compile(modules: &[Module], entrypoint: &str, limits: &Limits) -> Result<Self> {
        let engine = gate::pass(modules, &[entrypoint], limits)?;
        Ok(Self::of(modules, entrypoint, limits, engine, None))
    }

    /// A user's own text in place of the shipped latency rule: the same entrypoint, interpreted.
    pub fn compile_shipped_from(text: &str) -> Result<Self> {
        let module = Module::new(shipped::LATENCY_BUDGET_PATH, text);
        Self::compile(&[module], shipped::LATENCY_BUDGET_ENTRYPOINT, &Limits::default())
    }

    /// A rule that did not pass: every verdict is unknown, with the error's reason.
    pub fn refused(error: Error) -> Self {
        Self { body: Arc::new(Body::Refused(error)) }
    }

    /// As [`Rule::compile`], and as bytecode where that gives the same answers; for shipped rules only.
    pub(super) fn compile_as_bytecode(modules: &[Module], entrypoint: &str, limits: &Limits) -> Result<Self> {
        let mut engine = gate::pass(modules, &[entrypoint], limits)?;
        let program = bytecode::of(&mut engine, entrypoint, limits);
        Ok(Self::of(modules, entrypoint, limits, engine, program))
    }

    fn of(
        modules: &[Module],
        entrypoint: &str,
        limits: &Limits,
        engine: Engine,
        program: Option<Arc<Program>>,
    ) -> Self {
        let compiled = Compiled {
            entrypoint: entrypoint.to_owned(),
            modules: modules.to_vec(),
            limits: *limits,
            footprint: shipped::footprint(modules, entrypoint),
            engine,
            engines: Pool::default(),
            program,
            machines: Pool::default(),
        };
        Self { body: Arc::new(Body::Compiled(Box::new(compiled))) }
    }

    /// Whether the rule runs as bytecode.
    pub fn is_bytecode(&self) -> bool {
        matches!(&*self.body, Body::Compiled(compiled) if compiled.program.is_some())
    }

    /// What the answer can depend on. A rule that was refused depends on nothing, and is not worth a thought.
    pub fn footprint(&self) -> Footprint {
        match &*self.body {
            Body::Compiled(rule) => rule.footprint,
            Body::Refused(_) => Footprint::Everything,
        }
    }

    /// Whether this is the very same compilation as `other`.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.body, &other.body)
    }

    /// The same rule, interpreted.
    pub fn interpreted(&self) -> Self {
        match &*self.body {
            Body::Compiled(rule) => Self::of(&rule.modules, &rule.entrypoint, &rule.limits, rule.engine.clone(), None),
            Body::Refused(_) => self.clone(),
        }
    }

    /// Asks the rule. Never fails: what goes wrong is a verdict `unknown` with its reason.
    pub fn evaluate(&self, input: &Input<'_>) -> Verdict {
        self.try_evaluate(input).unwrap_or_else(|error| Verdict::unknown(error.reason()))
    }

    /// As [`Rule::evaluate`], with the words for what went wrong.
    pub fn try_evaluate(&self, input: &Input<'_>) -> Result<Verdict> {
        output::verdict(&self.answer(input.to_value())?, input)
    }

    /// The rule's own answer as JSON, before anything is made of it.
    pub fn output(&self, input: &Input<'_>) -> Result<serde_json::Value> {
        Ok(json_of(&self.answer(input.to_value())?))
    }

    /// The lines that an evaluation of this input goes through, in order; from the interpreter.
    pub fn lines(&self, input: &Input<'_>) -> Vec<Line> {
        match &*self.body {
            Body::Compiled(rule) => excerpt::covered(rule.engine.clone(), &rule.entrypoint, input.to_value()),
            Body::Refused(_) => Vec::new(),
        }
    }

    /// The line that gives reasons of this code: the first one that holds it as a string.
    pub fn line_of(&self, code: &str) -> Option<Line> {
        match &*self.body {
            Body::Compiled(rule) => excerpt::line_of(&rule.modules, code),
            Body::Refused(_) => None,
        }
    }

    pub(super) fn answer(&self, input: Value) -> Result<Value> {
        let rule = match &*self.body {
            Body::Compiled(rule) => rule,
            Body::Refused(error) => return Err(error.clone()),
        };
        let value = match &rule.program {
            Some(program) => rule.execute(program, input)?,
            None => rule.interpret(input)?,
        };
        match value {
            Value::Undefined => Err(Error::Undefined { entrypoint: rule.entrypoint.clone() }),
            value => Ok(value),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.body {
            Body::Compiled(rule) => f
                .debug_struct("Rule")
                .field("entrypoint", &rule.entrypoint)
                .field("bytecode", &self.is_bytecode())
                .finish(),
            Body::Refused(error) => f.debug_tuple("Refused").field(error).finish(),
        }
    }
}

impl Compiled {
    fn interpret(&self, input: Value) -> Result<Value> {
        self.engines.lend(
            || self.engine.clone(),
            |engine| {
                engine.set_input(input);
                let answer = engine.eval_rule(self.entrypoint.clone());
                // Prints are gathered, so that a rule cannot write to our output; nobody reads them.
                let _ = engine.take_prints();
                answer.map_err(|error| match error.downcast_ref::<LimitError>() {
                    Some(_) => Error::Limit { limit: self.limits.evaluation },
                    None => Error::Failed { message: excerpt::message_of(&error.to_string()) },
                })
            },
        )
    }

    fn execute(&self, program: &Arc<Program>, input: Value) -> Result<Value> {
        self.machines.lend(
            || bytecode::machine(program, &self.limits),
            |machine| {
                machine.set_input(input);
                machine.execute_entry_point_by_index(0).map_err(|error| match error {
                    VmError::TimeLimitExceeded { .. }
                    | VmError::InstructionLimitExceeded { .. }
                    | VmError::MemoryLimitExceeded { .. }
                    | VmError::MemoryBudgetExceeded { .. }
                    | VmError::RegexSizeLimitExceeded { .. } => Error::Limit { limit: self.limits.evaluation },
                    other => Error::Failed { message: other.to_string() },
                })
            },
        )
    }
}

/// Things that only one thread may use at a time and that are dear to make. One whose use failed is not used again.
struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T> Pool<T> {
    fn lend<R>(&self, make: impl FnOnce() -> T, with: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut item = idle.unwrap_or_else(make);
        let result = with(&mut item)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        Ok(result)
    }
}
