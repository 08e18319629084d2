//! What a case may expect, how it is told from what is, and how the two are shown side by side.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::decide::{self, Claim, Held, Situation, Want};
use crate::model::effect::{Desired, Record, Weight};
use crate::model::phase::State;
use crate::model::policy::PolicyKey;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::verdict::{Outcome, RuleReason, Verdict};

use super::format::{Expect, Step};
use super::world::{Member, Round, World};

/// One field that is otherwise than expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// How long the case had run.
    pub at: Duration,
    /// Name of the policy, where the case has several.
    pub policy: Option<String>,
    /// The field of `expect`.
    pub field: &'static str,
    /// As the case has it.
    pub expected: String,
    /// As it is.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, expected, actual) = (self.field, lines(&self.expected), lines(&self.actual));
        let width = expected.iter().map(|line| line.chars().count()).max().unwrap_or(0).max("expected".len());
        writeln!(f, "        {field:<12} expected{:pad$} | actual", "", pad = width.saturating_sub("expected".len()))?;
        for index in 0..expected.len().max(actual.len()) {
            let expected = expected.get(index).map_or("", String::as_str);
            let actual = actual.get(index).map_or("", String::as_str);
            let pad = width.saturating_sub(expected.chars().count());
            writeln!(f, "        {:<12} {expected}{:pad$} | {actual}", "", "")?;
        }
        Ok(())
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// A policy that is expected to be refused, at these paths.
pub(super) fn refusal(expected: &[String], problems: &[Problem]) -> Vec<Difference> {
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    if paths == expected {
        return Vec::new();
    }
    let actual: Vec<String> = problems.iter().map(ToString::to_string).collect();
    vec![Difference {
        at: Duration::ZERO,
        policy: None,
        field: "invalid",
        expected: expected.join("\n"),
        actual: if actual.is_empty() { "is valid".to_owned() } else { actual.join("\n") },
    }]
}

/// Everything that is otherwise than the step expects.
pub(super) fn compare(world: &World, step: &Step) -> Vec<Difference> {
    let mut differences = Vec::new();
    let named = step.of.iter().filter_map(|(name, moment)| Some((name.as_str(), moment.expect.as_ref()?)));
    let single = step.expect.as_ref().and_then(|expect| Some((world.only()?, expect)));
    for (name, expect) in single.into_iter().chain(named) {
        let several = world.only().is_none();
        match world.members.get(name) {
            Some(member) => {
                let view = View { world, member };
                for (field, expected, actual) in view.fields(expect) {
                    if expected != actual {
                        let policy = several.then(|| name.to_owned());
                        differences.push(Difference { at: world.elapsed(), policy, field, expected, actual });
                    }
                }
            }
            None => differences.push(Difference {
                at: world.elapsed(),
                policy: Some(name.to_owned()),
                field: "policy",
                expected: "is there".to_owned(),
                actual: "is deleted".to_owned(),
            }),
        }
    }
    if let Some(expect) = &step.expect
        && world.only().is_none()
    {
        differences.extend(compare_all(world, expect));
    }
    differences
}

/// Of several policies, or none, only what stands can be expected without a name.
fn compare_all(world: &World, expect: &Expect) -> Option<Difference> {
    let stands = shown(world.records.values().filter(|record| record.stands()));
    let expected = expect.stands.as_ref().map(|expected| listed(expected.iter().map(entry)))?;
    let actual = listed(stands.iter().map(entry));
    (expected != actual).then(|| Difference { at: world.elapsed(), policy: None, field: "stands", expected, actual })
}

struct View<'a> {
    world: &'a World,
    member: &'a Member,
}

type Field = (&'static str, String, String);

impl View<'_> {
    fn key(&self) -> &PolicyKey {
        &self.member.entry.policy.key
    }

    fn fields(&self, expect: &Expect) -> Vec<Field> {
        let state = &self.member.state;
        let mut fields = self.of_state(expect, state);
        if let Some(round) = &self.member.round {
            fields.extend(self.of_round(expect, round, state));
            fields.extend(self.of_explanation(expect, round));
        }
        fields.extend(self.of_plan(expect));
        fields
    }

    fn of_state(&self, expect: &Expect, state: &State) -> Vec<Field> {
        let reached = state.stage.map_or("none".to_owned(), |stage| format!("{stage:?}"));
        let named = |reason: Option<Reason>| reason.map_or("none", Reason::as_str).to_owned();
        let moved: Vec<String> = self.member.moved.iter().map(ToString::to_string).collect();
        let fields = [
            text("phase", expect.phase.as_ref(), state.phase.to_string()),
            text("stage", expect.stage.as_ref(), reached),
            text("holds", expect.holds.as_ref(), named(state.held)),
            text("blind", expect.blind.as_ref(), named(state.blind)),
            list("suspects", expect.suspects.as_ref(), state.suspects.clone()),
            list("returned", expect.returned.as_ref(), state.returned.clone()),
            list("transitions", expect.transitions.as_ref(), moved),
        ];
        fields.into_iter().flatten().collect()
    }

    fn of_round(&self, expect: &Expect, round: &Round, state: &State) -> Vec<Field> {
        let judgement = &round.decision.judgement;
        let exact = |expected: Option<&String>| expected.is_some_and(|expected| expected.contains(' '));
        let probe = judgement.probe.as_ref();
        let probe = probe.map_or("none".to_owned(), |probe| outcome(probe, exact(expect.probe.as_ref())));
        let reasons = judgement.verdict.reasons.iter().map(rule_reason).collect();
        let claims = round.decision.claims.iter().map(claim).collect();
        let groups = decide::groups(&self.member.entry, state, &round.facts, &self.world.records);
        let shown_groups = |groups: &BTreeMap<String, Vec<String>>| {
            listed(groups.iter().map(|(group, pods)| format!("{group}: {}", pods.join(", "))))
        };
        let expected_groups =
            expect.groups.as_ref().map(|expected| ("groups", shown_groups(expected), shown_groups(&groups)));
        let fields = [
            text("verdict", expect.verdict.as_ref(), outcome(&judgement.verdict, exact(expect.verdict.as_ref()))),
            text("probe", expect.probe.as_ref(), probe),
            text("severity", expect.severity.as_ref(), format!("{:?}", judgement.verdict.severity).to_lowercase()),
            list("reasons", expect.reasons.as_ref(), reasons),
            list("claims", expect.claims.as_ref(), claims),
            expected_groups,
        ];
        fields.into_iter().flatten().collect()
    }

    /// Only texts that are missing are told: the explanation is long.
    fn of_explanation(&self, expect: &Expect, round: &Round) -> Option<Field> {
        let expected = expect.explain.as_ref()?;
        let text = decide::explain(&Situation {
            entry: &self.member.entry,
            observation: &round.observation,
            facts: &round.facts,
            decision: &round.decision,
            plan: &self.world.plan,
            now: round.observation.at,
        })
        .to_string();
        let missing: Vec<String> = expected.iter().filter(|wanted| !text.contains(*wanted)).cloned().collect();
        (!missing.is_empty()).then(|| ("explain", missing.join("\n"), text))
    }

    fn of_plan(&self, expect: &Expect) -> Vec<Field> {
        let plan = &self.world.plan;
        let own = |held: &&Held| held.policy == *self.key();
        let held: Vec<&Held> = plan.held.iter().filter(own).collect();
        let overridden = plan.overridden.get(self.key());
        let overridden =
            overridden.map_or("none".to_owned(), |(slot, winner)| format!("{} {}", slot.kind(), winner.name));
        let would_have = plan.dry_run.iter().filter(|would| would.holder.policy == *self.key());
        let would_have = would_have.map(|would| format!("{} {}", would.slot.kind(), desired(&would.desired))).collect();
        let stands = shown(self.world.records.values().filter(|record| {
            let contributors = self.world.contributors.get(&record.slot);
            record.stands() && contributors.is_some_and(|policies| policies.contains(self.key()))
        }));
        let fields = [
            expect.held.as_ref().map(|expected| {
                let actual = held.iter().enumerate().map(|(index, held)| {
                    held_line(held, expected.get(index).is_none_or(|expected| expected.contains(": ")))
                });
                ("held", listed(expected.iter().cloned()), listed(actual))
            }),
            text("overridden", expect.overridden.as_ref(), overridden),
            list("wouldHave", expect.would_have.as_ref(), would_have),
            expect
                .stands
                .as_ref()
                .map(|expected| ("stands", listed(expected.iter().map(entry)), listed(stands.iter().map(entry)))),
        ];
        fields.into_iter().flatten().collect()
    }
}

fn text(field: &'static str, expected: Option<&String>, actual: String) -> Option<Field> {
    expected.map(|expected| (field, expected.clone(), actual))
}

fn list(field: &'static str, expected: Option<&Vec<String>>, actual: Vec<String>) -> Option<Field> {
    expected.map(|expected| (field, listed(expected.iter().cloned()), listed(actual.into_iter())))
}

/// One line each; nothing is `none`.
fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join("\n") }
}

/// `unknown`, or `unknown NoData` where the case says so much.
fn outcome(verdict: &Verdict, exact: bool) -> String {
    match verdict.outcome {
        Outcome::Unknown(reason) if exact => format!("unknown {reason}"),
        outcome => outcome.as_str().to_owned(),
    }
}

fn rule_reason(reason: &RuleReason) -> String {
    let parts = [Some(&reason.code), reason.signal.as_ref(), reason.pod.as_ref()];
    parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(" ")
}

fn claim(claim: &Claim) -> String {
    let want = match &claim.want {
        Want::Isolate { suspects, .. } => suspects.join(", "),
        Want::Mode(mode) => mode.clone(),
        Want::Divert(divert) => match divert.back.get() {
            0 => format!("{} {}%", divert.to, divert.share.get()),
            back => format!("{} {}%, {back}% back", divert.to, divert.share.get()),
        },
    };
    format!("{} {want}", claim.slot.kind())
}

fn held_line(held: &Held, in_words: bool) -> String {
    let slot = held.slot.as_ref().map_or_else(|| held.action.to_string(), |slot| slot.kind().to_owned());
    if in_words { format!("{slot} {}: {}", held.reason, held.message) } else { format!("{slot} {}", held.reason) }
}

fn desired(desired: &Desired) -> String {
    match desired {
        Desired::Isolated(pods) => pods.join(", "),
        Desired::Mode(mode) => mode.clone(),
        Desired::Weights(weights) => {
            let weights = weights.iter().map(|to| format!("{}={}", to.destination, to.weight.unwrap_or(0)));
            weights.collect::<Vec<_>>().join(", ")
        }
    }
}

/// What stands, as cases write it, by kind of slot; by the slot's whole name where several are of one kind.
fn shown<'a>(records: impl Iterator<Item = &'a Record>) -> BTreeMap<String, Value> {
    let records: Vec<&Record> = records.collect();
    let named = records.iter().map(|record| {
        let several = records.iter().filter(|other| other.slot.kind() == record.slot.kind()).count() > 1;
        let name = if several { record.slot.to_string() } else { record.slot.kind().to_owned() };
        (name, value_of(&record.desired))
    });
    named.collect()
}

fn value_of(desired: &Desired) -> Value {
    match desired {
        Desired::Isolated(pods) => json!(pods),
        Desired::Mode(mode) => json!(mode),
        Desired::Weights(weights) => {
            let weight = |to: &Weight| (to.destination.to_string(), json!(to.weight.unwrap_or(0)));
            Value::Object(weights.iter().map(weight).collect::<Map<_, _>>())
        }
    }
}

fn entry((name, value): (&String, &Value)) -> String {
    format!("{name}: {value}")
}
