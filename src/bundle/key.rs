//! Keys: PEM in and out, signing and checking bytes.
//!
//! Public keys are SPKI (`PUBLIC KEY`, RFC 5280) or PKCS#1 (`RSA PUBLIC KEY`), private ones PKCS#8 (`PRIVATE KEY`,
//! RFC 5958), PKCS#1 (`RSA PRIVATE KEY`) or SEC 1 (`EC PRIVATE KEY`): what `openssl` writes and `opa` reads. A
//! certificate is refused rather than read for its key alone: its dates and issuer would mean nothing here.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use p256::elliptic_curve::Generate;
use p256::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, LineEnding};
use rsa::pkcs1::{DecodeRsaPrivateKey, DecodeRsaPublicKey};
use rsa::rand_core::CryptoRng;
use rsa::sha2::Sha256;
use rsa::signature::{SignatureEncoding, Signer, Verifier};
use rsa::traits::PublicKeyParts;
use sha2::Digest;

use super::algorithm::Algorithm;
use super::digest::hex;

/// RSA keys below this are within reach of factoring.
const SHORTEST_RSA_BITS: u32 = 2048;
/// What [`PrivateKey::generate`] makes; 128 bits of security, as the other two have.
const RSA_BITS: usize = 3072;

/// Why a key cannot be used; whoever configures or passes it must change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No PEM at all.
    #[error("is no PEM; expected `-----BEGIN {expected}-----`")]
    NotPem {
        /// The label that should stand there.
        expected: &'static str,
    },
    /// PEM of something else.
    #[error("holds a {found}; expected a {expected}")]
    Label {
        /// The label that stands there.
        found: String,
        /// The one that should.
        expected: &'static str,
    },
    /// No key of a kind that we know, or damaged.
    #[error("holds no key that can be read; expected Ed25519, RSA or ECDSA on P-256")]
    Unreadable,
    /// An RSA key that is too short.
    #[error("holds an RSA key of {bits} bits; expected at least {SHORTEST_RSA_BITS}")]
    TooShort {
        /// Its length.
        bits: u32,
    },
    /// A key of another kind than declared.
    #[error("holds a key for {found}; expected one for {expected}")]
    Algorithm {
        /// What the key is for.
        found: Algorithm,
        /// What was declared.
        expected: Algorithm,
    },
    /// A shared secret that anybody could guess.
    #[error("is a shared secret of {bytes} bytes; expected at least 32")]
    WeakSecret {
        /// Its length.
        bytes: usize,
    },
    /// A key that cannot be written or made.
    #[error("cannot be made: {0}")]
    Write(String),
}

/// The half that checks.
#[derive(Clone)]
pub enum PublicKey {
    /// Ed25519.
    Ed25519(ed25519_dalek::VerifyingKey),
    /// RSA.
    Rsa(rsa::PublicKey),
    /// ECDSA on P-256.
    P256(p256::PublicKey),
    /// A shared secret: both halves in one.
    Secret(Vec<u8>),
}

/// A key says what it is and not what it holds.
impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.algorithm())
    }
}

impl PublicKey {
    /// From PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        const EXPECTED: &str = "PUBLIC KEY";
        let pem = pem.trim();
        match label(pem, EXPECTED)? {
            EXPECTED => {
                if let Ok(key) = ed25519_dalek::VerifyingKey::from_public_key_pem(pem) {
                    return Ok(Self::Ed25519(key));
                }
                if let Ok(key) = p256::PublicKey::from_public_key_pem(pem) {
                    return Ok(Self::P256(key));
                }
                rsa::PublicKey::from_public_key_pem(pem).map_err(|_| KeyError::Unreadable).and_then(rsa_public)
            }
            "RSA PUBLIC KEY" => {
                rsa::PublicKey::from_pkcs1_pem(pem).map_err(|_| KeyError::Unreadable).and_then(rsa_public)
            }
            found => Err(KeyError::Label { found: found.to_owned(), expected: EXPECTED }),
        }
    }

    /// A shared secret for HS256. Every byte counts, a newline at the end of a file too, as in OPA.
    pub fn from_secret(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < 32 {
            return Err(KeyError::WeakSecret { bytes: secret.len() });
        }
        Ok(Self::Secret(secret.to_vec()))
    }

    /// What it is for.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::EdDsa,
            Self::Rsa(_) => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
            Self::Secret(_) => Algorithm::Hs256,
        }
    }

    /// As SPKI in PEM.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let pem = match self {
            Self::Ed25519(key) => key.to_public_key_pem(LineEnding::LF),
            Self::Rsa(key) => key.to_public_key_pem(LineEnding::LF),
            Self::P256(key) => key.to_public_key_pem(LineEnding::LF),
            Self::Secret(_) => return Err(KeyError::Write("a shared secret has no public half".into())),
        };
        pem.map_err(|error| KeyError::Write(error.to_string()))
    }

    /// A name that only this key has: the first 8 bytes of the SHA-256 of its SPKI, in hex.
    pub fn fingerprint(&self) -> Result<String, KeyError> {
        let der = match self {
            Self::Ed25519(key) => key.to_public_key_der(),
            Self::Rsa(key) => key.to_public_key_der(),
            Self::P256(key) => key.to_public_key_der(),
            Self::Secret(_) => return Err(KeyError::Write("a shared secret has no public half".into())),
        };
        let der = der.map_err(|error| KeyError::Write(error.to_string()))?;
        let digest = sha2::Sha256::digest(der.as_bytes());
        Ok(hex(digest.get(..8).unwrap_or_default()))
    }

    /// Whether `signature` is this key's over `message`.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            // Strict: refuses keys and signatures that more than one message would fit.
            Self::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
            Self::Rsa(key) => rsa::pkcs1v15::Signature::try_from(signature).is_ok_and(|signature| {
                rsa::pkcs1v15::VerifyingKey::<Sha256>::new(key.clone()).verify(message, &signature).is_ok()
            }),
            Self::P256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| p256::ecdsa::VerifyingKey::from(key).verify(message, &signature).is_ok()),
            Self::Secret(secret) => Hmac::<Sha256>::new_from_slice(secret).is_ok_and(|mut mac| {
                mac.update(message);
                mac.verify_slice(signature).is_ok()
            }),
        }
    }
}

fn rsa_public(key: rsa::PublicKey) -> Result<PublicKey, KeyError> {
    let bits = key.n().bit_width();
    if bits < SHORTEST_RSA_BITS {
        return Err(KeyError::TooShort { bits });
    }
    Ok(PublicKey::Rsa(key))
}

/// The half that signs.
pub enum PrivateKey {
    /// Ed25519.
    Ed25519(ed25519_dalek::SigningKey),
    /// RSA.
    Rsa(Box<rsa::PrivateKey>),
    /// ECDSA on P-256.
    P256(p256::SecretKey),
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.algorithm())
    }
}

impl PrivateKey {
    /// A new one. Shared secrets are not made here: they are no key pair.
    pub fn generate(algorithm: Algorithm, random: &mut impl CryptoRng) -> Result<Self, KeyError> {
        match algorithm {
            Algorithm::EdDsa => Ok(Self::Ed25519(ed25519_dalek::SigningKey::generate(random))),
            Algorithm::Es256 => Ok(Self::P256(p256::SecretKey::generate_from_rng(random))),
            Algorithm::Rs256 => rsa::PrivateKey::new(random, RSA_BITS)
                .map(|key| Self::Rsa(Box::new(key)))
                .map_err(|error| KeyError::Write(error.to_string())),
            Algorithm::Hs256 => Err(KeyError::Write("HS256 has no key pair".into())),
        }
    }

    /// From PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        const EXPECTED: &str = "PRIVATE KEY";
        let pem = pem.trim();
        match label(pem, EXPECTED)? {
            EXPECTED => {
                if let Ok(key) = ed25519_dalek::SigningKey::from_pkcs8_pem(pem) {
                    return Ok(Self::Ed25519(key));
                }
                if let Ok(key) = p256::SecretKey::from_pkcs8_pem(pem) {
                    return Ok(Self::P256(key));
                }
                rsa::PrivateKey::from_pkcs8_pem(pem).map_err(|_| KeyError::Unreadable).and_then(rsa_private)
            }
            "RSA PRIVATE KEY" => {
                rsa::PrivateKey::from_pkcs1_pem(pem).map_err(|_| KeyError::Unreadable).and_then(rsa_private)
            }
            "EC PRIVATE KEY" => p256::SecretKey::from_sec1_pem(pem).map(Self::P256).map_err(|_| KeyError::Unreadable),
            found => Err(KeyError::Label { found: found.to_owned(), expected: EXPECTED }),
        }
    }

    /// What it signs with.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::EdDsa,
            Self::Rsa(_) => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
        }
    }

    /// The half that checks.
    pub fn public(&self) -> PublicKey {
        match self {
            Self::Ed25519(key) => PublicKey::Ed25519(key.verifying_key()),
            Self::Rsa(key) => PublicKey::Rsa(key.to_public_key()),
            Self::P256(key) => PublicKey::P256(key.public_key()),
        }
    }

    /// As PKCS#8 in PEM.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let pem = match self {
            Self::Ed25519(key) => key.to_pkcs8_pem(LineEnding::LF),
            Self::Rsa(key) => key.to_pkcs8_pem(LineEnding::LF),
            Self::P256(key) => key.to_pkcs8_pem(LineEnding::LF),
        };
        // The copy is not wiped; it goes to a file anyway.
        pem.map(|pem| pem.as_str().to_owned()).map_err(|error| KeyError::Write(error.to_string()))
    }

    /// The signature as JOSE has it: 64 bytes for Ed25519 and P-256, as long as the key for RSA. The same key and
    /// message give the same signature (ECDSA by RFC 6979).
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let failed = |error: rsa::signature::Error| KeyError::Write(error.to_string());
        match self {
            Self::Ed25519(key) => Ok(key.sign(message).to_bytes().to_vec()),
            Self::Rsa(key) => {
                let key = rsa::pkcs1v15::SigningKey::<Sha256>::new((**key).clone());
                key.try_sign(message).map(|signature| signature.to_vec()).map_err(failed)
            }
            Self::P256(key) => {
                let key = p256::ecdsa::SigningKey::from(key);
                let signature: p256::ecdsa::Signature = key.try_sign(message).map_err(failed)?;
                Ok(signature.to_bytes().to_vec())
            }
        }
    }
}

fn rsa_private(key: rsa::PrivateKey) -> Result<PrivateKey, KeyError> {
    rsa_public(key.to_public_key()).map(|_| PrivateKey::Rsa(Box::new(key)))
}

/// What the first line of a PEM says it holds.
fn label<'a>(pem: &'a str, expected: &'static str) -> Result<&'a str, KeyError> {
    let first = pem.lines().next().unwrap_or_default();
    let label = first.strip_prefix("-----BEGIN ").and_then(|rest| rest.trim_end().strip_suffix("-----"));
    label.filter(|label| label.len() < 64).ok_or(KeyError::NotPem { expected })
}

#[cfg(test)]
mod tests;
