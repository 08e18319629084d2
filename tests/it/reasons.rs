//! docs/reasons.md lists every reason.

use std::fmt::Write as _;
use std::path::Path;

use tradeguard::model::reason::Reason;

/// `UPDATE_GOLDEN=1 cargo test` writes the list anew.
#[test]
fn docs_list_every_reason_with_its_meaning_and_what_to_do() {
    let mut table = String::from("| reason | what it means | what to do |\n|---|---|---|\n");
    for reason in Reason::ALL {
        let (meaning, remedy) = (reason.meaning().trim(), reason.remedy());
        assert!(!meaning.contains('|') && !remedy.contains('|'), "{reason} would break the table");
        writeln!(table, "| `{reason}` | {meaning} | {remedy} |").expect("writing to a String");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reasons.md");
    let text = std::fs::read_to_string(&path).expect("docs/reasons.md is there");
    let start = text.find("| reason |").expect("it has a table");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{}{table}", &text[..start])).expect("docs are writable");
        return;
    }
    assert_eq!(&text[start..], table, "docs/reasons.md is not current: run again with UPDATE_GOLDEN=1");
}
