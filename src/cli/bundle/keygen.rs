//! `tradeguard bundle keygen`: a new key pair.

use std::fs;
use std::path::PathBuf;

use getrandom::SysRng;
use getrandom::rand_core::UnwrapErr;
use serde_json::json;

use super::disk;
use crate::bundle::{Algorithm, PrivateKey};
use crate::cli::{Error, Exit, Output, Result, Streams};

/// Make a key pair: DIR/private.pem, which only its owner may read, and DIR/public.pem for those who verify.
///
/// Nothing is overwritten. EdDSA (Ed25519) is the default; OPA servers cannot verify it, so make RS256 or ES256 keys for
/// bundles that they load.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tradeguard bundle keygen -o keys
  tradeguard bundle keygen --algorithm ES256 -o keys/es256")]
pub(super) struct Args {
    /// EdDSA, RS256 or ES256.
    #[arg(long, value_name = "NAME", default_value = "EdDSA", value_parser = disk::algorithm)]
    algorithm: Algorithm,
    /// The directory; it is made where it does not exist.
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    directory: PathBuf,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let [private_path, public_path] = ["private.pem", "public.pem"].map(|name| args.directory.join(name));
    fs::create_dir_all(&args.directory)
        .map_err(|error| disk::problem(&args.directory, format!("cannot be made: {error}")))?;
    for path in [&private_path, &public_path] {
        if path.exists() {
            return Err(disk::problem(path, "exists already and is not overwritten").into());
        }
    }
    // Random numbers of the machine; it ends us where it has none, which is better than a guessable key.
    let key = PrivateKey::generate(args.algorithm, &mut UnwrapErr(SysRng));
    let unmade = |error| Error::Usage(format!("the key {error}"));
    let key = key.map_err(unmade)?;
    let (private, public) = (key.to_pem().map_err(unmade)?, key.public().to_pem().map_err(unmade)?);
    let id = key.public().fingerprint().map_err(unmade)?;
    disk::create(&private_path, private.as_bytes(), disk::PRIVATE)?;
    disk::create(&public_path, public.as_bytes(), disk::PUBLIC)?;
    match args.output {
        Output::Text => {
            writeln!(
                streams.out,
                "private key  {} (keep it where only the publisher reads it)",
                private_path.display()
            )?;
            writeln!(streams.out, "public key   {}", public_path.display())?;
            writeln!(streams.out, "algorithm    {}", args.algorithm)?;
            writeln!(streams.out, "key id       {id}")?;
        }
        Output::Json => {
            let result = json!({
                "privateKey": private_path.display().to_string(),
                "publicKey": public_path.display().to_string(),
                "algorithm": args.algorithm.as_str(),
                "keyId": id,
            });
            writeln!(streams.out, "{result:#}")?;
        }
    }
    Ok(Exit::Ok)
}
