//! Signature algorithms, by their JOSE names (RFC 7518, RFC 8037).

use std::fmt;

/// How a bundle is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Ed25519. `opa` takes it on its command line since 1.8.0, and refuses it in a server's `keys`.
    EdDsa,
    /// RSA, PKCS#1 v1.5, SHA-256.
    Rs256,
    /// ECDSA on P-256, SHA-256.
    Es256,
    /// HMAC with SHA-256: whoever can check it can sign too.
    Hs256,
}

impl Algorithm {
    /// Those with a key pair.
    pub const ASYMMETRIC: [Self; 3] = [Self::EdDsa, Self::Rs256, Self::Es256];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::Hs256 => "HS256",
        }
    }

    /// By name; `Ed25519` is the newer name of the same (RFC 9864), which `opa` takes too.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "HS256" => Some(Self::Hs256),
            _ => None,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
