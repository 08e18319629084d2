use super::*;
use crate::api::policy_source::{Active, PolicySourceSpec, PolicySourceStatus, Rejected};

fn part(name: &str, in_force: &str, history: &[&str], refused: bool) -> PartStatus {
    let active = Active { revision: in_force.into(), since: DateTime::UNIX_EPOCH, policies: 2 };
    let rejected = Rejected { revision: "bad".into(), message: "a.yaml: wrong".into(), ..Rejected::default() };
    PartStatus {
        part: name.into(),
        active: Some(active),
        rejected: refused.then_some(rejected),
        history: history.iter().map(|revision| (*revision).to_owned()).collect(),
        ..PartStatus::default()
    }
}

fn source(parts: Vec<PartStatus>) -> PolicySource {
    let spec = PolicySourceSpec { tenant: "lab".into(), config_map: None, git: None, accept: None, pins: Vec::new() };
    let mut source = PolicySource::new("lab", spec);
    source.status = Some(PolicySourceStatus { parts, ..PolicySourceStatus::default() });
    source
}

#[test]
fn the_part_is_the_only_one_or_the_only_refused_one_or_must_be_named() {
    let one = source(vec![part("a/x", "r2", &["r2", "r1"], false)]);
    assert_eq!(part_of(&one, None).unwrap().part, "a/x");
    let two = source(vec![part("a/x", "r2", &[], false), part("a/y", "r2", &[], true)]);
    assert_eq!(part_of(&two, None).unwrap().part, "a/y");
    assert_eq!(part_of(&two, Some("a/x")).unwrap().part, "a/x");
    let unclear = source(vec![part("a/x", "r2", &[], false), part("a/y", "r2", &[], false)]);
    let error = part_of(&unclear, None).unwrap_err().to_string();
    assert_eq!(error, "--part: several parts; expected one of a/x, a/y");
    assert!(part_of(&two, Some("a/z")).unwrap_err().to_string().starts_with("--part: `a/z`; expected one of"));
}

#[test]
fn the_revision_is_the_last_good_one_or_the_one_before() {
    assert_eq!(revision_of(&part("a/x", "r2", &["r2", "r1"], true), None).unwrap(), "r2");
    assert_eq!(revision_of(&part("a/x", "r2", &["r2", "r1"], false), None).unwrap(), "r1");
    assert_eq!(revision_of(&part("a/x", "r2", &["r2", "r1"], false), Some("r2")).unwrap(), "r2");
    let unknown = revision_of(&part("a/x", "r2", &["r2", "r1"], false), Some("r")).unwrap_err().to_string();
    assert_eq!(unknown, "--to: `r`; expected one of r2, r1");
    assert!(revision_of(&part("a/x", "r2", &["r2"], false), None).is_err());
}

#[test]
fn a_list_says_what_is_refused_and_why() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = Streams { out: &mut out, err: &mut err };
    write_source(&source(vec![part("a/x", "r2", &["r2"], true)]), &mut streams).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("  a/x: revision r2 with 2 policies since 1970-01-01"), "{text}");
    assert!(text.contains("    refused bad (): a.yaml: wrong"), "{text}");
}

#[test]
fn what_waits_for_a_person_can_be_accepted_and_nothing_else() {
    let mut waits = part("git", "a1", &["a1"], true);
    waits.rejected = Some(Rejected { revision: "b2c3".into(), reason: "NotDescendant".into(), ..Rejected::default() });
    let one = source(vec![waits]);
    assert_eq!(waiting(&one, None).unwrap(), "b2c3");
    assert_eq!(waiting(&one, Some("b2")).unwrap(), "b2c3");
    assert_eq!(waiting(&one, Some("ff")).unwrap_err().to_string(), "REVISION: `ff`; expected b2c3");
    let broken = source(vec![part("git", "a1", &["a1"], true)]);
    assert!(waiting(&broken, None).unwrap_err().to_string().contains("no revision of lab waits"));
}
