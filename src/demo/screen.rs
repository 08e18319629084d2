//! The demo on a terminal: one frame of text from what is known. Pure; whoever prints it moves the cursor.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::simulation::Traffic;
use super::story::Moment;
use crate::model::phase::Phase;
use crate::model::quantity::{self, BaseUnit};
use crate::model::view::PolicyView;

/// What one frame shows.
pub struct Frame<'a> {
    /// Simulated time since the start.
    pub elapsed: Duration,
    /// Simulated seconds in a real one.
    pub speed: f64,
    /// Namespace and name of the policy, and how it stands; none: there is none yet.
    pub policy: Option<(String, &'a PolicyView)>,
    /// The judgements so far.
    pub timeline: &'a [Moment],
    /// How traffic is split.
    pub traffic: &'a Traffic,
    /// Requests a second by Pod.
    pub rates: &'a BTreeMap<String, f64>,
    /// Names of the destinations, in the order of `traffic`.
    pub destinations: &'a [String],
    /// The mode of the service.
    pub mode: &'a str,
    /// What goes wrong at the moment, in words; empty: nothing.
    pub fault: &'a str,
    /// The events so far, oldest first.
    pub events: &'a [Value],
    /// Problems of the user's files.
    pub problems: &'a [String],
}

/// Columns of the chart, one per judgement.
const CHART: usize = 72;
/// Lines of the chart.
const HEIGHT: usize = 6;
/// Events shown.
const EVENTS: usize = 5;

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const RED: Style = AnsiColor::Red.on_default();
const CYAN: Style = AnsiColor::Cyan.on_default();

/// The frame's lines, with colours; a writer that is no terminal strips them.
pub fn draw(frame: &Frame<'_>) -> Vec<String> {
    let mut lines = vec![head(frame)];
    match &frame.policy {
        None => lines.push(format!("{DIM}waiting for a policy{DIM:#}")),
        Some((name, policy)) => {
            lines.push(standing(name, policy));
            lines.push(String::new());
            lines.extend(chart(frame.timeline, threshold(policy)));
        }
    }
    lines.push(String::new());
    lines.extend(weights(frame));
    lines.extend(pods(frame));
    lines.push(String::new());
    lines.extend(events(frame.events));
    lines.extend(frame.problems.iter().map(|problem| format!("{RED}{problem}{RED:#}")));
    lines
}

fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

fn head(frame: &Frame<'_>) -> String {
    let fault = if frame.fault.is_empty() {
        format!("{GREEN}nothing is wrong{GREEN:#}")
    } else {
        format!("{RED}{}{RED:#}", frame.fault)
    };
    format!(
        "{BOLD}order service core-trading{BOLD:#}   t+{}   {DIM}{}× time{DIM:#}   {fault}",
        clock(frame.elapsed),
        frame.speed
    )
}

/// The colour of a phase.
pub fn style_of(phase: Phase) -> Style {
    match phase {
        Phase::Healthy => GREEN,
        Phase::Pending => YELLOW,
        Phase::Active => RED,
        Phase::Recovering => CYAN,
    }
}

fn standing(name: &str, policy: &PolicyView) -> String {
    let style = style_of(policy.phase);
    let stage = policy.stage.map(|stage| format!(" ({stage:?})")).unwrap_or_default();
    let mut line = format!("policy {BOLD}{name}{BOLD:#}  {style}{}{stage}{style:#}", policy.phase);
    for (signal, shown) in &policy.signals {
        let value = match &shown.reading {
            Ok(reading) => quantity::show(reading.value, reading.unit),
            Err(why) => format!("no reading ({})", why.reason()),
        };
        let against = shown.threshold.as_ref().map(|t| format!(" against {}", t.written)).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = write!(line, "   {signal} {value}{against}");
    }
    if let Some(reason) = policy.blind {
        let _ = write!(line, "   {YELLOW}blind: {reason}{YELLOW:#}");
    }
    line
}

fn threshold(policy: &PolicyView) -> Option<f64> {
    policy.signals.values().find_map(|signal| Some(signal.threshold.as_ref()?.value))
}

/// P99 over time: a column per judgement, coloured by phase, with the threshold as a line.
fn chart(timeline: &[Moment], threshold: Option<f64>) -> Vec<String> {
    let shown = &timeline[timeline.len().saturating_sub(CHART)..];
    let highest = shown.iter().filter_map(|moment| moment.p99_seconds).fold(threshold.unwrap_or(0.1) * 2.0, f64::max);
    (0..HEIGHT)
        .rev()
        .map(|row| {
            let (low, high) = (highest * row as f64 / HEIGHT as f64, highest * (row + 1) as f64 / HEIGHT as f64);
            let is_threshold = threshold.is_some_and(|threshold| (low..high).contains(&threshold));
            let label = if is_threshold {
                threshold.map(|threshold| quantity::show(threshold, BaseUnit::Seconds)).unwrap_or_default()
            } else if row == HEIGHT - 1 {
                quantity::show(highest, BaseUnit::Seconds)
            } else {
                String::new()
            };
            let mut line = format!("{label:>8} {DIM}│{DIM:#}");
            for moment in shown {
                let style = style_of(moment.phase);
                let _ = match moment.p99_seconds.map(|value| cell(value, low, high)) {
                    Some(block) if block != ' ' => write!(line, "{style}{block}{style:#}"),
                    _ if is_threshold => write!(line, "{DIM}╌{DIM:#}"),
                    _ => write!(line, " "),
                };
            }
            if is_threshold {
                let rest = CHART.saturating_sub(shown.len());
                let _ = write!(line, "{DIM}{}{DIM:#}", "╌".repeat(rest));
            }
            line
        })
        .collect()
}

/// How full a cell from `low` to `high` is, in eighths.
fn cell(value: f64, low: f64, high: f64) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
    // The lowest line always shows something, so that a small value is not taken for a missing one.
    let floor = usize::from(low <= 0.0);
    BLOCKS[((share * 8.0).round() as usize).max(floor).min(8)]
}

fn weights(frame: &Frame<'_>) -> Vec<String> {
    let total: f64 = frame.traffic.destinations.iter().map(|(weight, _)| weight).sum();
    let mut lines = vec![format!("mode {BOLD}{}{BOLD:#}", frame.mode)];
    for ((weight, _), name) in frame.traffic.destinations.iter().zip(frame.destinations) {
        let share = if total > 0.0 { weight / total } else { 0.0 };
        let full = (share * 40.0).round() as usize;
        lines.push(format!(
            "  {name:<12} {CYAN}{}{CYAN:#}{DIM}{}{DIM:#} {:>3.0} %",
            "━".repeat(full),
            "─".repeat(40 - full.min(40)),
            share * 100.0
        ));
    }
    lines
}

fn pods(frame: &Frame<'_>) -> Vec<String> {
    let suspects: &[String] = frame.policy.as_ref().map_or(&[], |(_, policy)| policy.suspects.as_slice());
    let in_service = |name: &String| frame.traffic.destinations.iter().any(|(_, pods)| pods.contains(name));
    let mut names: Vec<&String> = frame.traffic.destinations.iter().flat_map(|(_, pods)| pods).collect();
    names.extend(suspects.iter());
    names.sort();
    names.dedup();
    let shown: Vec<String> = names
        .into_iter()
        .map(|name| {
            let short = name.strip_prefix("core-trading-").unwrap_or(name);
            let rate = frame.rates.get(name).copied().unwrap_or(0.0);
            let cell = format!("{short} {rate:.0}/s");
            match (in_service(name), suspects.contains(name)) {
                (false, _) => format!("{RED}○ {:<20}{RED:#}", format!("{short} isolated")),
                (true, true) => format!("{YELLOW}● {cell:<20}{YELLOW:#}"),
                (true, false) => format!("{GREEN}● {cell:<20}{GREEN:#}"),
            }
        })
        .collect();
    shown.chunks(4).map(|row| format!("  {}", row.join(""))).collect()
}

fn events(events: &[Value]) -> Vec<String> {
    let mut lines = vec![format!("{DIM}events that arrived at the SRE platform: {}{DIM:#}", events.len())];
    let newest = events.iter().rev().take(EVENTS).collect::<Vec<_>>();
    for event in newest.into_iter().rev() {
        lines.push(format!("  {}", sentence(event)));
    }
    lines
}

/// An event in one line.
pub fn sentence(event: &Value) -> String {
    let message = event["data"]["message"].as_str().unwrap_or_default();
    let short: String = message.chars().take(108).collect();
    let dots = if short.len() < message.len() { "…" } else { "" };
    format!("{short}{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &str) -> String {
        anstream::adapter::strip_str(line).to_string()
    }

    #[test]
    fn the_chart_shows_the_threshold_and_missing_readings_as_gaps() {
        let moment = |p99_seconds| Moment { t: 0.0, phase: Phase::Healthy, stage: None, p99_seconds };
        let lines = chart(&[moment(Some(0.1)), moment(None), moment(Some(1.6))], Some(0.8));
        let plain: Vec<String> = lines.iter().map(|line| plain(line)).collect();
        assert_eq!(plain.len(), HEIGHT);
        assert!(plain.iter().any(|line| line.starts_with("   800ms │")), "{plain:#?}");
        let lowest = plain.last().unwrap();
        assert!(lowest.ends_with("▃ █") || lowest.contains(" │▃ █"), "{lowest:?}");
        assert!(plain.first().unwrap().ends_with('█'));
    }

    #[test]
    fn a_small_value_is_not_taken_for_none() {
        assert_eq!(cell(0.000_1, 0.0, 1.0), '▁');
        assert_eq!(cell(0.0, 1.0, 2.0), ' ');
    }
}
