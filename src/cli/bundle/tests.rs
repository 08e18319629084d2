use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::Exit;
use crate::cli::tests::run;

/// A directory with rules, and commands run beside it.
struct Desk {
    directory: TempDir,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { directory: TempDir::new().unwrap() };
        desk.write("rules/.manifest", r#"{"revision": "r1", "roots": ["audit"], "metadata": {"sequence": 3}}"#);
        desk.write(
            "rules/audit/rules.rego",
            "package audit\n\nfindings contains \"x\" if input.n > data.audit.limit\n",
        );
        desk.write("rules/audit/rules_test.rego", "package audit_test\n");
        desk.write("rules/audit/data.json", r#"{"limit": 3}"#);
        desk.write("rules/README.md", "# rules");
        desk.write("rules/private.pem", "secret");
        desk.write("rules/.git/config", "x");
        desk
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs `tradeguard bundle …`; words that begin with `@` are names on this desk.
    fn run(&self, line: &str) -> (Exit, String, String) {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| word.strip_prefix('@').map_or_else(|| word.to_owned(), |name| self.path(name)))
            .collect();
        let args: Vec<&str> = std::iter::once("bundle").chain(words.iter().map(String::as_str)).collect();
        run(&args)
    }

    fn done(&self, line: &str) -> String {
        let (exit, out, err) = self.run(line);
        assert_eq!(exit, Exit::Ok, "{line}: {out}{err}");
        out
    }

    /// Wrong input: exit 2, with this in the error.
    fn refused(&self, line: &str, message: &str) {
        let (exit, out, err) = self.run(line);
        assert_eq!((exit, out.as_str()), (Exit::Usage, ""), "{line}: {err}");
        assert!(err.contains(message), "{line}: {err}");
    }

    /// A bundle that is signed by a fresh key.
    fn signed() -> Self {
        let desk = Self::new();
        desk.done("keygen -o @keys");
        desk.done("build @rules -o @b.tar.gz");
        desk.done("sign @b.tar.gz --key @keys/private.pem -o @s.tar.gz");
        desk
    }
}

#[test]
fn from_keygen_to_verify_a_bundle_goes_its_way() {
    for algorithm in ["EdDSA", "ES256"] {
        let desk = Desk::new();
        let made = desk.done(&format!("keygen --algorithm {algorithm} -o @keys --output json"));
        let made: Value = serde_json::from_str(&made).unwrap();
        desk.done("build @rules -o @b.tar.gz");
        let signed = desk.done("sign @b.tar.gz --key @keys/private.pem -o @s.tar.gz");
        assert!(signed.contains(made["keyId"].as_str().unwrap()), "{signed}");
        let verified = desk.done("verify @s.tar.gz --key @keys/public.pem --output json");
        let verified: Value = serde_json::from_str(&verified).unwrap();
        assert_eq!((&verified["verified"], &verified["sequence"]), (&true.into(), &3.into()));
        let text = desk.done("inspect @s.tar.gz");
        assert!(
            text.contains("roots      \"audit\"") && text.contains(&format!("signature  {algorithm} by key")),
            "{text}"
        );
    }
}

#[test]
fn a_private_key_is_its_owners_and_never_overwritten() {
    let desk = Desk::new();
    desk.done("keygen -o @keys");
    let mode = |name: &str| fs::metadata(desk.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keys/private.pem"), mode("keys/public.pem") & 0o600), (0o600, 0o600));
    let before = fs::read(desk.path("keys/private.pem")).unwrap();
    desk.refused("keygen -o @keys", "exists already");
    fs::remove_file(desk.path("keys/public.pem")).unwrap();
    desk.refused("keygen -o @keys", "exists already");
    assert_eq!(fs::read(desk.path("keys/private.pem")).unwrap(), before);
    assert_eq!(fs::read_dir(desk.path("keys")).unwrap().count(), 1, "nothing is left beside");
}

#[test]
fn building_twice_gives_the_same_bytes_and_leaves_keys_and_tests_out() {
    let desk = Desk::new();
    let (_, _, err) = desk.run("build @rules -o @one.tar.gz");
    assert_eq!(err, "left out: README.md\nleft out: audit/rules_test.rego\nleft out: private.pem\n");
    let copy = Desk::new();
    copy.done("build @rules -o @two.tar.gz");
    assert_eq!(fs::read(desk.path("one.tar.gz")).unwrap(), fs::read(copy.path("two.tar.gz")).unwrap());
    let inspected: Value = serde_json::from_str(&desk.done("inspect @one.tar.gz --output json")).unwrap();
    let paths: Vec<_> =
        inspected["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [".manifest", "audit/data.json", "audit/rules.rego"]);
}

#[test]
fn options_go_into_the_manifest() {
    let desk = Desk::new();
    desk.done("build @rules -o @b.tar.gz --revision r2 --sequence 9 --root audit/ --root other");
    let inspected: Value = serde_json::from_str(&desk.done("inspect @b.tar.gz --output json")).unwrap();
    assert_eq!((&inspected["revision"], &inspected["sequence"]), (&"r2".into(), &9.into()));
    assert_eq!(inspected["roots"], serde_json::json!(["audit", "other"]));
    fs::remove_file(desk.path("rules/.manifest")).unwrap();
    desk.refused("build @rules -o @b.tar.gz", "roots are absent");
    desk.done("build @rules -o @b.tar.gz --root audit");
}

#[test]
fn a_broken_bundle_is_not_built() {
    for (name, text, message) in [
        ("audit/bad.rego", "package audit\n\nx := ", "bad.rego:3:"),
        ("audit/bad.rego", "package audit\n\nx if http.send({})", "`http.send` is refused"),
        ("audit/bad.rego", "package other\n\nx := 1", "audit/bad.rego: brings data.other"),
        ("other/data.json", "{}", "other/data.json: brings data.other"),
        ("audit/more/data.json", "{", "audit/more/data.json:1:2"),
        ("audit/limit/data.json", "{}", "data.audit.limit is brought by another"),
        ("policy.wasm", "x", "compiled WebAssembly"),
        (".manifest", "[]", "a JSON object"),
        (".manifest", r#"{"roots":["a","a/b"]}"#, "overlap"),
        (".manifest", r#"{"roots":["audit"],"rego_version":0}"#, "Rego version 0"),
    ] {
        let desk = Desk::new();
        desk.write("b.tar.gz", "before");
        desk.write(&format!("rules/{name}"), text);
        desk.refused("build @rules -o @b.tar.gz", message);
        assert_eq!(fs::read(desk.path("b.tar.gz")).unwrap(), b"before", "{name}: what was there stays");
    }
    let desk = Desk::new();
    std::os::unix::fs::symlink("/etc/hostname", desk.path("rules/audit/x.json")).unwrap();
    desk.refused("build @rules -o @b.tar.gz", "is a link");
    desk.write("empty/README.md", "");
    desk.refused("build @empty -o @b.tar.gz --root a", "neither modules nor data");
    desk.refused("build @nothing -o @b.tar.gz", "cannot be read");
}

#[test]
fn a_bad_signature_is_exit_one_with_its_reason() {
    let desk = Desk::signed();
    desk.done("keygen -o @other");
    desk.done("keygen --algorithm ES256 -o @es");
    desk.done("sign @b.tar.gz --key @keys/private.pem --scope prod -o @scoped.tar.gz");
    for (line, reason) in [
        ("verify @b.tar.gz --key @keys/public.pem", "Unsigned"),
        ("verify @s.tar.gz --key @other/public.pem", "SignatureInvalid"),
        ("verify @s.tar.gz --key @es/public.pem", "AlgorithmMismatch"),
        ("verify @s.tar.gz --key @keys/public.pem --scope prod", "ScopeMismatch"),
        ("verify @scoped.tar.gz --key @keys/public.pem", "ScopeMismatch"),
    ] {
        let (exit, out, err) = desk.run(line);
        assert_eq!((exit, err.as_str()), (Exit::No, ""), "{line}");
        assert!(out.contains(&format!(": {reason}: ")), "{line}: {out}");
        let (exit, out, _) = desk.run(&format!("{line} --output json"));
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((exit, &answer["verified"], &answer["reason"]), (Exit::No, &false.into(), &reason.into()));
    }
    desk.done("verify @scoped.tar.gz --key @keys/public.pem --scope prod --algorithm EdDSA");
}

#[test]
fn wrong_input_is_exit_two() {
    let desk = Desk::signed();
    desk.write("text", "hello");
    desk.refused("verify @nothing --key @keys/public.pem", "cannot be read");
    desk.refused("verify @text --key @keys/public.pem", "no readable archive");
    desk.refused("verify @s.tar.gz --key @text", "is no PEM");
    desk.refused("verify @s.tar.gz --key @keys/private.pem", "holds a PRIVATE KEY; expected a PUBLIC KEY");
    desk.refused("verify @s.tar.gz --key @keys/public.pem --algorithm RS256", "expected one for RS256");
    desk.refused("sign @b.tar.gz --key @keys/public.pem -o @x", "holds a PUBLIC KEY");
    desk.refused("sign @text --key @keys/private.pem -o @x", "no readable archive");
    desk.refused("sign @b.tar.gz --key @keys/private.pem -o @no/such/place", "cannot be written");
    desk.refused("inspect @text", "no readable archive");
    for line in [
        "keygen -o @k --algorithm HS256",
        "keygen",
        "build @rules",
        "verify @s.tar.gz",
        "build @rules -o @x --sequence -1",
        "serve",
    ] {
        assert_eq!(desk.run(line).0, Exit::Usage, "{line}");
    }
    assert!(!Path::new(&desk.path("x")).exists());
}

#[test]
fn every_subcommand_has_help_with_examples() {
    for name in ["keygen", "build", "sign", "verify", "inspect"] {
        let (exit, out, _) = run(&["bundle", name, "--help"]);
        assert!(exit == Exit::Ok && out.contains(&format!("tradeguard bundle {name} ")), "{name}: {out}");
    }
}
