//! `tradeguard bundle build`: from a directory to a bundle.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::disk;
use crate::bundle::{Content, FileKind, Files, FoundPackage, Limits, MANIFEST, archive, shown};
use crate::cli::{Error, Exit, Output, Result, Streams};
use crate::model::problem::Problem;
use crate::rego::{self, Module, gate};

mod collect;

/// Build a bundle from a directory: its Rego modules, its data, its manifest.
///
/// Taken are *.rego but *_test.rego, and *.json, *.yaml and *.yml; keys, READMEs and hidden files stay out. DIR/.manifest says
/// which roots the bundle owns; the options below put fields into it. Modules pass the gate that they meet in the engine,
/// so that a bundle which could not be loaded is not built. The same files give the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tradeguard bundle build bundles/compliance-audit -o audit.tar.gz
  tradeguard bundle build rules -o audit.tar.gz --root audit --revision \"$(git rev-parse HEAD)\" --sequence 42")]
pub(super) struct Args {
    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The bundle.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    file: PathBuf,
    /// The publisher's name for this state.
    #[arg(long, value_name = "TEXT")]
    revision: Option<String>,
    /// The bundle's place in order: higher than that of every bundle published before.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    sequence: Option<u64>,
    /// A path below `data` that the bundle owns, `a/b`; may be given several times. \"\" owns everything.
    #[arg(long = "root", value_name = "PATH")]
    roots: Vec<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let limits = Limits::default();
    let collect::Collected { mut files, left_out } = collect::below(&args.directory, &limits)?;
    put_manifest(&mut files, args)?;
    let content =
        Content::of(&files, &limits).map_err(|refusal| Error::from(disk::problem(&args.directory, refusal)))?;
    let modules = modules_of(&files);
    check_modules(&modules, &content, &args.directory)?;
    let bytes = packed(&files, &limits).map_err(|refusal| Error::from(disk::problem(&args.directory, refusal)))?;
    disk::replace(&args.file, &bytes, disk::PUBLIC)?;
    let manifest = &content.manifest;
    match args.output {
        Output::Text => {
            let sequence = manifest.sequence().map_or("none".to_owned(), |sequence| sequence.to_string());
            writeln!(streams.out, "{}: {} files, {} of them modules", args.file.display(), files.len(), modules.len())?;
            writeln!(streams.out, "revision {}, sequence {sequence}, {}", shown(manifest.revision()), content.digest)?;
            for path in &left_out {
                writeln!(streams.err, "left out: {path}")?;
            }
            if manifest.sequence().is_none() {
                writeln!(streams.err, "note: without a sequence, sources that want signed bundles refuse it")?;
            }
        }
        Output::Json => {
            let answer = json!({
                "file": args.file.display().to_string(),
                "revision": manifest.revision(),
                "sequence": manifest.sequence().map(|sequence| sequence.0),
                "digest": content.digest.to_string(),
                "files": files.keys().collect::<Vec<_>>(),
                "leftOut": left_out,
            });
            writeln!(streams.out, "{answer:#}")?;
        }
    }
    Ok(Exit::Ok)
}

/// The archive, and that it can be opened again within the same limits.
fn packed(files: &Files, limits: &Limits) -> std::result::Result<Vec<u8>, crate::bundle::Refusal> {
    let bytes = archive::write(files)?;
    archive::read(&bytes, limits)?;
    Ok(bytes)
}

/// The directory's manifest with the options' fields in it. Without roots a bundle would own everything and clash with
/// every other, so that must be said.
fn put_manifest(files: &mut Files, args: &Args) -> Result<(), Problem> {
    let path = args.directory.join(MANIFEST);
    let mut manifest: Map<String, Value> = match files.get(MANIFEST) {
        None => Map::new(),
        Some(bytes) => serde_json::from_slice(bytes)
            .map_err(|error| Problem::expected(path.display().to_string(), error, "a JSON object"))?,
    };
    let before = manifest.clone();
    if let Some(revision) = &args.revision {
        manifest.insert("revision".into(), json!(revision));
    }
    if !args.roots.is_empty() {
        manifest.insert("roots".into(), json!(args.roots));
    }
    if let Some(sequence) = args.sequence {
        let metadata = manifest.entry("metadata").or_insert_with(|| json!({}));
        match metadata.as_object_mut() {
            Some(fields) => {
                fields.insert("sequence".into(), json!(sequence));
            }
            None => return Err(disk::problem(&path, format!("metadata: {metadata}; expected an object"))),
        }
    }
    if manifest.get("roots").is_none_or(Value::is_null) {
        let expected = "the paths that the bundle owns, there or by --root";
        return Err(Problem::expected(path.display().to_string(), "roots are absent", expected));
    }
    // Where nothing changes, the author's spelling stays.
    if manifest != before || !files.contains_key(MANIFEST) {
        files.insert(MANIFEST.to_owned(), format!("{:#}\n", Value::Object(manifest)).into_bytes());
    }
    Ok(())
}

fn modules_of(files: &Files) -> Vec<Module> {
    let modules = files.iter().filter(|(path, _)| FileKind::of(path) == FileKind::Module);
    // `Content::of` has refused what is no text.
    modules.map(|(path, bytes)| Module::new(path, String::from_utf8_lossy(bytes))).collect()
}

/// The engine's gate, then that every package lies under the roots.
fn check_modules(modules: &[Module], content: &Content, directory: &Path) -> Result<(), Problem> {
    let refused = |error: &dyn std::fmt::Display| disk::problem(directory, error);
    let packages = gate::check_all(modules, &rego::Limits::default()).map_err(|error| refused(&error))?;
    let found: Vec<FoundPackage> =
        modules.iter().zip(packages).map(|(module, path)| FoundPackage { file: module.path.clone(), path }).collect();
    content.manifest.check_packages(&found).map_err(|refusal| refused(&refusal))
}
