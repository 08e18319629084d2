//! A ConfigMap as one part of a source.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::snapshot::Texts;
use crate::api::any_policy;

/// Digits of a digest that name a revision; as many as Git shows.
const REVISION_DIGITS: usize = 12;

/// A ConfigMap's texts as they are now. `now` bounds the time of its last change.
pub(crate) fn texts(config_map: &ConfigMap, now: DateTime<Utc>) -> Texts {
    let content = Content { data: config_map.data.clone(), binary_data: config_map.binary_data.clone() };
    let files = files(content);
    let changed_at = any_policy::written_at(&config_map.metadata, &["f:data", "f:binaryData"], now);
    Texts { revision: revision(&files), changed_at, files }
}

/// What a ConfigMap holds, in the fields that it has for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Content {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_data: Option<BTreeMap<String, ByteString>>,
}

/// The files: `data` and `binaryData` alike, which share their names.
pub(crate) fn files(content: Content) -> BTreeMap<String, Vec<u8>> {
    let data = content.data.into_iter().flatten().map(|(name, text)| (name, text.into_bytes()));
    let binary = content.binary_data.into_iter().flatten().map(|(name, bytes)| (name, bytes.0));
    data.chain(binary).collect()
}

/// The way back from files, as JSON.
pub(crate) fn content(texts: &Texts) -> Value {
    let mut content = Content::default();
    for (name, bytes) in &texts.files {
        match String::from_utf8(bytes.clone()) {
            Ok(text) => drop(content.data.get_or_insert_default().insert(name.clone(), text)),
            Err(error) => {
                let bytes = ByteString(error.into_bytes());
                content.binary_data.get_or_insert_default().insert(name.clone(), bytes);
            }
        }
    }
    serde_json::to_value(content).expect("texts and base64 are plain data")
}

/// The name of a content: the first digits of the SHA-256 of names and texts, each behind its length.
pub(crate) fn revision(files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut digest = Sha256::new();
    for (name, bytes) in files {
        for part in [name.as_bytes(), bytes] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    let mut digits: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(REVISION_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_the_content_and_nothing_else() {
        let files = |pairs: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
        };
        let one = revision(&files(&[("a", "bc")]));
        assert_eq!(one.len(), REVISION_DIGITS);
        assert_eq!(one, revision(&files(&[("a", "bc")])));
        assert_ne!(one, revision(&files(&[("ab", "c")])), "where a name ends is part of it");
    }

    #[test]
    fn content_comes_back_as_it_was() {
        let files: BTreeMap<String, Vec<u8>> =
            [("a.yaml", b"text".to_vec()), ("b.bin", vec![0xff, 0x00])].map(|(n, b)| (n.to_owned(), b)).into();
        let texts = Texts { revision: revision(&files), changed_at: DateTime::UNIX_EPOCH, files };
        let back = super::files(serde_json::from_value(content(&texts)).unwrap());
        assert_eq!(back, texts.files);
    }
}
