//! What every module set passes before it is ever evaluated. The order matters: each check is safe only after the
//! ones before it, and most hazards (endless parsing, stack overflow) cannot be stopped once they run.
//!
//! Not held here, since only a process of its own can: memory, and a single builtin call that takes long.

mod calls;
mod scan;

use std::sync::Arc;

use regorus::Engine;

use super::error::{Error, Result};
use super::excerpt;
use super::limits::Limits;
use super::rule::Module;
use super::syntax::{self, Definition};

/// Compiling takes time in the square of a query's statements: a thousand take a quarter of a second.
const MOST_STATEMENTS_SQUARED: u64 = 1_000_000;

/// Whether the modules may be loaded and every entrypoint (`data.<package>.<rule>`) be asked.
pub fn check(modules: &[Module], entrypoints: &[&str], limits: &Limits) -> Result<()> {
    pass(modules, entrypoints, limits).map(|_| ())
}

/// Whether the modules may be loaded, every one of them compiled whoever asks for it; the package of each as its path
/// (`["data", "p"]`), in their order. For module sets whose entrypoints are not known yet.
pub fn check_all(modules: &[Module], limits: &Limits) -> Result<Vec<Vec<String>>> {
    let mut engine = pass(modules, &[], limits)?;
    let packages = syntax::packages(engine.get_modules());
    // Compiling any rule compiles them all; theirs may all be functions, which cannot be asked for.
    let probe = Module::new(
        "",
        "package tradeguard.gate

probe := true
",
    );
    engine.add_policy(probe.path, probe.text).map_err(|error| {
        let (at, message) = excerpt::located(&error.to_string(), "");
        Error::Syntax { at, message }
    })?;
    let definitions = syntax::definitions(engine.get_modules());
    compile(&mut engine, &definitions, "data.tradeguard.gate.probe")?;
    Ok(packages)
}

/// As [`check`], and gives the engine that holds the modules, ready to be asked.
pub(super) fn pass(modules: &[Module], entrypoints: &[&str], limits: &Limits) -> Result<Engine> {
    for module in modules {
        check_size(module, limits)?;
    }
    let mut work = limits.parse_work;
    for module in modules {
        scan::scan(module, limits, &mut work)?;
    }
    let mut engine = parse(modules, limits)?;
    check_imports(&mut engine)?;
    let definitions = syntax::definitions(engine.get_modules());
    check_statements(&definitions)?;
    calls::check_functions(&definitions)?;
    calls::check_recursion(&definitions)?;
    for entrypoint in entrypoints {
        compile(&mut engine, &definitions, entrypoint)?;
    }
    Ok(engine)
}

fn check_size(module: &Module, limits: &Limits) -> Result<()> {
    let bytes = module.text.len();
    if bytes > limits.source_bytes {
        return Err(Error::TooLarge { file: module.path.clone(), bytes, limit: limits.source_bytes });
    }
    Ok(())
}

fn parse(modules: &[Module], limits: &Limits) -> Result<Engine> {
    let mut engine = Engine::new();
    // As in OPA: an error in a builtin is undefined.
    engine.set_strict_builtin_errors(false);
    engine.set_gather_prints(true);
    engine.set_execution_timer_config(limits.timer());
    for module in modules {
        engine.add_policy(module.path.clone(), module.text.clone()).map_err(|error| {
            let (at, message) = excerpt::located(&error.to_string(), &module.path);
            Error::Syntax { at, message }
        })?;
    }
    Ok(engine)
}

fn check_imports(engine: &mut Engine) -> Result<()> {
    match syntax::imports(engine.get_modules()).into_iter().find(|import| import.path == import.package) {
        Some(import) => Err(Error::OwnPackage { at: import.at }),
        None => Ok(()),
    }
}

fn check_statements(definitions: &[Definition]) -> Result<()> {
    let mut left = MOST_STATEMENTS_SQUARED;
    for definition in definitions {
        for statements in &definition.queries {
            let squared = (*statements as u64).saturating_pow(2);
            left = left.checked_sub(squared).ok_or_else(|| Error::TooMany {
                file: definition.at.file.clone(),
                what: "statements in one rule",
                limit: 1_000,
            })?;
        }
    }
    Ok(())
}

fn compile(engine: &mut Engine, definitions: &[Definition], entrypoint: &str) -> Result<()> {
    let mut named = definitions.iter().filter(|definition| definition.path.join(".") == entrypoint);
    if named.next().is_none_or(|definition| definition.is_function) {
        return Err(Error::Entrypoint { entrypoint: entrypoint.to_owned() });
    }
    engine.compile_with_entrypoint(&Arc::from(entrypoint)).map_err(|error| {
        let (at, message) = excerpt::located(&error.to_string(), "");
        Error::Compile { at, message }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
