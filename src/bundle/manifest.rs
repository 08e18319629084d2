//! The manifest: what a bundle says of itself.
//!
//! Source: OPA's manifest schema (<https://openpolicyagent.org/schemas/bundle/v1/manifest.schema.json>) and
//! `validateAndInjectDefaults` of OPA 1.22.4. Fields that nobody knows are passed over.

use serde_json::{Map, Value};

use super::json::{Fields, Json};
use super::limits::Limits;
use super::refusal::Refusal;
use super::roots::{Root, overlapping};
use super::sequence::Sequence;

/// The one Rego version that the engine has.
const REGO_VERSION: &str = "1";

/// What a bundle says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    file: String,
    revision: String,
    roots: Vec<Root>,
    sequence: Option<Sequence>,
    metadata: Map<String, Value>,
}

/// The package of a module, as whoever parsed the module found it: `["data", "audit", "weights"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPackage {
    /// The module's path in the bundle.
    pub file: String,
    /// Its path, beginning with `data`.
    pub path: Vec<String>,
}

impl Manifest {
    /// From its document; without one everything has its default, as in OPA.
    pub(super) fn read(file: &str, document: Option<&Json<'_>>, limits: &Limits) -> Result<Self, Refusal> {
        let nothing = Fields::default();
        let reader = Reader {
            file,
            fields: match document {
                None => &nothing,
                Some(Json::Object(fields)) => fields,
                Some(other) => return Err(wrong(file, "the document", other.shown(), "an object")),
            },
        };
        reader.check_rego_versions()?;
        reader.check_wasm()?;
        let metadata = reader.metadata()?;
        Ok(Self {
            file: file.to_owned(),
            revision: reader.revision()?,
            roots: reader.roots(limits)?,
            sequence: metadata.map_or(Ok(None), |fields| sequence(file, fields))?,
            metadata: metadata.map(plain).unwrap_or_default(),
        })
    }

    /// Its path in the bundle.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The publisher's name for this state; may be empty.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// What the bundle owns.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Where the bundle stands among those of its source.
    pub fn sequence(&self) -> Option<Sequence> {
        self.sequence
    }

    /// Everything under `metadata`.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }

    /// Whether every module's package lies within the roots.
    pub fn check_packages(&self, packages: &[FoundPackage]) -> Result<(), Refusal> {
        let outside = packages.iter().find(|found| {
            let path = found.path.get(1..).unwrap_or_default();
            !self.roots.iter().any(|root| root.contains(path))
        });
        match outside {
            None => Ok(()),
            Some(found) => Err(Refusal::OutsideRoots {
                file: found.file.clone(),
                path: found.path.get(1..).unwrap_or_default().join("."),
                roots: self.roots.clone(),
            }),
        }
    }
}

fn wrong(file: &str, field: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Refusal {
    Refusal::Manifest { file: file.to_owned(), field: field.into(), found: found.into(), expected: expected.into() }
}

struct Reader<'a> {
    file: &'a str,
    fields: &'a Fields<'a>,
}

impl<'a> Reader<'a> {
    /// A field that is there and not null.
    fn field(&self, name: &str) -> Option<&'a Json<'a>> {
        self.fields.get(name).filter(|value| **value != Json::Null)
    }

    fn wrong(&self, field: impl Into<String>, found: &Json<'_>, expected: &str) -> Refusal {
        wrong(self.file, field, found.shown(), expected)
    }

    fn revision(&self) -> Result<String, Refusal> {
        let Some(value) = self.field("revision") else { return Ok(String::new()) };
        value.as_text().map(str::to_owned).ok_or_else(|| self.wrong("revision", value, "a text"))
    }

    fn roots(&self, limits: &Limits) -> Result<Vec<Root>, Refusal> {
        let Some(value) = self.field("roots") else { return Ok(vec![Root::everything()]) };
        let Json::List(items) = value else { return Err(self.wrong("roots", value, "a list of texts")) };
        if items.len() > limits.roots {
            let expected = format!("at most {}", limits.roots);
            return Err(wrong(self.file, "roots", format!("{} items", items.len()), expected));
        }
        let root = |(index, item): (usize, &Json<'_>)| match item.as_text() {
            Some(text) => Ok(Root::new(text)),
            None => Err(self.wrong(format!("roots[{index}]"), item, "a text")),
        };
        let roots: Vec<Root> = items.iter().enumerate().map(root).collect::<Result<_, _>>()?;
        match overlapping(&roots) {
            None => Ok(roots),
            Some((first, second)) => Err(Refusal::RootsOverlap { file: self.file.to_owned(), first, second }),
        }
    }

    fn check_rego_versions(&self) -> Result<(), Refusal> {
        let refused = |field: String, value: &Json<'_>| {
            Err(Refusal::RegoVersion { file: self.file.to_owned(), field, found: value.shown() })
        };
        let is_ours = |value: &Json<'_>| matches!(value, Json::Number(spelling) if spelling == REGO_VERSION);
        if let Some(value) = self.field("rego_version").filter(|value| !is_ours(value)) {
            return refused("rego_version".into(), value);
        }
        match self.field("file_rego_versions") {
            None => Ok(()),
            Some(Json::Object(fields)) => match fields.iter().find(|(_, value)| !is_ours(value)) {
                None => Ok(()),
                Some((pattern, value)) => refused(format!("file_rego_versions[{pattern}]"), value),
            },
            Some(other) => Err(self.wrong("file_rego_versions", other, "an object")),
        }
    }

    fn check_wasm(&self) -> Result<(), Refusal> {
        match self.field("wasm") {
            None => Ok(()),
            Some(Json::List(items)) if items.is_empty() => Ok(()),
            Some(other) => Err(self.wrong("wasm", other, "no WebAssembly, which the engine does not run")),
        }
    }

    fn metadata(&self) -> Result<Option<&'a Fields<'a>>, Refusal> {
        match self.field("metadata") {
            None => Ok(None),
            Some(Json::Object(fields)) => Ok(Some(fields)),
            Some(other) => Err(self.wrong("metadata", other, "an object")),
        }
    }
}

/// Digits only: `1.0` and `1e3` are integers to some readers and not to others.
fn sequence(file: &str, metadata: &Fields<'_>) -> Result<Option<Sequence>, Refusal> {
    let Some(value) = metadata.get("sequence") else { return Ok(None) };
    let number = match value {
        Json::Number(spelling) => spelling.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok()),
        _ => None,
    };
    match number {
        Some(number) => Ok(Some(Sequence(number))),
        None => {
            let expected = "an integer from 0 to 9223372036854775807, in digits";
            Err(wrong(file, "metadata.sequence", value.shown(), expected))
        }
    }
}

/// As serde_json has it, for whoever prints it. A number that it cannot hold makes it empty; nothing rests on it.
fn plain(fields: &Fields<'_>) -> Map<String, Value> {
    serde_json::from_str(&Json::Object(fields.clone()).canonical()).unwrap_or_default()
}
