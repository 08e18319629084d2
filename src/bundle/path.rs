//! Names of files in an archive.

use super::limits::Limits;
use super::refusal::{Refusal, shown};

/// The file's path in the bundle: relative, by `/`, without `.` and `..`.
///
/// `opa build` writes `/data.json`, `tar czf b.tgz .` writes `./data.json`; both mean `data.json`. OPA takes names as
/// they are and cuts one leading `/` off before it looks a file up in the signature, so it finds the second spelling in
/// none; here all three are one file, which may then be there once.
pub(super) fn of(raw: &[u8], limits: &Limits) -> Result<String, Refusal> {
    let refused =
        |problem| Err(Refusal::Path { path: shown(&String::from_utf8_lossy(raw)), problem, limit: limits.path_bytes });
    if raw.len() > limits.path_bytes {
        return refused("is too long");
    }
    let Ok(text) = str::from_utf8(raw) else { return refused("is not UTF-8") };
    if text.chars().any(|c| c.is_control() || c == '\\') {
        return refused("holds a control character or a backslash");
    }
    let mut path = text.strip_prefix('/').unwrap_or(text);
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    if path.split('/').any(|segment| segment == "..") {
        return refused("leads out of the bundle");
    }
    if path.split('/').any(|segment| segment.is_empty() || segment == ".") {
        return refused("has an empty part");
    }
    Ok(path.to_owned())
}

/// The part after the last `/`.
pub(super) fn base(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, base)| base)
}

/// The part before the last `/`, empty at the top.
pub(super) fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::reason::Reason;

    #[test]
    fn opas_and_tars_spellings_of_a_name_are_one() {
        for name in ["a/b.rego", "/a/b.rego", "./a/b.rego", "/./a/b.rego", "././a/b.rego"] {
            assert_eq!(of(name.as_bytes(), &Limits::default()).unwrap(), "a/b.rego");
        }
        assert_eq!(of("a/..b/c..d".as_bytes(), &Limits::default()).unwrap(), "a/..b/c..d");
    }

    #[test]
    fn a_name_that_leads_out_of_the_bundle_is_refused() {
        for name in [
            "..",
            "../a",
            "a/../../b",
            "/../a",
            "./../a",
            "a/..",
            "a\\..\\b",
            "//a",
            "a//b",
            "a/./b",
            ".",
            "",
            "/",
            "a/",
            "a\0b",
            "a\nb",
        ] {
            let refusal = of(name.as_bytes(), &Limits::default()).expect_err(name);
            assert_eq!(refusal.reason(), Reason::PathEscape, "{name}");
        }
        assert!(of(b"a\xff", &Limits::default()).is_err());
        let long = of(&[b'a'; 600], &Limits::default()).unwrap_err().to_string();
        assert!(long.len() < 250 && long.contains("too long"), "{long}");
    }
}
