//! Who calls whom: recursion, long chains of rules, and functions that may not or cannot be called.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::BUILTINS;

use crate::rego::error::{Error, Location, Result};
use crate::rego::syntax::{Definition, Path, Role, Use};

/// How many rules may depend on one another in a row. The interpreter recurses along them: some three hundred
/// overflow a thread's stack.
const LONGEST_CHAIN: u32 = 60;

const CLOCK: &str = "decisions depend on their input only; use input.now";
const RANDOM: &str = "decisions depend on their input only";
const ENVIRONMENT: &str = "decisions depend on their input only, never on where they run";
const NETWORK: &str = "rules do no I/O";
const UNBOUNDED: &str = "one call can use unbounded time and memory";
const FORMAT: &str = "its format must be a literal with widths below 1000";

/// Builtins that the engine has, or that OPA has and people will try, and why a rule may not call them.
const REFUSED: [(&str, &str); 16] = [
    ("bits.lsh", UNBOUNDED),
    ("graph.reachable_paths", UNBOUNDED),
    ("http.send", NETWORK),
    ("net.cidr_expand", UNBOUNDED),
    ("net.lookup_ip_addr", NETWORK),
    ("numbers.range", UNBOUNDED),
    ("numbers.range_step", UNBOUNDED),
    ("opa.runtime", ENVIRONMENT),
    ("rand.intn", RANDOM),
    ("rego.metadata.chain", "the engine has no rule metadata"),
    ("rego.metadata.rule", "the engine has no rule metadata"),
    ("rego.parse_module", "the engine lacks it"),
    ("test.sleep", UNBOUNDED),
    ("time.now_ns", CLOCK),
    ("trace", "rules print nothing"),
    ("uuid.rfc4122", RANDOM),
];

/// Every function that is called exists and may be called.
pub(super) fn check_functions(definitions: &[Definition]) -> Result<()> {
    let known: BTreeSet<&Path> = definitions.iter().map(|definition| &definition.path).collect();
    for usage in definitions.iter().flat_map(|definition| &definition.uses) {
        let (path, literal) = match &usage.role {
            Role::Read => continue,
            Role::Called(literal) => (&usage.path, literal.as_deref()),
            Role::Replaces(_) => (&usage.path, Some("")),
        };
        if path.first().is_some_and(|root| root == "data") {
            if matches!(usage.role, Role::Called(_)) && !known.contains(path) {
                return Err(Error::UnknownFunction { at: usage.at.clone(), name: path.join(".") });
            }
            continue;
        }
        builtin(usage, &path.join("."), literal)?;
    }
    Ok(())
}

fn builtin(usage: &Use, name: &str, literal: Option<&str>) -> Result<()> {
    let refused = |why| Err(Error::Refused { at: usage.at.clone(), name: name.to_owned(), why });
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return refused(why);
    }
    if name == "sprintf" && !literal.is_some_and(has_short_widths) {
        return refused(FORMAT);
    }
    if name != "print" && !BUILTINS.contains_key(name) {
        return Err(Error::UnknownFunction { at: usage.at.clone(), name: name.to_owned() });
    }
    Ok(())
}

/// `%0999999999d` would build a gigabyte; `%*d` takes its width from the arguments.
fn has_short_widths(format: &str) -> bool {
    let mut digits = 0_u32;
    let mut in_verb = false;
    for c in format.chars() {
        match c {
            '%' => (in_verb, digits) = (!in_verb, 0),
            '*' if in_verb => return false,
            c if in_verb && c.is_ascii_digit() => digits = digits.saturating_add(1),
            c if c.is_alphabetic() => in_verb = false,
            _ => digits = 0,
        }
        if digits > 3 {
            return false;
        }
    }
    true
}

/// No rule depends on itself, and none on too many in a row.
pub(super) fn check_recursion(definitions: &[Definition]) -> Result<()> {
    let graph = Graph::of(definitions);
    let mut states = vec![State::New; graph.nodes.len()];
    for start in 0..graph.nodes.len() {
        graph.visit(start, &mut states)?;
    }
    Ok(())
}

/// A rule, or a path that rules name: the latter stands for every rule that it reaches, so that a thousand rules
/// which name a package of a thousand others are two thousand edges and not a million.
struct Node {
    name: String,
    at: Location,
    is_rule: bool,
    edges: Vec<usize>,
}

#[derive(Default)]
struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    fn of(definitions: &[Definition]) -> Self {
        let mut graph = Self::default();
        let mut rules: BTreeMap<&Path, usize> = BTreeMap::new();
        for definition in definitions {
            rules.entry(&definition.path).or_insert_with(|| graph.add(&definition.path, &definition.at, true));
        }
        // What `with` replaces is a node even if it is a builtin: a mock that calls what it mocks recurses.
        for usage in definitions.iter().flat_map(|definition| &definition.uses) {
            if let Role::Replaces(target) = &usage.role {
                rules.entry(target).or_insert_with(|| graph.add(target, &usage.at, true));
            }
        }
        let mut named: BTreeMap<&Path, usize> = BTreeMap::new();
        for definition in definitions {
            for usage in &definition.uses {
                let to = *named.entry(&usage.path).or_insert_with(|| {
                    let node = graph.add(&usage.path, &usage.at, false);
                    reached(&rules, &usage.path, |rule| graph.connect(node, rule));
                    node
                });
                let from = match &usage.role {
                    Role::Replaces(target) => target,
                    Role::Read | Role::Called(_) => &definition.path,
                };
                if let Some(from) = rules.get(from) {
                    graph.connect(*from, to);
                }
            }
        }
        graph
    }

    fn add(&mut self, path: &Path, at: &Location, is_rule: bool) -> usize {
        self.nodes.push(Node { name: path.join("."), at: at.clone(), is_rule, edges: Vec::new() });
        self.nodes.len().saturating_sub(1)
    }

    fn connect(&mut self, from: usize, to: usize) {
        if let Some(node) = self.nodes.get_mut(from) {
            node.edges.push(to);
        }
    }

    /// Depth first without recursion of our own; a node that is met while it is on the way is a cycle.
    fn visit(&self, start: usize, states: &mut [State]) -> Result<()> {
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((at, next)) = way.last_mut() {
            let at = *at;
            let (Some(node), Some(state)) = (self.nodes.get(at), states.get_mut(at)) else { return Ok(()) };
            if matches!(state, State::Done(_)) {
                way.pop();
                continue;
            }
            *state = State::OnWay;
            if let Some(to) = node.edges.get(*next).copied() {
                *next = next.saturating_add(1);
                if matches!(states.get(to), Some(State::OnWay)) {
                    return Err(self.cycle(way.iter().map(|(at, _)| *at), to));
                }
                way.push((to, 0));
                continue;
            }
            let below = node.edges.iter().map(|to| match states.get(*to) {
                Some(State::Done(depth)) => *depth,
                _ => 0,
            });
            let depth = below.max().unwrap_or(0).saturating_add(u32::from(node.is_rule));
            if depth > LONGEST_CHAIN {
                return Err(Error::TooLong { at: node.at.clone(), limit: LONGEST_CHAIN });
            }
            if let Some(state) = states.get_mut(at) {
                *state = State::Done(depth);
            }
            way.pop();
        }
        Ok(())
    }

    fn cycle(&self, way: impl Iterator<Item = usize>, to: usize) -> Error {
        let on_cycle = way.skip_while(|at| *at != to).chain([to]).filter_map(|at| self.nodes.get(at));
        let mut rules: Vec<&Node> = on_cycle.filter(|node| node.is_rule).collect();
        // Entered at a name, the way does not end where it began.
        if let (Some(first), Some(last)) = (rules.first().copied(), rules.last())
            && (first.name != last.name || rules.len() == 1)
        {
            rules.push(first);
        }
        let at = rules.first().map(|node| node.at.clone()).unwrap_or_default();
        let names: Vec<&str> = rules.iter().map(|node| node.name.as_str()).collect();
        Error::Recursion { at, cycle: names.join(" -> ") }
    }
}

#[derive(Clone, Copy)]
enum State {
    New,
    OnWay,
    /// With the number of rules in a row from here on.
    Done(u32),
}

/// The rules that naming `path` reaches: the rule itself, a rule into whose value it looks, and, where it names a
/// package or less than a rule, everything below.
fn reached(rules: &BTreeMap<&Path, usize>, path: &Path, mut with: impl FnMut(usize)) {
    for length in 1..path.len() {
        if let Some(to) = path.get(..length).and_then(|part| rules.get(&part.to_vec())) {
            with(*to);
        }
    }
    for (_, to) in rules.range::<Path, _>(path..).take_while(|(below, _)| below.starts_with(path)) {
        with(*to);
    }
}
