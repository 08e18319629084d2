//! Signed bundles, in OPA's format: a gzipped tar of Rego modules, data and a manifest, with a signature over the
//! digest of every file.
//!
//! [`open`] takes the bytes of an archive, whom to trust, what was accepted before, and the time, and gives a
//! [`Bundle`] or the one [`Refusal`] that a person needs to know. What it gives back was checked in full: limits,
//! names, signature, digests, manifest, roots, data, order. [`sign`] and [`archive::write`] are the way back.
//!
//! The format is OPA's (<https://www.openpolicyagent.org/docs/management-bundles>); where the documentation is
//! silent, the behaviour of OPA 1.22.4 counts, and tests hold it against the real program. Stricter than OPA, on
//! purpose: links, names that lead out of the bundle, duplicates and unlisted content types are refused even unsigned;
//! the algorithm that a signature names must be its key's; MD5 and SHA-1 are refused; and order is held by the signed
//! integer `metadata.sequence`, since nothing in OPA's format stops an old bundle from coming back.
//!
//! This room refuses to know where bytes come from and go to, what time it is, and what Rego means: whether modules
//! lie under the bundle's roots is asked of [`Manifest::check_packages`] by whoever parsed them.

mod algorithm;
pub mod archive;
mod content;
mod data;
mod digest;
mod json;
mod key;
mod kind;
mod limits;
mod manifest;
mod open;
mod parsed;
mod path;
mod refusal;
mod roots;
mod sequence;
mod sign;
mod signature;
mod trust;
mod verify;
mod yaml;

pub use algorithm::Algorithm;
pub use archive::Files;
pub use content::Content;
pub use digest::{ContentDigest, HashAlgorithm};
pub use key::{KeyError, PrivateKey, PublicKey};
pub use kind::{FileKind, MANIFEST, SIGNATURES, is_test};
pub use limits::Limits;
pub use manifest::{FoundPackage, Manifest};
pub use open::{Accepted, Bundle, Neighbour, open};
pub use refusal::{Refusal, shown};
pub use roots::Root;
pub use sequence::{Mark, Sequence};
pub use sign::{Error as SignError, Signing, digests, sign};
pub use signature::{Signature, SignedFile};
pub use trust::{Trust, TrustedKey};
pub use verify::Signer;

#[cfg(test)]
mod tests;
