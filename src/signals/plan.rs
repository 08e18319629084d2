//! Which queries a round needs: asks of one shape share a query, which is cut into chunks. Pure.
//!
//! A shape is backend, template and window. Its members are the workloads that policies ask about; the selection of
//! a chunk names them exactly as long as four chunks of at most 200 names and 8 kB suffice. Beyond that it names
//! their namespaces only, and whoever reads the answer discards the rest: requests cost a server more than series.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Ask;
use super::options::{Checked, CheckedBackend};
use super::promql::Selection;
use super::template::{Named, Template};
use crate::model::reading::NoReading;

const MAX_NAMES: usize = 200;
const MAX_SELECTION_BYTES: usize = 8 * 1024;
const MAX_CHUNKS: usize = 4;

/// What identifies a shape in the memory of suspects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SuspectKey {
    pub backend: Arc<str>,
    pub template: String,
    pub window: Duration,
    pub namespace: String,
    pub name: String,
}

/// Everything that one round asks for.
pub(crate) struct Plan<'a> {
    pub shapes: Vec<Shape<'a>>,
    pub own: Vec<OwnText<'a>>,
    /// By index of the ask: why its quantiles are not measured.
    pub unmeasured: Vec<(usize, NoReading)>,
}

/// Asks that share queries.
pub(crate) struct Shape<'a> {
    pub backend: &'a Arc<str>,
    pub template_name: &'a str,
    pub template: &'a Template,
    pub window: Duration,
    /// Ordered by (suspect, namespace, name).
    pub members: Vec<Member<'a>>,
    /// Where the suspects begin.
    pub suspects_from: usize,
    /// Index of each ask and of its member.
    pub asks: Vec<(usize, usize)>,
}

/// One workload.
pub(crate) struct Member<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The Pods that any ask knows, sorted.
    pub pods: Vec<&'a str>,
}

/// One query of policies' own; all that wrote the same text share it.
pub(crate) struct OwnText<'a> {
    pub backend: &'a Arc<str>,
    pub text: &'a str,
    /// Ask and signal.
    pub users: Vec<(usize, &'a str)>,
}

/// Plans a round. `is_suspect` tells members that made a shared query fail of late: they are asked apart.
pub(crate) fn plan<'a>(
    asks: &'a [impl Borrow<Ask>],
    options: &'a Checked,
    is_suspect: &dyn Fn(&Shape<'a>, &Member<'a>) -> bool,
) -> Plan<'a> {
    let mut shapes: BTreeMap<(&str, &str, Duration), Shape<'a>> = BTreeMap::new();
    let mut own: BTreeMap<(&str, &str), OwnText<'a>> = BTreeMap::new();
    let mut unmeasured = Vec::new();
    for (index, ask) in asks.iter().map(Borrow::borrow).enumerate() {
        let name = ask.backend.as_deref().or(options.default_backend.as_deref());
        let backend = name.and_then(|name| options.backends.get_key_value(name));
        if let Some((backend, CheckedBackend::Prometheus(_))) = backend {
            for (signal, (text, _)) in &ask.queries {
                let shared = own.entry((backend, text)).or_insert_with(|| OwnText { backend, text, users: Vec::new() });
                shared.users.push((index, signal));
            }
        }
        if ask.quantiles.is_empty() {
            continue;
        }
        let template_name = ask.template.as_deref().unwrap_or(&options.default_template);
        let template = options.templates.get(template_name);
        let named = template.is_some_and(|template| template.named == Named::Target || ask.workload.is_some());
        let (Some((backend, _)), Some(template), true, false) = (backend, template, named, ask.pods.is_empty()) else {
            unmeasured.push((index, NoReading::NotMeasured));
            continue;
        };
        let shape = shapes.entry((backend, template_name, ask.window)).or_insert_with(|| Shape {
            backend,
            template_name,
            template,
            window: ask.window,
            members: Vec::new(),
            suspects_from: 0,
            asks: Vec::new(),
        });
        shape.asks.push((index, 0));
    }
    let mut shapes: Vec<_> = shapes.into_values().collect();
    for shape in &mut shapes {
        fill_members(shape, asks, is_suspect);
    }
    Plan { shapes, own: own.into_values().collect(), unmeasured }
}

/// The name that `template` knows the ask's series by.
fn name_of<'a>(template: &Template, ask: &'a Ask) -> &'a str {
    match template.named {
        Named::Workload => ask.workload.as_deref().unwrap_or_default(),
        Named::Target => &ask.service,
    }
}

fn fill_members<'a>(
    shape: &mut Shape<'a>,
    asks: &'a [impl Borrow<Ask>],
    is_suspect: &dyn Fn(&Shape<'a>, &Member<'a>) -> bool,
) {
    let mut pods: HashMap<(&str, &str), Vec<&str>> = HashMap::with_capacity(shape.asks.len());
    for ask in shape.asks.iter().filter_map(|(index, _)| asks.get(*index)).map(Borrow::borrow) {
        let key = (ask.namespace.as_str(), name_of(shape.template, ask));
        pods.entry(key).or_default().extend(ask.pods.iter().map(|pod| pod.name.as_str()));
    }
    let mut members: Vec<(bool, Member<'a>)> = pods
        .into_iter()
        .map(|((namespace, name), mut pods)| {
            pods.sort_unstable();
            pods.dedup();
            let member = Member { namespace, name, pods };
            (is_suspect(shape, &member), member)
        })
        .collect();
    members.sort_unstable_by(|(a, left), (b, right)| {
        (a, left.namespace, left.name).cmp(&(b, right.namespace, right.name))
    });
    shape.suspects_from = members.partition_point(|(suspect, _)| !suspect);
    shape.members = members.into_iter().map(|(_, member)| member).collect();
    let index = shape.index();
    let template = shape.template;
    let found: Vec<_> = shape
        .asks
        .iter()
        .filter_map(|(at, _)| {
            let ask = asks.get(*at)?.borrow();
            let member = index.get(&(ask.namespace.as_str(), name_of(template, ask)))?;
            Some((*at, *member))
        })
        .collect();
    shape.asks = found;
}

impl<'a> Shape<'a> {
    /// Members by namespace and name.
    pub(crate) fn index(&self) -> HashMap<(&'a str, &'a str), usize> {
        self.members.iter().enumerate().map(|(index, member)| ((member.namespace, member.name), index)).collect()
    }

    /// How `member` is remembered when it makes queries fail.
    pub(crate) fn suspect_key(&self, member: &Member<'_>) -> SuspectKey {
        SuspectKey {
            backend: self.backend.clone(),
            template: self.template_name.to_owned(),
            window: self.window,
            namespace: member.namespace.to_owned(),
            name: member.name.to_owned(),
        }
    }

    /// The chunks of a round, as ranges of members.
    pub(crate) fn chunks(&self) -> Vec<Range<usize>> {
        let mut chunks = Vec::new();
        for part in [0..self.suspects_from, self.suspects_from..self.members.len()] {
            chunks.extend(self.chunks_of(part));
        }
        chunks
    }

    fn chunks_of(&self, part: Range<usize>) -> Vec<Range<usize>> {
        let named = self.named_chunks(part.clone());
        if named.len() <= MAX_CHUNKS {
            return named;
        }
        let by_namespace = self.namespace_chunks(part.clone());
        if by_namespace.len() <= MAX_CHUNKS { by_namespace } else { vec![part] }
    }

    fn named_chunks(&self, part: Range<usize>) -> Vec<Range<usize>> {
        let mut chunks = Vec::new();
        let mut start = part.start;
        let mut size = Size::default();
        for index in part.clone() {
            let Some(member) = self.members.get(index) else { break };
            if !size.add(member.namespace, member.name) {
                chunks.push(start..index);
                start = index;
                size = Size::default();
                size.add(member.namespace, member.name);
            }
        }
        if start < part.end {
            chunks.push(start..part.end);
        }
        chunks
    }

    /// Cuts at borders of namespaces, about evenly.
    fn namespace_chunks(&self, part: Range<usize>) -> Vec<Range<usize>> {
        let target = part.len().div_ceil(MAX_CHUNKS);
        let mut chunks = Vec::new();
        let mut start = part.start;
        let mut bytes = 0;
        for index in part.clone() {
            let (Some(member), before) = (self.members.get(index), index.checked_sub(1)) else { break };
            let previous = before.and_then(|before| self.members.get(before)).map(|member| member.namespace);
            if index > start && previous == Some(member.namespace) {
                continue;
            }
            if index > start && (index - start >= target || bytes + member.namespace.len() > MAX_SELECTION_BYTES) {
                chunks.push(start..index);
                start = index;
                bytes = 0;
            }
            bytes += member.namespace.len() + 1;
        }
        if start < part.end {
            chunks.push(start..part.end);
        }
        chunks
    }

    /// What the query of a chunk is restricted to.
    pub(crate) fn selection(&self, chunk: Range<usize>) -> Selection<'a> {
        let members = self.members.get(chunk).unwrap_or_default();
        let namespaces: BTreeSet<&str> = members.iter().map(|member| member.namespace).collect();
        let mut size = Size::default();
        if members.iter().all(|member| size.add(member.namespace, member.name)) {
            let names: BTreeSet<&str> = members.iter().map(|member| member.name).collect();
            let (namespaces, names) = (namespaces.into_iter().collect(), names.into_iter().collect());
            return Selection::Names { namespaces, names };
        }
        let bytes: usize = namespaces.iter().map(|namespace| namespace.len() + 1).sum();
        if bytes <= MAX_SELECTION_BYTES {
            return Selection::Namespaces(namespaces.into_iter().collect());
        }
        Selection::All
    }

    /// The parts of a chunk whose query failed; empty when it cannot be split further.
    pub(crate) fn split(&self, chunk: Range<usize>) -> Vec<Range<usize>> {
        let middle = chunk.start + chunk.len() / 2;
        if chunk.len() < 2 {
            return Vec::new();
        }
        let namespace_at = |index: usize| self.members.get(index).map(|member| member.namespace);
        let is_border = |index: usize| namespace_at(index) != namespace_at(index.wrapping_sub(1));
        let border = (chunk.start + 1..chunk.end).filter(|index| is_border(*index)).min_by_key(|i| i.abs_diff(middle));
        match (self.selection(chunk.clone()), border) {
            (Selection::Names { .. }, _) => vec![chunk.start..middle, middle..chunk.end],
            (_, Some(border)) => vec![chunk.start..border, border..chunk.end],
            // Half of a namespace can only be told by names.
            (_, None) => self.named_chunks(chunk),
        }
    }
}

/// How large a selection by names is.
#[derive(Default)]
struct Size<'a> {
    namespaces: BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
    bytes: usize,
}

impl<'a> Size<'a> {
    /// Adds a member unless it no longer fits.
    fn add(&mut self, namespace: &'a str, name: &'a str) -> bool {
        let new_namespace = !self.namespaces.contains(namespace);
        let new_name = !self.names.contains(name);
        let more = usize::from(new_namespace) * (namespace.len() + 1) + usize::from(new_name) * (name.len() + 1);
        let names = self.names.len() + usize::from(new_name);
        if self.bytes + more > MAX_SELECTION_BYTES || names > MAX_NAMES {
            return false;
        }
        self.bytes += more;
        self.namespaces.insert(namespace);
        self.names.insert(name);
        true
    }
}

#[cfg(test)]
mod tests;
