use super::{Exit, Streams, main};

/// Runs a command line in this process: exit, stdout, stderr.
pub(super) fn run(args: &[&str]) -> (Exit, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("tradeguard").chain(args.iter().copied());
    let exit = main(args, &mut Streams { out: &mut out, err: &mut err });
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn help_and_version_are_answers() {
    for args in [&["--help"][..], &["--version"], &["crd", "print", "--help"]] {
        let (exit, out, err) = run(args);
        assert_eq!((exit, err.as_str()), (Exit::Ok, ""), "{args:?}");
        assert!(!out.is_empty());
    }
}

#[test]
fn wrong_usage_is_exit_two_on_stderr() {
    for args in [&[][..], &["nothing"], &["crd"], &["crd", "print", "--nothing"]] {
        let (exit, out, err) = run(args);
        assert_eq!((exit, out.as_str()), (Exit::Usage, ""), "{args:?}");
        assert!(err.contains("Usage"), "{args:?}: {err}");
    }
    assert_eq!(Exit::Usage.code(), 2);
}

#[test]
fn the_definitions_are_printed_as_documents() {
    let (exit, out, _) = run(&["crd", "print"]);
    assert_eq!(exit, Exit::Ok);
    let documents = crate::api::documents::parse_documents("crd print", out.as_bytes()).unwrap();
    assert!(documents.len() >= 4);
    assert!(documents.iter().all(|document| document["kind"] == "CustomResourceDefinition"));
}
