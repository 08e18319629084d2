//! The one way in: from bytes to a bundle that was checked in full.

use chrono::{DateTime, Utc};

use super::archive::{self, Files};
use super::content::Content;
use super::digest::ContentDigest;
use super::kind::{FileKind, SIGNATURES};
use super::limits::Limits;
use super::manifest::Manifest;
use super::parsed::Parsed;
use super::refusal::Refusal;
use super::roots::Root;
use super::sequence::Mark;
use super::signature::Signature;
use super::trust::Trust;
use super::verify::{self, Cover, Signer};

/// What a source accepted before, and what it may bring.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// The highest sequence so far.
    pub mark: Option<Mark>,
    /// Whether a bundle must have a sequence even before there is a mark.
    pub requires_sequence: bool,
    /// The roots that the source may bring; none given: any.
    pub roots: Option<Vec<Root>>,
    /// Bundles of other sources that are in force.
    pub neighbours: Vec<Neighbour>,
}

/// A bundle of another source, with what it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name, for messages.
    pub bundle: String,
    /// What it owns.
    pub roots: Vec<Root>,
}

/// A bundle that was checked in full. Its modules are text and nothing more is known of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    manifest: Manifest,
    files: Files,
    data: String,
    digest: ContentDigest,
    signer: Option<Signer>,
}

impl Bundle {
    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// All files but the signature, as they came.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Path and text of every Rego module, tests among them.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(|(path, _)| FileKind::of(path) == FileKind::Module)
            .filter_map(|(path, bytes)| Some((path.as_str(), str::from_utf8(bytes).ok()?)))
    }

    /// The merged data: one JSON object, numbers as they were spelled.
    pub fn data(&self) -> &str {
        &self.data
    }

    /// What it holds, apart from how it was packed and signed.
    pub fn digest(&self) -> &ContentDigest {
        &self.digest
    }

    /// Who signed it; none where the source takes unsigned bundles and this is one.
    pub fn signer(&self) -> Option<&Signer> {
        self.signer.as_ref()
    }

    /// The mark that a source keeps once this bundle is accepted. An older bundle that a person pinned lowers nothing.
    pub fn mark(&self) -> Option<Mark> {
        self.manifest.sequence().map(|sequence| Mark { sequence, digest: self.digest.clone() })
    }
}

/// Reads and checks an archive as of `now`: limits and names, signature, digests, content, roots, order. Nothing that
/// the signature covers is believed, or parsed further than its digest needs, before the signature is.
pub fn open(
    bytes: &[u8],
    trust: &Trust,
    limits: &Limits,
    accepted: &Accepted,
    now: DateTime<Utc>,
) -> Result<Bundle, Refusal> {
    let mut files = archive::read(bytes, limits)?;
    let signature = take_signature(&mut files)?.map(|text| Signature::read(&text)).transpose()?;
    let signer = match &signature {
        Some(signature) => Some(verify::signer_at(signature, trust, now)?),
        None => None,
    };
    if signature.is_none() && trust.requires_signature() {
        return Err(unsigned(&files, limits, accepted));
    }
    let mut cover = signature.map(|signature| Cover::of(&signature, limits)).transpose()?;
    let parsed = Parsed::of(&files, limits, |file| cover.as_mut().map_or(Ok(()), |cover| cover.check(file)))?;
    cover.map_or(Ok(()), Cover::end)?;
    let Content { manifest, data, digest } = Content::of_parsed(parsed, limits)?;
    check_ownership(manifest.roots(), accepted)?;
    check_order(&manifest, &digest, accepted)?;
    Ok(Bundle { manifest, files, data, digest, signer })
}

fn check_order(manifest: &Manifest, digest: &ContentDigest, accepted: &Accepted) -> Result<(), Refusal> {
    match (manifest.sequence(), &accepted.mark) {
        (Some(sequence), Some(mark)) => mark.check(sequence, digest),
        (None, mark) if mark.is_some() || accepted.requires_sequence => {
            Err(Refusal::SequenceMissing { file: manifest.file().to_owned() })
        }
        (_, _) => Ok(()),
    }
}

/// The very content that was accepted signed, now without its signature, tells more than "unsigned".
fn unsigned(files: &Files, limits: &Limits, accepted: &Accepted) -> Refusal {
    let is_known = accepted
        .mark
        .as_ref()
        .is_some_and(|mark| Content::of(files, limits).is_ok_and(|content| content.digest == mark.digest));
    if is_known {
        return Refusal::Stripped { found: "the bundle holds what was accepted before, without .signatures.json" };
    }
    Refusal::Unsigned
}

/// The signature file, wherever it lies (OPA looks at its base name only).
fn take_signature(files: &mut Files) -> Result<Option<Vec<u8>>, Refusal> {
    let mut found = files.keys().filter(|path| FileKind::of(path) == FileKind::Signatures);
    let first = found.next().cloned();
    if let (Some(first), Some(second)) = (&first, found.next()) {
        return Err(Refusal::Twice { first: first.clone(), second: second.clone() });
    }
    let text = first.and_then(|path| files.remove(&path));
    if files.is_empty() {
        return Err(Refusal::Archive { message: format!("it holds no file but {SIGNATURES}") });
    }
    Ok(text)
}

fn check_ownership(roots: &[Root], accepted: &Accepted) -> Result<(), Refusal> {
    if let Some(allowed) = &accepted.roots
        && let Some(foreign) = roots.iter().find(|root| !allowed.iter().any(|allowed| allowed.contains_root(root)))
    {
        return Err(Refusal::RootForeign { root: foreign.clone(), allowed: allowed.clone() });
    }
    for neighbour in &accepted.neighbours {
        for theirs in &neighbour.roots {
            if let Some(root) = roots.iter().find(|root| root.overlaps(theirs)) {
                return Err(Refusal::RootTaken {
                    root: root.clone(),
                    theirs: theirs.clone(),
                    bundle: neighbour.bundle.clone(),
                });
            }
        }
    }
    Ok(())
}
