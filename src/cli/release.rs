//! `tradeguard release`: undoes every effect in a cluster, also when no engine runs.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Error, Exit, Output, Result, Streams, cluster};
use crate::api::marks::FIELD_MANAGER;
use crate::clock::Clock;
use crate::effects::{self, Effects, Released};

/// How long one call to the API server may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Undo every effect in a cluster: Pods return to service, modes and weights become what was found, finalizers go.
///
/// No engine needs to run. One that runs would make the effects again: stop it before, or freeze it with
/// `kubectl create configmap -n tradeguard-system tradeguard-freeze --from-literal=mode=all`.
///
/// Exit code: 0 everything is undone, 1 something is not, 3 the API server could not be reached.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Every effect of every policy; nothing less can be asked for.
    #[arg(long, required = true)]
    all: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// The cluster; default: as kubectl finds it.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How the results are printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    if !args.yes && !confirmed(streams)? {
        writeln!(streams.err, "nothing was undone")?;
        return Ok(Exit::No);
    }
    let released = super::block_on(async {
        let client = cluster::client(args.kubeconfig.as_deref(), None).await?;
        let effects = Effects::new(client, FIELD_MANAGER, DEADLINE);
        let released = Box::pin(effects.release_all(Clock::system().now())).await;
        released.map_err(|error| Error::Unreachable(cluster::words(&error)))
    })?;
    match args.output {
        Output::Json => {
            let items: Vec<Value> = released.iter().map(json_of).collect();
            writeln!(streams.out, "{:#}", json!({ "released": items }))?;
        }
        Output::Text => {
            for one in &released {
                writeln!(streams.out, "{}", text_of(one))?;
            }
            if released.is_empty() {
                writeln!(streams.out, "nothing to undo")?;
            }
        }
    }
    Ok(if released.iter().all(is_undone) { Exit::Ok } else { Exit::No })
}

fn confirmed(streams: &mut Streams<'_>) -> Result<bool> {
    if !stdin().is_terminal() {
        return Err(Error::Usage("nobody can be asked here; --yes undoes every effect without asking".to_owned()));
    }
    write!(streams.err, "Undo every effect of every policy in this cluster? [y/N] ")?;
    streams.err.flush()?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn is_undone(released: &Released) -> bool {
    use effects::Outcome::{ObjectGone, Restored, Unchanged};
    matches!(released.result, Ok(Restored | ObjectGone | Unchanged))
}

fn result_of(released: &Released) -> String {
    match &released.result {
        Ok(effects::Outcome::ObjectGone) => "the object is gone".to_owned(),
        Ok(_) if is_undone(released) => "undone".to_owned(),
        Ok(other) => format!("not undone: {other:?}"),
        Err(error) => format!("not undone: {}", cluster::words(error)),
    }
}

fn text_of(released: &Released) -> String {
    format!("{} ({}): {}", released.what, released.object, result_of(released))
}

fn json_of(released: &Released) -> Value {
    json!({
        "what": released.what,
        "object": released.object,
        "undone": is_undone(released),
        "message": result_of(released),
    })
}

#[cfg(test)]
mod tests;
