//! `tradeguard bundle verify`: whether a bundle is signed by a key, and whole.

use std::path::PathBuf;

use serde_json::json;

use super::disk;
use crate::bundle::{Accepted, Algorithm, Limits, Trust, TrustedKey, open};
use crate::cli::{Exit, Output, Result, Streams};
use crate::clock::Clock;

/// Check a bundle's signature, that it covers exactly the bundle's files, and what the files say.
///
/// Which id the signature gives its key does not matter here: the key is the one that is named.
///
/// Exit code: 0 the signature is good; 1 it is not, or there is none; 2 the key or the bundle cannot be read, or the bundle
/// is wrong in itself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tradeguard bundle verify audit.signed.tar.gz --key keys/public.pem
  tradeguard bundle verify audit.signed.tar.gz --key keys/public.pem --algorithm ES256 --scope production")]
pub(super) struct Args {
    /// The bundle.
    #[arg(value_name = "FILE")]
    bundle: PathBuf,
    /// The public key, in PEM.
    #[arg(long, value_name = "PEM")]
    key: PathBuf,
    /// What the key must be for: EdDSA, RS256 or ES256. Default: what it is for.
    #[arg(long, value_name = "NAME", value_parser = disk::algorithm)]
    algorithm: Option<Algorithm>,
    /// The scope that the bundle must be signed for.
    #[arg(long, value_name = "SCOPE", default_value = "")]
    scope: String,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let limits = Limits::default();
    let key = disk::public_key(&args.key, args.algorithm)?;
    let bytes = disk::archive(&args.bundle, &limits)?;
    let id = args.key.display().to_string();
    let trust = Trust::signed_by([TrustedKey::of(&id, key)]).by_key(&id).for_scope(&args.scope);
    let name = args.bundle.display();
    match open(&bytes, &trust, &limits, &Accepted::default(), Clock::system().now()) {
        Ok(bundle) => {
            match args.output {
                Output::Text => writeln!(streams.out, "{name}: the signature is good; {} files", bundle.files().len())?,
                Output::Json => {
                    let answer = json!({
                        "verified": true,
                        "revision": bundle.manifest().revision(),
                        "sequence": bundle.manifest().sequence().map(|sequence| sequence.0),
                        "digest": bundle.digest().to_string(),
                    });
                    writeln!(streams.out, "{answer:#}")?;
                }
            }
            Ok(Exit::Ok)
        }
        Err(refusal) if refusal.is_distrust() => {
            match args.output {
                Output::Text => writeln!(streams.out, "{name}: {}: {refusal}", refusal.reason())?,
                Output::Json => {
                    let answer = json!({
                        "verified": false,
                        "reason": refusal.reason().as_str(),
                        "message": refusal.to_string(),
                    });
                    writeln!(streams.out, "{answer:#}")?;
                }
            }
            Ok(Exit::No)
        }
        Err(refusal) => Err(disk::problem(&args.bundle, refusal).into()),
    }
}
