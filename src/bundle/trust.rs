//! Whom a source trusts.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::algorithm::Algorithm;
use super::key::{KeyError, PublicKey};
use super::refusal::{Refusal, shown};

/// One key that signatures are taken from.
#[derive(Clone, Debug)]
pub struct TrustedKey {
    id: String,
    key: PublicKey,
    not_after: Option<DateTime<Utc>>,
    is_revoked: bool,
}

impl TrustedKey {
    /// A public key in PEM under an id, which signatures name as `kid`. It must be a key for `algorithm`.
    pub fn from_pem(id: impl Into<String>, algorithm: Algorithm, pem: &str) -> Result<Self, KeyError> {
        let key = PublicKey::from_pem(pem)?;
        if key.algorithm() != algorithm {
            return Err(KeyError::Algorithm { found: key.algorithm(), expected: algorithm });
        }
        Ok(Self::of(id, key))
    }

    /// A key that was read before.
    pub fn of(id: impl Into<String>, key: PublicKey) -> Self {
        Self { id: id.into(), key, not_after: None, is_revoked: false }
    }

    /// In force until then, judged when a bundle arrives: one that was accepted stays.
    pub fn until(mut self, not_after: DateTime<Utc>) -> Self {
        self.not_after = Some(not_after);
        self
    }

    /// Nothing signed by it is taken any more.
    pub fn revoked(mut self) -> Self {
        self.is_revoked = true;
        self
    }
}

/// Whom a source trusts, and for what. Any number of keys may be in force at once: a new one is added, bundles are
/// signed by it, then the old one is taken away.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: BTreeMap<String, TrustedKey>,
    requires_signature: bool,
    takes_shared_secrets: bool,
    scope: String,
    only_key: Option<String>,
}

impl Trust {
    /// Takes signed bundles only, by these keys (a later one replaces an earlier of the same id) and of the empty scope.
    /// Without keys it takes nothing.
    pub fn signed_by(keys: impl IntoIterator<Item = TrustedKey>) -> Self {
        let keys = keys.into_iter().map(|key| (key.id.clone(), key)).collect();
        Self { keys, requires_signature: true, ..Self::default() }
    }

    /// Takes unsigned bundles too; one that is signed must still be signed well. A switch of its own: neither missing
    /// keys nor a missing signature file turn it.
    pub fn or_unsigned(mut self) -> Self {
        self.requires_signature = false;
        self
    }

    /// Takes HS256, whose keys are shared secrets.
    pub fn with_shared_secrets(mut self) -> Self {
        self.takes_shared_secrets = true;
        self
    }

    /// Takes what was signed for this scope, and nothing else.
    pub fn for_scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Checks with this key whatever id the signature names, as OPA's `keyid` does.
    pub fn by_key(mut self, id: impl Into<String>) -> Self {
        self.only_key = Some(id.into());
        self
    }

    pub(super) fn requires_signature(&self) -> bool {
        self.requires_signature
    }

    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    /// The key for a signature that names `named`, in force at `now`. Revocation goes before expiry: it says more.
    pub(super) fn key_at(&self, named: Option<&str>, now: DateTime<Utc>) -> Result<(&str, &PublicKey), Refusal> {
        let id = self.only_key.as_deref().or(named).unwrap_or_default();
        let Some(trusted) = self.keys.get(id) else {
            let known = self.keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            return Err(Refusal::KeyUnknown { key: shown(id), known });
        };
        let key = trusted.id.clone();
        if trusted.is_revoked {
            return Err(Refusal::KeyRevoked { key });
        }
        if let Some(not_after) = trusted.not_after.filter(|not_after| now > *not_after) {
            return Err(Refusal::KeyExpired { key, not_after });
        }
        let algorithm = trusted.key.algorithm();
        if algorithm == Algorithm::Hs256 && !self.takes_shared_secrets {
            return Err(Refusal::SharedSecret { key, algorithm });
        }
        Ok((&trusted.id, &trusted.key))
    }
}
