//! Objects from YAML files: what is no file of ours is refused with the file's name and, where known, the line.
//!
//! Knows nothing of kinds; [`super::admission`] checks what was read.

use serde::de::DeserializeOwned;
mod positions;

use serde_json::Value;

use crate::model::problem::Problem;

pub use positions::{Place, Positions};

/// The largest file that is read, in bytes. A policy is a few hundred bytes; etcd takes 1.5 MB.
pub const LARGEST: usize = 1 << 20;

/// Every document of a YAML (or JSON) file; empty ones between separators are left out, a file without any is an
/// error. `path` is the name that errors carry.
pub fn parse_documents(path: &str, bytes: &[u8]) -> Result<Vec<Value>, Problem> {
    if bytes.len() > LARGEST {
        return Err(Problem::expected(path, format!("has {} bytes", bytes.len()), format!("at most {LARGEST}")));
    }
    let text = str::from_utf8(bytes).map_err(|error| {
        let line = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() + 1;
        Problem::expected(format!("{path}:{line}"), "is not UTF-8", "YAML in UTF-8")
    })?;
    let options = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column()));
        let path = format!("{path}{}", place.unwrap_or_default());
        Problem::at(path, one_line(&error.without_snippet().to_string()))
    })?;
    if documents.is_empty() {
        return Err(Problem::expected(path, "is empty", "a YAML document"));
    }
    Ok(documents)
}

/// The one document of a YAML (or JSON) file.
pub fn parse_document(path: &str, bytes: &[u8]) -> Result<Value, Problem> {
    let mut documents = parse_documents(path, bytes)?;
    match documents.pop() {
        Some(document) if documents.is_empty() => Ok(document),
        _ => Err(Problem::expected(path, format!("has {} documents", documents.len() + 1), "one")),
    }
}

/// Reads what a document of the file `path` is meant to be; a value of the wrong type is named by its field.
pub(crate) fn read<T: DeserializeOwned>(path: &str, document: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let field = error.path().to_string();
        let message = error.into_inner().to_string();
        Problem::at(if field == "." { path.to_owned() } else { format!("{path}: {field}") }, message)
    })
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        parse_documents("p.yaml", bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused_by_name_and_line() {
        assert_eq!(refused(b""), "p.yaml: is empty; expected a YAML document");
        assert_eq!(refused(b"# only a comment\n---\n"), "p.yaml: is empty; expected a YAML document");
        assert_eq!(refused(&vec![b'a'; 10_000_000]), "p.yaml: has 10000000 bytes; expected at most 1048576");
        assert_eq!(refused(b"a: 1\nb: \xff\n"), "p.yaml:2: is not UTF-8; expected YAML in UTF-8");
        let syntax = refused(b"a: 1\nb: [1, 2\nc: 3\n");
        assert!(syntax.starts_with("p.yaml:"), "{syntax}");
        let twice = refused(b"a: 1\nb: 2\na: 3\n");
        assert!(twice.starts_with("p.yaml:3:1: ") && twice.contains("duplicate"), "{twice}");
    }

    #[test]
    fn anchors_that_would_fill_the_memory_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..8 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.extend([format!("a{level}: &a{level} [{before}]\n")]);
        }
        assert!(refused(bomb.as_bytes()).starts_with("p.yaml:"));
    }

    #[test]
    fn several_documents_are_read_in_order_and_refused_where_one_is_meant() {
        let file = b"---\na: 1\n---\n# nothing\n---\na: 2\n";
        let documents = parse_documents("p.yaml", file).unwrap();
        assert_eq!(documents, [serde_json::json!({"a": 1}), serde_json::json!({"a": 2})]);
        let error = parse_document("p.yaml", file).unwrap_err();
        assert_eq!(error.to_string(), "p.yaml: has 2 documents; expected one");
    }
}
