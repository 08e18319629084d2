//! The signature file: `.signatures.json` with one compact JWS over the digests of all files.
//!
//! Source: "signature format" in OPA's bundle documentation, `v1/bundle/verify.go` of OPA 1.22.4, RFC 7515. Exactly one
//! JWS; `plugin` is absent or `_default`; base64url without padding; `iat` is an integer. `iat`, `iss` and `exp` hold
//! nothing up, as in OPA: order and expiry are the sequence's and the key's.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::key::{KeyError, PrivateKey};
use super::refusal::{Refusal, shown};

/// The only plugin that OPA and we have.
const PLUGIN: &str = "_default";

/// A signature as it was written; nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// `alg` of the header.
    pub algorithm: String,
    /// The key's id: `kid` of the header, else `keyid` of the payload, which older tools write. None where neither says
    /// anything.
    pub key_id: Option<String>,
    /// For what it was signed.
    pub scope: String,
    /// Who signed, by his own words.
    pub issuer: Option<String>,
    /// When, in seconds since 1970, by his own words.
    pub issued_at: Option<i64>,
    /// The digests.
    pub files: Vec<SignedFile>,
    /// What was signed.
    pub(super) message: String,
    /// The bytes of the signature itself.
    pub(super) bytes: Vec<u8>,
}

/// The digest of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedFile {
    /// Its path; `opa` writes it without the leading slash.
    pub name: String,
    /// In hex.
    pub hash: String,
    /// OPA's name of the hash function.
    pub algorithm: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    signatures: Option<Vec<String>>,
    #[serde(default)]
    plugin: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that a reader must know; we know none.
    #[serde(default)]
    crit: Option<Value>,
    /// Whether the payload is base64; anything but true is another format.
    #[serde(default)]
    b64: Option<bool>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    files: Option<Vec<SignedFile>>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    keyid: Option<String>,
    #[serde(default)]
    iss: Option<String>,
    #[serde(default)]
    iat: Option<i64>,
}

impl Signature {
    /// From the text of the signature file.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let document: Document = json_of("the file", bytes, "{\"signatures\": [\"<JWS>\"]}")?;
        if let Some(plugin) = document.plugin.filter(|plugin| !plugin.is_empty() && plugin != PLUGIN) {
            return Err(malformed("plugin", plugin, PLUGIN));
        }
        let signatures = document.signatures.unwrap_or_default();
        let jws = match signatures.as_slice() {
            [] => return Err(Refusal::Stripped { found: ".signatures.json holds no signature" }),
            [jws] => jws,
            several => return Err(malformed("signatures", format!("{} items", several.len()), "exactly one")),
        };
        Self::of_jws(jws)
    }

    fn of_jws(jws: &str) -> Result<Self, Refusal> {
        let parts: Vec<&str> = jws.splitn(4, '.').collect();
        let &[header, payload, signature] = parts.as_slice() else {
            return Err(malformed("signatures[0]", format!("{} parts", parts.len()), "three parts joined by dots"));
        };
        let decoded = |field, part: &str| {
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|error| malformed(field, error.to_string(), "base64url without padding"))
        };
        let bytes = decoded("signature", signature)?;
        let head: Header = json_of("header", &decoded("header", header)?, "an object with `alg`")?;
        if head.crit.is_some() || head.b64 == Some(false) {
            return Err(malformed("header", "asks for an extension of JWS".to_owned(), "neither `crit` nor `b64`"));
        }
        let body: Payload = json_of("payload", &decoded("payload", payload)?, "an object with `files`")?;
        let named = [head.kid, body.keyid].into_iter().flatten().find(|id| !id.is_empty());
        Ok(Self {
            algorithm: head.alg,
            key_id: named,
            scope: body.scope.unwrap_or_default(),
            issuer: body.iss,
            issued_at: body.iat,
            files: body.files.unwrap_or_default(),
            message: format!("{header}.{payload}"),
            bytes,
        })
    }
}

/// The text of a signature file over these digests. Without a time in it, so that signing twice gives the same.
pub(super) fn written(
    key: &PrivateKey,
    key_id: Option<&str>,
    scope: &str,
    files: &[SignedFile],
) -> Result<Vec<u8>, KeyError> {
    let mut header = json!({"alg": key.algorithm().as_str(), "typ": "JWT"});
    if let (Some(id), Some(fields)) = (key_id, header.as_object_mut()) {
        fields.insert("kid".into(), json!(id));
    }
    let payload = json!({"files": files, "scope": scope});
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encoded(&header), encoded(&payload));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(message.as_bytes())?);
    let document = json!({"signatures": [format!("{message}.{signature}")], "plugin": PLUGIN});
    Ok(document.to_string().into_bytes())
}

fn malformed(field: &'static str, found: impl Into<String>, expected: &'static str) -> Refusal {
    let found: String = found.into();
    Refusal::Malformed { field, found: shown(&found), expected }
}

fn json_of<'a, T: Deserialize<'a>>(field: &'static str, bytes: &'a [u8], expected: &'static str) -> Result<T, Refusal> {
    // serde would take a list for an object too.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(malformed(field, "no object", expected));
    }
    serde_json::from_slice(bytes).map_err(|error| malformed(field, error.to_string(), expected))
}
