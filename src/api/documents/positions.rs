//! Where the fields of a YAML file stand, so that a finding about a field can say its line.

use std::collections::BTreeMap;

use serde_saphyr::granit_parser::{Event, Parser};

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// The fields of each document of a file, by their path as the API server writes it (`spec.actions[0].type`). Documents
/// that hold nothing are not counted, as in [`super::parse_documents`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    documents: Vec<BTreeMap<String, Place>>,
}

/// A collection that is being read.
enum Open {
    /// With the key whose value comes next.
    Mapping { path: String, key: Option<String> },
    /// With the number of the next item.
    Sequence { path: String, next: usize },
}

impl Positions {
    /// As far as the text can be read.
    pub fn of(text: &str) -> Self {
        let mut positions = Self::default();
        let mut open: Vec<Open> = Vec::new();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            let place = Place { line: span.start.line(), column: span.start.col() + 1 };
            match event {
                Event::DocumentStart(..) => {
                    open.clear();
                    positions.documents.push(BTreeMap::new());
                }
                // Nothing but comments: no document to anybody who reads values.
                Event::DocumentEnd if positions.documents.last().is_some_and(BTreeMap::is_empty) => {
                    positions.documents.pop();
                }
                Event::MappingStart(..) => {
                    let path = positions.node(&mut open, place, None);
                    open.push(Open::Mapping { path, key: None });
                }
                Event::SequenceStart(..) => {
                    let path = positions.node(&mut open, place, None);
                    open.push(Open::Sequence { path, next: 0 });
                }
                Event::MappingEnd | Event::SequenceEnd => drop(open.pop()),
                // A document of nothing but a null is none.
                Event::Scalar(value, ..) if open.is_empty() && ["", "~", "null"].contains(&&*value) => {}
                Event::Scalar(value, ..) => drop(positions.node(&mut open, place, Some(&value))),
                Event::Alias(..) => drop(positions.node(&mut open, place, None)),
                _ => {}
            }
        }
        positions
    }

    /// Takes in one node and returns its path. A scalar where a key is due is a key, which has no path of its own; its
    /// place becomes that of its value, since that is where a person looks.
    fn node(&mut self, open: &mut [Open], place: Place, scalar: Option<&str>) -> String {
        let path = match open.last_mut() {
            None => String::new(),
            Some(Open::Sequence { path, next }) => {
                *next += 1;
                format!("{path}[{}]", *next - 1)
            }
            Some(Open::Mapping { path, key }) => {
                let joined = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                match key.take() {
                    Some(name) => joined(&name),
                    None => {
                        let name = scalar.unwrap_or_default().to_owned();
                        let of_key = joined(&name);
                        *key = Some(name);
                        self.mark(&of_key, place);
                        return of_key;
                    }
                }
            }
        };
        // A scalar value stands where its finding is; a collection where its key is.
        if scalar.is_some() || self.find(&path).is_none() {
            self.mark(&path, place);
        }
        path
    }

    fn mark(&mut self, path: &str, place: Place) {
        if let Some(document) = self.documents.last_mut() {
            document.insert(path.to_owned(), place);
        }
    }

    fn find(&self, path: &str) -> Option<Place> {
        self.documents.last()?.get(path).copied()
    }

    /// Where a field of a document stands; of one that is missing, where the nearest field above it does.
    pub fn at(&self, document: usize, path: &str) -> Option<Place> {
        let fields = self.documents.get(document)?;
        let mut path = path;
        loop {
            if let Some(place) = fields.get(path) {
                return Some(*place);
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return fields.get("").copied(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# a comment
---
spec:
  thresholds: {p99: 800ms, duration: 1h30}
  actions:
    - type: circuit-breaker
      config:
        timeout: -5m
---
# nothing
---
metadata:
  name: second
";

    fn at(document: usize, path: &str) -> (usize, usize) {
        let place = Positions::of(FILE).at(document, path).unwrap();
        (place.line, place.column)
    }

    #[test]
    fn a_field_is_found_at_its_value() {
        assert_eq!(at(0, "spec.thresholds.duration"), (4, 38));
        assert_eq!(at(0, "spec.actions[0].config.timeout"), (8, 18));
        assert_eq!(at(1, "metadata.name"), (13, 9));
    }

    #[test]
    fn a_field_that_is_missing_is_looked_for_where_it_belongs() {
        assert_eq!(at(0, "spec.thresholds.recovery"), (4, 3));
        assert_eq!(at(0, "spec.actions[0].config.fallback.name"), (7, 7));
        assert_eq!(at(0, "metadata.name"), (3, 1), "the document itself");
        assert_eq!(Positions::of(FILE).at(2, "metadata"), None, "empty documents do not count");
    }

    #[test]
    fn a_text_that_cannot_be_read_has_positions_up_to_there() {
        let positions = Positions::of("a: 1\nb: [1, 2\nc: 3\n");
        assert_eq!(positions.at(0, "a"), Some(Place { line: 1, column: 4 }));
    }
}
