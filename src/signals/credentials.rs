//! Reads secrets from files, anew each time: they rotate without a restart.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use tokio::io::AsyncReadExt as _;

use super::options::Basic;

/// Longest secret that is read.
const MAX_BYTES: u64 = 64 * 1024;

/// The `authorization` header, if one is configured. The error names the file, never its contents.
pub(crate) async fn authorization(
    bearer_token_file: Option<&PathBuf>,
    basic: Option<&Basic>,
) -> Result<Option<HeaderValue>, String> {
    let (text, path) = if let Some(path) = bearer_token_file {
        (format!("Bearer {}", secret(path).await?), path)
    } else if let Some(basic) = basic {
        let password = secret(&basic.password_file).await?;
        (format!("Basic {}", base64(format!("{}:{password}", basic.username).as_bytes())), &basic.password_file)
    } else {
        return Ok(None);
    };
    let mut value =
        HeaderValue::try_from(text).map_err(|_| format!("{} does not fit into a header", path.display()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

async fn secret(path: &Path) -> Result<String, String> {
    let say = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut text = String::new();
    let file = tokio::fs::File::open(path).await.map_err(say)?;
    file.take(MAX_BYTES).read_to_string(&mut text).await.map_err(say)?;
    Ok(text.trim().to_owned())
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let symbol = char::from(ALPHABET[(bits >> shift & 63) as usize]);
            text.push(if index <= chunk.len() { symbol } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("user:pässword", "dXNlcjpww6Rzc3dvcmQ=")]
        {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[tokio::test]
    async fn secrets_are_read_anew_and_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for token in ["one", "two"] {
            std::fs::write(&path, format!("{token}\n")).unwrap();
            let header = authorization(Some(&path), None).await.unwrap().unwrap();
            assert_eq!(header, format!("Bearer {token}"));
            assert!(header.is_sensitive());
        }
        let basic = Basic { username: "foo".into(), password_file: path };
        assert_eq!(authorization(None, Some(&basic)).await.unwrap().unwrap(), "Basic Zm9vOnR3bw==");
        let missing = authorization(Some(&dir.path().join("missing")), None).await.unwrap_err();
        assert!(missing.contains("missing"), "{missing}");
    }
}
