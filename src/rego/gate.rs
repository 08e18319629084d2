//! What every module set passes before it is ever evaluated. The order matters: each check is safe only after the
//! ones before it, and most hazards (endless parsing, stack overflow) cannot be stopped once they run.

use std::sync::Arc;

use regorus::Engine;

use super::error::{Error, Result};
use super::excerpt;
use super::limits::Limits;
use super::rule::Module;

/// Whether the modules may be loaded and every entrypoint (`data.<package>.<rule>`) be asked.
pub fn check(modules: &[Module], entrypoints: &[&str], limits: &Limits) -> Result<()> {
    pass(modules, entrypoints, limits).map(|_| ())
}

/// As [`check`], and gives the engine that holds the modules, ready to be asked.
pub(super) fn pass(modules: &[Module], entrypoints: &[&str], limits: &Limits) -> Result<Engine> {
    for module in modules {
        size(module, limits)?;
    }
    let mut engine = Engine::new();
    engine.set_strict_builtin_errors(false);
    engine.set_gather_prints(true);
    engine.set_execution_timer_config(limits.timer());
    for module in modules {
        engine.add_policy(module.path.clone(), module.text.clone()).map_err(|error| {
            let (at, message) = excerpt::located(&error.to_string());
            Error::Syntax { at, message }
        })?;
    }
    for entrypoint in entrypoints {
        engine.compile_with_entrypoint(&Arc::from(*entrypoint)).map_err(|error| {
            let (at, message) = excerpt::located(&error.to_string());
            Error::Compile { at, message }
        })?;
    }
    Ok(engine)
}

fn size(module: &Module, limits: &Limits) -> Result<()> {
    let bytes = module.text.len();
    if bytes > limits.source_bytes {
        return Err(Error::TooLarge { file: module.path.clone(), bytes, limit: limits.source_bytes });
    }
    Ok(())
}
