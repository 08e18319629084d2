//! What a file of a bundle is, by its name.
//!
//! Source: the table of files in OPA's bundle documentation, and for its edges `v1/bundle/bundle.go` of OPA 1.22.4.

use super::path;

/// The name under which the manifest is written.
pub const MANIFEST: &str = ".manifest";
/// The name of the signature file.
pub const SIGNATURES: &str = ".signatures.json";

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A Rego module.
    Module,
    /// JSON data for the directory's path.
    JsonData,
    /// YAML data for the directory's path.
    YamlData,
    /// The JSON manifest.
    Manifest,
    /// The signature.
    Signatures,
    /// Something that OPA would run or apply and that we cannot: with what it is.
    Unsupported(&'static str),
    /// A file without meaning to OPA.
    Plain,
}

impl FileKind {
    /// By the file's path in the bundle.
    pub fn of(path: &str) -> Self {
        let base = path::base(path);
        match base {
            "data.json" => Self::JsonData,
            "data.yaml" | "data.yml" => Self::YamlData,
            SIGNATURES => Self::Signatures,
            "policy.wasm" => Self::Unsupported("compiled WebAssembly"),
            "plan.json" | "plan.pb" => Self::Unsupported("a compiled plan"),
            "patch.json" => Self::Unsupported("a delta, which no signature covers"),
            _ if ends_with(base, ".rego") => Self::Module,
            _ if ends_with(base, ".manifest.pb") => Self::Unsupported("a protobuf manifest"),
            _ if ends_with(base, MANIFEST) => Self::Manifest,
            _ => Self::Plain,
        }
    }

    /// Whether its digest is that of its canonical JSON. A `.manifest` with something before the dot is read as the
    /// manifest and still hashed byte by byte, as in OPA.
    pub(super) fn is_structured(self, path: &str) -> bool {
        match self {
            Self::JsonData | Self::YamlData => true,
            Self::Manifest => path::base(path) == MANIFEST,
            _ => false,
        }
    }
}

/// Whether a module holds tests, by the name that `opa test` and people go by.
pub fn is_test(path: &str) -> bool {
    ends_with(path, "_test.rego")
}

/// Case matters, as in OPA: `A.REGO` is no module.
fn ends_with(text: &str, ending: &str) -> bool {
    text.as_bytes().ends_with(ending.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_opa_would_make_of_a_file() {
        for (name, kind) in [
            ("a/b.rego", FileKind::Module),
            (".rego", FileKind::Module),
            ("a/data.json", FileKind::JsonData),
            ("data.yml", FileKind::YamlData),
            ("a/data.yaml", FileKind::YamlData),
            ("mydata.json", FileKind::Plain),
            ("other.yaml", FileKind::Plain),
            (".manifest", FileKind::Manifest),
            ("sub/.manifest", FileKind::Manifest),
            ("foo.manifest", FileKind::Manifest),
            (".signatures.json", FileKind::Signatures),
            ("a/.signatures.json", FileKind::Signatures),
            ("my.signatures.json", FileKind::Plain),
        ] {
            assert_eq!(FileKind::of(name), kind, "{name}");
        }
        for name in ["policy.wasm", "a/policy.wasm", "plan.json", "plan.pb", "patch.json", ".manifest.pb"] {
            assert!(matches!(FileKind::of(name), FileKind::Unsupported(_)), "{name}");
        }
        assert!(FileKind::Manifest.is_structured("sub/.manifest") && !FileKind::Manifest.is_structured("foo.manifest"));
    }
}
