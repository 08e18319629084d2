//! Why a bundle is refused.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::model::reason::Reason;

use super::algorithm::Algorithm;
use super::digest::ContentDigest;
use super::roots::{Root, listed};
use super::sequence::Sequence;

/// The first thing that is wrong with a bundle. Whoever publishes it must change it, or whoever runs the source must
/// change whom it trusts; trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    // The archive.
    /// The bytes are no gzipped tar, or a damaged one.
    #[error("the bundle is no readable archive: {message}; expected a gzipped tar")]
    Archive {
        /// What the reader said.
        message: String,
    },
    /// Something is larger than it may be.
    #[error("{what} has more than {limit} bytes; expected at most that")]
    TooLarge {
        /// `the bundle`, `what the bundle unpacks to`, or a file's name.
        what: String,
        /// What is allowed.
        limit: u64,
    },
    /// More entries than allowed.
    #[error("the bundle's archive has more than {limit} entries; expected at most that")]
    TooManyEntries {
        /// What is allowed.
        limit: usize,
    },
    /// A name that is none for a file of a bundle.
    #[error("the file name `{path}` {problem}; expected a relative path of at most {limit} bytes")]
    Path {
        /// As written, shortened.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
        /// How long a name may be.
        limit: usize,
    },
    /// A link, a device and the like.
    #[error("{file}: is a {kind}; expected plain files and directories only")]
    NotAFile {
        /// The entry.
        file: String,
        /// What it is.
        kind: &'static str,
    },
    /// A file that is there twice.
    #[error("{file}: is in the archive more than once; expected once")]
    Duplicate {
        /// The file.
        file: String,
    },

    // The content.
    /// Something that OPA would run or apply, and we cannot.
    #[error("{file}: is {what}; expected Rego modules, data and a JSON manifest")]
    Unsupported {
        /// The file.
        file: String,
        /// What it is.
        what: &'static str,
    },
    /// A file that must be read cannot be.
    #[error("{file}{}: {message}", place(*.at))]
    Document {
        /// The file.
        file: String,
        /// Line and column from 1, where known.
        at: Option<(usize, usize)>,
        /// What was found and what is expected.
        message: String,
    },
    /// A field of the manifest.
    #[error("{file}: {field}: {found}; expected {expected}")]
    Manifest {
        /// The manifest's path.
        file: String,
        /// The field.
        field: String,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// Two manifests, or two signature files.
    #[error("{first} and {second}: the bundle has two of what there is one of")]
    Twice {
        /// One of the two.
        first: String,
        /// The other.
        second: String,
    },
    /// A Rego version that the engine does not have.
    #[error("{file}: {field}: Rego version {found}; expected 1")]
    RegoVersion {
        /// The manifest's path.
        file: String,
        /// The field.
        field: String,
        /// What stands there.
        found: String,
    },
    /// Two roots of the manifest overlap.
    #[error("{file}: roots \"{first}\" and \"{second}\" overlap; expected roots that do not contain one another")]
    RootsOverlap {
        /// The manifest's path.
        file: String,
        /// One of the two.
        first: Root,
        /// The other.
        second: Root,
    },
    /// Another bundle has the root already.
    #[error("root \"{root}\" overlaps \"{theirs}\" of bundle {bundle}; expected roots that no other bundle has")]
    RootTaken {
        /// Ours.
        root: Root,
        /// The other bundle's.
        theirs: Root,
        /// The other bundle.
        bundle: String,
    },
    /// A root that the source may not bring.
    #[error("root \"{root}\" is not this source's; expected a root within {}", listed(.allowed))]
    RootForeign {
        /// The root.
        root: Root,
        /// What the source may bring.
        allowed: Vec<Root>,
    },
    /// A package or data outside the roots.
    #[error("{file}: brings data.{path}; expected what lies within the manifest's roots {}", listed(.roots))]
    OutsideRoots {
        /// The file.
        file: String,
        /// The path, by dots.
        path: String,
        /// The manifest's roots.
        roots: Vec<Root>,
    },
    /// Two data files bring the same path.
    #[error("{file}: data.{path} is brought by another data file too; expected each value once")]
    DataConflict {
        /// The file that was read second.
        file: String,
        /// The path, by dots.
        path: String,
    },

    // The signature.
    /// No signature where one is needed.
    #[error("the bundle has no .signatures.json; expected a signed bundle")]
    Unsigned,
    /// A signature that was there and is gone.
    #[error("{found}; expected the signature that the bundle was published with")]
    Stripped {
        /// By what it shows.
        found: &'static str,
    },
    /// The signature file cannot be read.
    #[error(".signatures.json: {field}: {found}; expected {expected}")]
    Malformed {
        /// Where in the file.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// The signature does not fit.
    #[error(".signatures.json: the signature is not by key `{key}`, or what it signs was changed")]
    Signature {
        /// The key that it was checked with.
        key: String,
    },
    /// The key is not trusted.
    #[error(".signatures.json: signed by key `{key}`; expected one of the trusted keys: {known}")]
    KeyUnknown {
        /// As the signature says.
        key: String,
        /// The ids that are trusted, listed.
        known: String,
    },
    /// The key was revoked.
    #[error(".signatures.json: signed by key `{key}`, which is revoked; expected another key's signature")]
    KeyRevoked {
        /// Its id.
        key: String,
    },
    /// The key had expired.
    #[error(".signatures.json: signed by key `{key}`, which expired at {}; expected a key in force", .not_after.to_rfc3339_opts(SecondsFormat::AutoSi, true))]
    KeyExpired {
        /// Its id.
        key: String,
        /// Until when it was in force.
        not_after: DateTime<Utc>,
    },
    /// The signature names another algorithm than its key has.
    #[error(".signatures.json: header.alg: `{found}`; expected {expected}, the algorithm of key `{key}`")]
    Algorithm {
        /// The key.
        key: String,
        /// What the signature says.
        found: String,
        /// What the key is for.
        expected: Algorithm,
    },
    /// The key is a shared secret.
    #[error("key `{key}` is a shared secret ({algorithm}); expected a key pair, whose public half cannot sign")]
    SharedSecret {
        /// The key.
        key: String,
        /// Its algorithm.
        algorithm: Algorithm,
    },
    /// Signed for another scope.
    #[error(".signatures.json: payload.scope: `{found}`; expected `{expected}`")]
    Scope {
        /// What was signed.
        found: String,
        /// What this source takes.
        expected: String,
    },
    /// A weak or unknown hash function.
    #[error(
        ".signatures.json: payload.files: {file}: hashed by `{found}`; expected SHA-256 or another of the SHA-2 family"
    )]
    WeakHash {
        /// The file.
        file: String,
        /// The function.
        found: String,
    },
    /// A file is not what was signed.
    #[error("{file}: is not what was signed: its digest is {found}; expected {expected}")]
    Changed {
        /// The file.
        file: String,
        /// In hex.
        found: String,
        /// In hex.
        expected: String,
    },
    /// A file that was signed is not there.
    #[error("{file}: was signed and is missing from the bundle")]
    Missing {
        /// The file.
        file: String,
    },
    /// A file that was not signed is there.
    #[error("{file}: is not covered by the signature; expected signed files only")]
    Extra {
        /// The file.
        file: String,
    },

    // The order.
    /// No sequence where one is needed.
    #[error("{file}: metadata.sequence is absent; expected an integer that grows with every publication")]
    SequenceMissing {
        /// The manifest's path.
        file: String,
    },
    /// A lower sequence than before.
    #[error("metadata.sequence: {found} is lower than {accepted}, which was accepted before; expected a higher one")]
    SequenceReplayed {
        /// The bundle's.
        found: Sequence,
        /// The highest so far.
        accepted: Sequence,
    },
    /// The same sequence with other content.
    #[error(
        "metadata.sequence: {sequence} was accepted before with other content ({accepted}, now {found}); expected a higher one"
    )]
    SequenceReused {
        /// Of both.
        sequence: Sequence,
        /// The bundle's content.
        found: ContentDigest,
        /// The content that was accepted.
        accepted: ContentDigest,
    },
}

impl Refusal {
    /// The reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Archive { .. }
            | Self::Document { .. }
            | Self::Manifest { .. }
            | Self::Twice { .. }
            | Self::DataConflict { .. } => Reason::BundleInvalid,
            Self::TooLarge { .. } | Self::TooManyEntries { .. } => Reason::BundleTooLarge,
            Self::Path { .. } => Reason::PathEscape,
            Self::NotAFile { .. } => Reason::NotAFile,
            Self::Duplicate { .. } => Reason::DuplicateFile,
            Self::Unsupported { .. } => Reason::UnsupportedContent,
            Self::RegoVersion { .. } => Reason::UnsupportedRegoVersion,
            Self::RootsOverlap { .. } | Self::RootTaken { .. } => Reason::RootsOverlap,
            Self::RootForeign { .. } => Reason::RootForeign,
            Self::OutsideRoots { .. } => Reason::OutsideRoots,
            Self::Unsigned => Reason::Unsigned,
            Self::Stripped { .. } => Reason::SignatureStripped,
            Self::Malformed { .. } => Reason::SignatureMalformed,
            Self::Signature { .. } => Reason::SignatureInvalid,
            Self::KeyUnknown { .. } => Reason::KeyUnknown,
            Self::KeyRevoked { .. } => Reason::KeyRevoked,
            Self::KeyExpired { .. } => Reason::KeyExpired,
            Self::Algorithm { .. } => Reason::AlgorithmMismatch,
            Self::SharedSecret { .. } => Reason::SharedSecret,
            Self::Scope { .. } => Reason::ScopeMismatch,
            Self::WeakHash { .. } => Reason::WeakHash,
            Self::Changed { .. } => Reason::FileChanged,
            Self::Missing { .. } => Reason::FileMissing,
            Self::Extra { .. } => Reason::FileNotSigned,
            Self::SequenceMissing { .. } => Reason::SequenceMissing,
            Self::SequenceReplayed { .. } => Reason::SequenceReplayed,
            Self::SequenceReused { .. } => Reason::SequenceReused,
        }
    }

    /// Whether the bundle is not authentic, rather than wrong in itself: its signature, its key, its order.
    pub fn is_distrust(&self) -> bool {
        !matches!(
            self.reason(),
            Reason::BundleInvalid
                | Reason::BundleTooLarge
                | Reason::PathEscape
                | Reason::NotAFile
                | Reason::DuplicateFile
                | Reason::UnsupportedContent
                | Reason::UnsupportedRegoVersion
                | Reason::RootsOverlap
                | Reason::RootForeign
                | Reason::OutsideRoots
        )
    }
}

fn place(at: Option<(usize, usize)>) -> String {
    at.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default()
}

/// For messages: what a stranger wrote, without what would move a terminal's cursor, and not too long.
pub fn shown(text: &str) -> String {
    const MOST: usize = 150;
    let mut shown = String::new();
    for c in text.chars().take(MOST) {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
