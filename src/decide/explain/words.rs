//! The explanation's words: made here from reasons and values, never by rules.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::model::effect::Desired;
use crate::model::phase::{Phase, Stage, State};
use crate::model::policy::{Enforcement, OnNoData, SignalSource};
use crate::model::quantity::{BaseUnit, show};
use crate::model::reason::Reason;
use crate::model::time::{Written, elapsed};
use crate::model::verdict::{Outcome, RuleReason};

use super::super::entry::Entry;
use super::super::recovery;
use super::{Check, Explanation, Fired, Situation};

pub(super) fn enforcement(enforcement: Enforcement) -> &'static str {
    match enforcement {
        Enforcement::Enforce => "enforce",
        Enforcement::DryRun => "dryRun",
        Enforcement::Warn => "warn",
    }
}

pub(super) fn desired(desired: &Desired) -> String {
    match desired {
        Desired::Isolated(pods) => format!("isolated: {}", pods.join(", ")),
        Desired::Mode(mode) => mode.clone(),
        Desired::Weights(weights) => {
            let shown = weights.iter().map(|to| format!("{} {}", to.destination, to.weight.unwrap_or(0)));
            shown.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A rule's reason in words, with the line that gives its code.
pub(super) fn fired(entry: &Entry, reason: &RuleReason) -> Fired {
    let unit =
        reason.signal.as_ref().and_then(|name| entry.policy.signals.get(name)).map(|signal| match &signal.source {
            SignalSource::Quantile(_) => BaseUnit::Seconds,
            SignalSource::Query { unit, .. } => unit.base,
        });
    let shown = |value: f64| unit.map_or_else(|| value.to_string(), |unit| show(value, unit));
    let mut words = reason.signal.clone().unwrap_or_default();
    if let Some(pod) = &reason.pod {
        words = format!("{words} of Pod {pod}");
    }
    if let Some(observed) = reason.observed {
        words = format!("{words} was {}", shown(observed));
    }
    if let Some(threshold) = reason.threshold {
        words = format!("{words}, the threshold is {}", shown(threshold));
    }
    let line = entry.rule.line_of(&reason.code);
    let line = line.map(|line| format!("{}:{}: {}", line.file, line.number, line.text));
    Fired { code: reason.code.clone(), words: words.trim().to_owned(), line }
}

/// Every check that had a say, in the order of the chain.
pub(super) fn checks(of: &Situation<'_>) -> Vec<Check> {
    let judgement = &of.decision.judgement;
    let (policy, state) = (&of.entry.policy, &judgement.state);
    let mut checks = Vec::new();
    let mut say = |name: &str, words: String| checks.push(Check { name: name.to_owned(), words });
    if policy.suspend {
        say("suspended", "spec.suspend is true: nothing is judged and nothing is held".to_owned());
        return checks;
    }
    if of.facts.uid.is_none() {
        let target = &policy.target_ref;
        say("target", format!("{} {} does not exist: nothing is judged and nothing is held", target.kind, target.name));
        return checks;
    }
    say("verdict", verdict(of));
    if judgement.verdict.no_data && policy.on_no_data != OnNoData::Hold {
        let run = if policy.on_no_data == OnNoData::Breach { "breached" } else { "ok" };
        say("onNoData", format!("the backend works and has no data: the clock runs as if {run}"));
    }
    if let Some(probe) = &judgement.probe {
        say("probe", format!("what came back is {} by its own readings", outcome(probe.outcome)));
    }
    if let Some(reason) = state.blind {
        let since = state.last_usable.unwrap_or(state.judged_since);
        let words = format!(
            "no usable reading since {} ({reason}), longer than staleAfter {}",
            at(since),
            Written(policy.stale_after)
        );
        say("blind", words);
    }
    if state.held == Some(Reason::Excepted) {
        let why = policy.exceptions.iter().filter(|exception| exception.span.is_some());
        let why: Vec<&str> = why.map(|exception| exception.reason.as_str()).collect();
        say("exception", format!("an exception covers this moment, so the phase stays ({})", why.join("; ")));
    }
    if let Some(transition) = judgement.transitions.last() {
        say("transition", format!("{} to {}: {}", transition.from, transition.to, sentence(transition.reason)));
    }
    match state.phase {
        Phase::Healthy => {}
        Phase::Pending => say("duration", progress("breached", state, policy.duration)),
        Phase::Active => {
            say("timeout", open(of, state));
            say("recovery", progress("quiet", state, policy.recovery));
        }
        Phase::Recovering => say("evidence", progress("ok", state, policy.recovery)),
    }
    if state.held == Some(Reason::NoEvidence) {
        say("evidence", sentence(Reason::NoEvidence));
    }
    checks
}

fn verdict(of: &Situation<'_>) -> String {
    let verdict = &of.decision.judgement.verdict;
    match verdict.outcome {
        Outcome::Ok => "the rule says ok: every signal is within its threshold".to_owned(),
        Outcome::Breached => format!("the rule says breached ({} reasons)", verdict.reasons.len()),
        Outcome::Unknown(reason) => format!("unknown: {}", sentence(reason)),
    }
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Unknown(reason) => format!("unknown ({reason})"),
        outcome => outcome.as_str().to_owned(),
    }
}

/// A reason's meaning without the capital and the full stop.
fn sentence(reason: Reason) -> String {
    let meaning = reason.meaning().trim().trim_end_matches('.');
    let mut letters = meaning.chars();
    match letters.next() {
        Some(first) => format!("{}{} ({reason})", first.to_lowercase(), letters.as_str()),
        None => reason.to_string(),
    }
}

fn progress(what: &str, state: &State, needed: Duration) -> String {
    format!("{what} for {} of {}", Written(state.clock.run), Written(needed))
}

fn open(of: &Situation<'_>, state: &State) -> String {
    let opened = state.opened_at.unwrap_or(state.since);
    let timeout = recovery::backed_off(recovery::timeout_of(&of.entry.actions(state)), state.reopened);
    let mut words = format!("open for {} of at least {}", Written(whole(elapsed(opened, of.now))), Written(timeout));
    if state.reopened > 0 {
        words = format!("{words}, doubled by {} failed recoveries", state.reopened);
    }
    words
}

fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

fn at(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// What would move the policy next.
pub(super) fn next(of: &Situation<'_>) -> Vec<String> {
    let (policy, state) = (&of.entry.policy, &of.decision.judgement.state);
    if policy.suspend {
        return vec!["spec.suspend: false".to_owned()];
    }
    if of.facts.uid.is_none() {
        return vec![format!("a {} named {}", policy.target_ref.kind, policy.target_ref.name)];
    }
    let left = |needed: Duration| Written(needed.saturating_sub(state.clock.run));
    match state.phase {
        Phase::Healthy => vec!["a breached reading: Pending".to_owned()],
        Phase::Pending => vec![
            format!("breached readings for another {}: Active", left(policy.duration)),
            "an ok reading: Healthy".to_owned(),
        ],
        Phase::Active => {
            let opened = state.opened_at.unwrap_or(state.since);
            let timeout = recovery::backed_off(recovery::timeout_of(&of.entry.actions(state)), state.reopened);
            let wait = whole(timeout.saturating_sub(elapsed(opened, of.now)));
            let until = if wait.is_zero() { String::new() } else { format!(", and {} more open", Written(wait)) };
            vec![format!("ok readings for another {}{until}: recovery begins", left(policy.recovery))]
        }
        Phase::Recovering => {
            let step = match state.stage.and_then(recovery::after) {
                Some(Stage::Half) => "half returns",
                Some(_) => "all returns",
                None => "Healthy, and the mode is lifted",
            };
            vec![
                format!("ok readings of what came back for another {}: {step}", left(policy.recovery)),
                "a breached reading: Active, and everything is taken back".to_owned(),
            ]
        }
    }
}

/// The whole explanation as text.
pub(super) fn write(it: &Explanation, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let stage = it.stage.map_or(String::new(), |stage| format!(" ({stage:?})"));
    writeln!(f, "{} {} is {}{stage} since {}", it.kind, it.policy, it.phase, at(it.since))?;
    writeln!(f, "  target       {}", it.target)?;
    writeln!(f, "  tenant       {}", it.tenant)?;
    writeln!(f, "  enforcement  {}", it.enforcement)?;
    let reason = it.verdict_reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
    writeln!(f, "  verdict      {}{reason} at {}, decision {}", it.verdict, at(it.at), it.decision_id)?;
    section(
        f,
        "readings",
        it.signals.iter().map(|signal| {
            let value = signal.value.clone().or_else(|| signal.reason.clone()).unwrap_or_default();
            let threshold = signal.threshold.as_ref().map_or(String::new(), |written| format!(", threshold {written}"));
            let age = signal.age_seconds.map_or(String::new(), |age| format!(", {age:.0} s old"));
            let requests = signal.requests.map_or(String::new(), |count| format!(", {count:.0} requests"));
            format!("{} {value}{threshold}{age}{requests}", signal.name)
        }),
    )?;
    section(f, "queries", it.queries.iter().map(|query| format!("{}: {}", query.backend, query.text)))?;
    section(
        f,
        "rule",
        it.fired.iter().map(|fired| match &fired.line {
            Some(line) => format!("{}: {}\n      {line}", fired.code, fired.words),
            None => format!("{}: {}", fired.code, fired.words),
        }),
    )?;
    section(f, "checks", it.checks.iter().map(|check| format!("{}: {}", check.name, check.words)))?;
    section(
        f,
        "suspects",
        it.suspects.iter().map(|pod| {
            let back = if it.returned.contains(pod) { " (back as a probe)" } else { "" };
            format!("{pod}{back}")
        }),
    )?;
    section(f, "effects", it.effects.iter().map(|effect| format!("{}: {}", effect.slot, effect.desired)))?;
    let overridden = it.overridden.iter().map(|lost| format!("{} is held by {}", lost.slot, lost.winner));
    section(f, "overridden", overridden)?;
    let held = it.held.iter().map(|held| format!("{}: {} ({})", held.what, held.message, held.reason));
    section(f, "held back", held)?;
    section(f, "next", it.next.iter().cloned())
}

fn section(f: &mut fmt::Formatter<'_>, title: &str, lines: impl Iterator<Item = String>) -> fmt::Result {
    for (index, line) in lines.enumerate() {
        if index == 0 {
            writeln!(f, "  {title}")?;
        }
        writeln!(f, "    {line}")?;
    }
    Ok(())
}
