//! `tradeguard bundle sign`: puts a signature into a bundle.

use std::path::PathBuf;

use super::disk;
use crate::bundle::{Algorithm, Limits, Signing, archive, sign};
use crate::cli::{Error, Exit, Result, Streams};

/// Sign every file of a bundle; a signature that is there is replaced.
///
/// The same bundle and key give the same bytes: no time is written. The signature names its key by id, so that a source
/// may trust several at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tradeguard bundle sign audit.tar.gz --key keys/private.pem -o audit.signed.tar.gz
  tradeguard bundle sign audit.tar.gz --key keys/private.pem --key-id audit-2026 --scope production -o signed.tar.gz")]
pub(super) struct Args {
    /// The bundle.
    #[arg(value_name = "FILE")]
    bundle: PathBuf,
    /// The private key, in PEM.
    #[arg(long, value_name = "PEM")]
    key: PathBuf,
    /// What the key must be for: EdDSA, RS256 or ES256. Default: what it is for.
    #[arg(long, value_name = "NAME", value_parser = disk::algorithm)]
    algorithm: Option<Algorithm>,
    /// The id under which those who verify know the key. Default: its fingerprint, as keygen prints it.
    #[arg(long, value_name = "ID")]
    key_id: Option<String>,
    /// For what the bundle is signed; sources of another scope refuse it.
    #[arg(long, value_name = "SCOPE", default_value = "")]
    scope: String,
    /// The signed bundle.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let limits = Limits::default();
    let key = disk::private_key(&args.key, args.algorithm)?;
    let bytes = disk::archive(&args.bundle, &limits)?;
    let refused = |error: &dyn std::fmt::Display| Error::from(disk::problem(&args.bundle, error));
    let mut files = archive::read(&bytes, &limits).map_err(|refusal| refused(&refusal))?;
    let key_id = match &args.key_id {
        Some(id) => id.clone(),
        None => key.public().fingerprint().map_err(|error| disk::problem(&args.key, error))?,
    };
    let signing = Signing { key: &key, key_id: Some(&key_id), scope: &args.scope };
    sign(&mut files, signing, &limits).map_err(|error| refused(&error))?;
    let signed = archive::write(&files).map_err(|refusal| refused(&refusal))?;
    disk::replace(&args.file, &signed, disk::PUBLIC)?;
    let count = files.len() - 1;
    writeln!(streams.out, "{}: {count} files signed by key {key_id} ({})", args.file.display(), key.algorithm())?;
    Ok(Exit::Ok)
}
