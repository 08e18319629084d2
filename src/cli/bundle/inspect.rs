//! `tradeguard bundle inspect`: what a bundle holds and says of itself.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::disk;
use crate::bundle::{Content, FileKind, Files, Limits, Signature, SignedFile, archive, digests, shown};
use crate::cli::{Error, Exit, Output, Result, Streams};

/// Show what a bundle holds: manifest, files with their digests, and what its signature claims.
///
/// Nothing is verified; `tradeguard bundle verify` does that.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tradeguard bundle inspect audit.tar.gz
  tradeguard bundle inspect audit.tar.gz --output json")]
pub(super) struct Args {
    /// The bundle.
    #[arg(value_name = "FILE")]
    bundle: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Everything that is shown.
struct Inspected {
    content: Content,
    files: Files,
    digests: Vec<SignedFile>,
    signature: Option<Signature>,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let limits = Limits::default();
    let bytes = disk::archive(&args.bundle, &limits)?;
    let inspected = inspected(&bytes, &limits).map_err(|refusal| Error::from(disk::problem(&args.bundle, refusal)))?;
    match args.output {
        Output::Text => write!(streams.out, "{}", text_of(&inspected))?,
        Output::Json => writeln!(streams.out, "{:#}", json_of(&inspected))?,
    }
    Ok(Exit::Ok)
}

fn inspected(bytes: &[u8], limits: &Limits) -> std::result::Result<Inspected, crate::bundle::Refusal> {
    let mut files = archive::read(bytes, limits)?;
    let signatures: Vec<String> =
        files.keys().filter(|path| FileKind::of(path) == FileKind::Signatures).cloned().collect();
    let mut signature = None;
    for path in signatures {
        let text = files.remove(&path).unwrap_or_default();
        signature = Some(Signature::read(&text)?);
    }
    let content = Content::of(&files, limits)?;
    Ok(Inspected { content, digests: digests(&files, limits)?, files, signature })
}

fn kind_of(path: &str) -> &'static str {
    match FileKind::of(path) {
        FileKind::Module => "module",
        FileKind::JsonData | FileKind::YamlData => "data",
        FileKind::Manifest => "manifest",
        FileKind::Signatures => "signatures",
        FileKind::Unsupported(_) | FileKind::Plain => "other",
    }
}

fn text_of(inspected: &Inspected) -> String {
    let manifest = &inspected.content.manifest;
    let roots: Vec<String> = manifest.roots().iter().map(|root| format!("\"{root}\"")).collect();
    let mut text = format!("revision   {}\n", shown(manifest.revision()));
    match manifest.sequence() {
        Some(sequence) => text.push_str(&format!("sequence   {sequence}\n")),
        None => text.push_str("sequence   none\n"),
    }
    text.push_str(&format!("roots      {}\n", roots.join(", ")));
    text.push_str(&format!("digest     {}\n", inspected.content.digest));
    match &inspected.signature {
        None => text.push_str("signature  none\n"),
        Some(signature) => {
            let key = signature.key_id.as_deref().map_or("without a name".to_owned(), shown);
            let scope =
                if signature.scope.is_empty() { String::new() } else { format!(", scope {}", shown(&signature.scope)) };
            let count = signature.files.len();
            text.push_str(&format!(
                "signature  {} by key {key}{scope}, {count} files; not verified here\n",
                signature.algorithm
            ));
        }
    }
    text.push_str("files\n");
    for file in &inspected.digests {
        let size = inspected.files.get(&file.name).map_or(0, Vec::len);
        text.push_str(&format!("  {:8}  {size:>8}  {}  {}\n", kind_of(&file.name), file.hash, file.name));
    }
    text
}

fn json_of(inspected: &Inspected) -> Value {
    let manifest = &inspected.content.manifest;
    let files = inspected.digests.iter().map(|file| {
        json!({
            "path": file.name,
            "kind": kind_of(&file.name),
            "bytes": inspected.files.get(&file.name).map_or(0, Vec::len),
            "sha256": file.hash,
        })
    });
    let signature = inspected.signature.as_ref().map(|signature| {
        json!({
            "algorithm": signature.algorithm,
            "keyId": signature.key_id,
            "scope": signature.scope,
            "issuer": signature.issuer,
            "issuedAt": signature.issued_at,
            "files": signature.files.iter().map(|file| &file.name).collect::<Vec<_>>(),
        })
    });
    json!({
        "revision": manifest.revision(),
        "sequence": manifest.sequence().map(|sequence| sequence.0),
        "roots": manifest.roots().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "metadata": manifest.metadata(),
        "digest": inspected.content.digest.to_string(),
        "signature": signature,
        "files": files.collect::<Vec<_>>(),
    })
}
