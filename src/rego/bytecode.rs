//! Shipped rules as bytecode: four times as fast as interpreted, and a subset of Rego with other semantics at the
//! edges. So a rule becomes bytecode only when it uses no feature that is known to differ, and when it answers
//! trial inputs as the interpreter does.

mod features;

use std::sync::Arc;

use regorus::languages::rego::compiler::Compiler;
use regorus::rvm::program::Program;
use regorus::rvm::vm::RegoVM;
use regorus::{Engine, Value};

use super::limits::Limits;

/// Inputs that exercise every line of the shipped rules.
const TRIALS: &str = include_str!("bytecode/trials.json");

/// The program of `entrypoint`, if bytecode is as good as the interpreter.
pub(super) fn of(engine: &mut Engine, entrypoint: &str, limits: &Limits) -> Option<Arc<Program>> {
    if !features::all_agree(engine.get_modules()) {
        return None;
    }
    let policy = engine.compile_with_entrypoint(&Arc::from(entrypoint)).ok()?;
    let program = Compiler::compile_from_policy(&policy, &[entrypoint]).ok()?;
    let Ok(Value::Array(trials)) = Value::from_json_str(TRIALS) else { return None };
    let mut machine = machine(&program, limits);
    for trial in trials.iter() {
        machine.set_input(trial.clone());
        engine.set_input(trial.clone());
        if machine.execute_entry_point_by_index(0).ok()? != engine.eval_rule(entrypoint.to_owned()).ok()? {
            return None;
        }
    }
    Some(program)
}

/// A machine that is ready for input.
pub(super) fn machine(program: &Arc<Program>, limits: &Limits) -> RegoVM {
    let mut machine = RegoVM::new();
    machine.load_program(Arc::clone(program));
    machine.set_max_instructions(limits.instructions);
    machine.set_execution_timer_config(Some(limits.timer()));
    machine.set_strict_builtin_errors(false);
    machine
}
