//! Digests: of one file, as OPA signs it, and of a bundle's whole content.
//!
//! Source: `v1/bundle/hash.go` of OPA 1.22.4. Data files and the manifest are hashed in canonical JSON, in one stream;
//! every other file is hashed byte by byte.

use std::fmt;

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};

use super::json::Json;

/// A hash function that a signature may rest on, by OPA's name. MD5 and SHA-1 are left out: both have collisions that
/// a stranger can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// SHA-224
    Sha224,
    /// SHA-256, which `opa` and we write.
    Sha256,
    /// SHA-384
    Sha384,
    /// SHA-512
    Sha512,
    /// SHA-512-224
    Sha512224,
    /// SHA-512-256
    Sha512256,
}

impl HashAlgorithm {
    const ALL: [Self; 6] = [Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512, Self::Sha512224, Self::Sha512256];

    /// As it stands in a signature.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha224 => "SHA-224",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
            Self::Sha512224 => "SHA-512-224",
            Self::Sha512256 => "SHA-512-256",
        }
    }

    /// The function of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// The digest of a file: of its canonical JSON where it is `structured`, else of its bytes.
pub(super) fn of_file(bytes: &[u8], structured: Option<&Json<'_>>, algorithm: HashAlgorithm) -> Vec<u8> {
    match algorithm {
        HashAlgorithm::Sha224 => hash::<Sha224>(bytes, structured),
        HashAlgorithm::Sha256 => hash::<Sha256>(bytes, structured),
        HashAlgorithm::Sha384 => hash::<Sha384>(bytes, structured),
        HashAlgorithm::Sha512 => hash::<Sha512>(bytes, structured),
        HashAlgorithm::Sha512224 => hash::<Sha512_224>(bytes, structured),
        HashAlgorithm::Sha512256 => hash::<Sha512_256>(bytes, structured),
    }
}

fn hash<D: Digest>(bytes: &[u8], structured: Option<&Json<'_>>) -> Vec<u8> {
    let mut hasher = D::new();
    match structured {
        Some(value) => value.write(&mut |piece| hasher.update(piece)),
        None => hasher.update(bytes),
    }
    hasher.finalize().to_vec()
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a bundle holds, apart from its signature and from how it was packed: signed anew or compressed otherwise, it is
/// the same content. Written `sha256:<hex>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentDigest(String);

impl ContentDigest {
    /// Of each file's path and SHA-256 digest, in order of path.
    pub(super) fn of<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut hasher = Sha256::new();
        for (path, digest) in files {
            // The length keeps two lists apart that would read the same.
            hasher.update((path.len() as u64).to_be_bytes());
            hasher.update(path.as_bytes());
            hasher.update(digest);
        }
        Self(format!("sha256:{}", hex(&hasher.finalize())))
    }

    /// From its text, as a status or a file kept it.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let is_hex = digits.len() == 64 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::json;

    /// Vectors made with `opa` itself.
    #[test]
    fn canonical_digests_are_opas() {
        for (document, digest) in [
            (
                r#"{"b":1.0,"a":1e3,"c":[1,2.50,-0,1E+2],"\u00e9":"x"}"#,
                "83f4a6987b6e9217cbe1e657d614089177865a70d2efd1d2b51c64de1824948e",
            ),
            (r#"{"a":1,"a":2}"#, "7e8059f495589fcd981232cc11d00b00da3802c01d688fa1cf1f6bed6e5bb33c"),
            (
                r#"{"lim":{"p99_ms":20,"err":0.05},"svc":["b","a"],"u":"<é\u2028>"}"#,
                "4990b21d79821e0b0eb8fd846a3756a8206611a91c604139d1068ff566b9095f",
            ),
            ("[]", "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
            ("null", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
        ] {
            let value = json::parse(document.as_bytes(), 1_000).unwrap();
            assert_eq!(hex(&of_file(b"", Some(&value), HashAlgorithm::Sha256)), digest, "{document}");
        }
    }

    #[test]
    fn other_files_are_hashed_byte_by_byte_with_any_function_that_is_allowed() {
        for (algorithm, start) in [
            ("SHA-224", "23097d22"),
            ("SHA-256", "ba7816bf"),
            ("SHA-384", "cb00753f"),
            ("SHA-512", "ddaf35a1"),
            ("SHA-512-224", "4634270f"),
            ("SHA-512-256", "53048e26"),
        ] {
            let digest = hex(&of_file(b"abc", None, HashAlgorithm::parse(algorithm).unwrap()));
            assert!(digest.starts_with(start), "{algorithm}: {digest}");
        }
        assert!(["MD5", "SHA-1", "sha-256", ""].into_iter().all(|name| HashAlgorithm::parse(name).is_none()));
    }

    #[test]
    fn a_content_digest_is_read_back() {
        let digest = ContentDigest::of([("a", &[1_u8][..])].into_iter());
        assert_eq!(ContentDigest::parse(&digest.to_string()), Some(digest));
        assert_eq!(ContentDigest::parse("sha256:abc"), None);
    }
}
