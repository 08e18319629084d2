//! `opa` and we on the same bundles: what one builds and signs, the other verifies and runs; what one refuses, so does
//! the other.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chrono::DateTime;
use serde_json::json;
use tradeguard::bundle::{
    Accepted, Algorithm, Bundle, Files, Limits, MANIFEST, PublicKey, Refusal, SIGNATURES, Trust, TrustedKey, archive,
    open,
};
use tradeguard::cli;
use tradeguard::model::reason::Reason;

use crate::support::parts;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bundles/compliance-audit");

/// A directory in which both programs work, with one key pair.
struct Bench {
    directory: PathBuf,
    algorithm: &'static str,
}

/// How a program ended, and everything that it wrote.
struct Ended {
    well: bool,
    text: String,
}

impl Bench {
    fn new(algorithm: &'static str) -> Self {
        let bench = Self { directory: parts::directory("bundles"), algorithm };
        bench.ours(&["keygen", "--algorithm", algorithm, "-o", "."]);
        bench
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.directory.join(name)).unwrap()
    }

    /// `tradeguard bundle …`, in this process; names are given as [`Self::path`] or `.` for the directory.
    fn try_ours(&self, args: &[&str]) -> (cli::Exit, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let here = self.path("");
        let args = args.iter().map(|arg| if *arg == "." { here.as_str() } else { *arg });
        let line: Vec<&str> = ["tradeguard", "bundle"].into_iter().chain(args).collect();
        let exit = cli::main(line, &mut cli::Streams { out: &mut out, err: &mut err });
        (exit, String::from_utf8([out, err].concat()).unwrap())
    }

    fn ours(&self, args: &[&str]) -> String {
        let (exit, text) = self.try_ours(args);
        assert_eq!(exit, cli::Exit::Ok, "{args:?}: {text}");
        text
    }

    /// `opa …` in the directory, with this on its standard input.
    fn try_opa(&self, args: &[&str], input: &str) -> Ended {
        let mut child = Command::new(parts::binary("opa"))
            .args(args)
            .current_dir(&self.directory)
            .env("OPA_DISABLE_TELEMETRY", "true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("opa starts");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ended { well: output.status.success(), text }
    }

    fn opa(&self, args: &[&str]) -> String {
        let ended = self.try_opa(args, "");
        assert!(ended.well, "opa {args:?}: {}", ended.text);
        ended.text
    }

    /// `opa build`, which verifies what it reads.
    fn opa_verifies(&self, bundle: &str) -> Ended {
        let key = ["--verification-key", "public.pem", "--signing-alg", self.algorithm];
        self.try_opa(&[&["build", "--bundle", bundle, "-o", "again.tar.gz"], &key[..]].concat(), "")
    }

    fn opened(&self, bundle: &[u8]) -> Result<Bundle, Refusal> {
        let algorithm = Algorithm::parse(self.algorithm).unwrap();
        let pem = String::from_utf8(self.read("public.pem")).unwrap();
        let key = TrustedKey::from_pem("default", algorithm, &pem).unwrap();
        opened(bundle, &Trust::signed_by([key]))
    }

    /// What `opa sign` says of a directory of these files, packed with them.
    fn signed_by_opa(&self, files: &Files) -> Files {
        for (path, bytes) in files {
            self.write(&format!("signed/{path}"), bytes);
        }
        // It names files as they are given, so it must run where they lie.
        let inside = Self { directory: self.directory.join("signed"), algorithm: self.algorithm };
        inside.opa(&["sign", "--bundle", ".", "--signing-key", "../private.pem", "--signing-alg", self.algorithm]);
        let mut signed = files.clone();
        signed.insert(SIGNATURES.to_owned(), inside.read(SIGNATURES));
        signed
    }
}

fn opened(bundle: &[u8], trust: &Trust) -> Result<Bundle, Refusal> {
    let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
    open(bundle, trust, &Limits::default(), &Accepted::default(), now)
}

/// The bundle with one byte of this file changed.
fn changed(bundle: &[u8], file: &str) -> Vec<u8> {
    let mut files = archive::read(bundle, &Limits::default()).unwrap();
    let bytes = files.get_mut(file).unwrap_or_else(|| panic!("{file} is in the bundle"));
    let last = bytes.iter().rposition(u8::is_ascii_alphanumeric).unwrap();
    bytes[last] ^= 1;
    archive::write(&files).unwrap()
}

const ALGORITHMS: [&str; 3] = ["EdDSA", "RS256", "ES256"];
const QUERY: &str = "data.compliance.audit.limits.ceilings.p999.value";

#[test]
fn opa_verifies_and_runs_what_we_build_and_sign() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(algorithm);
        let (plain, signed) = (bench.path("plain.tar.gz"), bench.path("signed.tar.gz"));
        bench.ours(&["build", EXAMPLE, "-o", &plain]);
        bench.ours(&["sign", &plain, "--key", &bench.path("private.pem"), "-o", &signed]);
        bench.ours(&["verify", &signed, "--key", &bench.path("public.pem"), "--algorithm", algorithm]);

        let verified = bench.opa_verifies("signed.tar.gz");
        assert!(verified.well, "{algorithm}: {}", verified.text);
        let answer = bench.opa(&["eval", "--format", "raw", "--bundle", "plain.tar.gz", QUERY]);
        assert_eq!(answer.trim(), "5.0");
        let key = ["--verification-key", "public.pem", "--signing-alg", algorithm];
        let run = bench.try_opa(&[&["run", "--bundle", "signed.tar.gz"], &key[..]].concat(), QUERY);
        assert!(run.well && run.text.contains("5.0"), "{algorithm}: {}", run.text);

        for file in ["compliance/audit/service_levels.rego", "compliance/audit/limits/data.json", MANIFEST] {
            let forged = changed(&bench.read("signed.tar.gz"), file);
            bench.write("forged.tar.gz", &forged);
            let refused = bench.opa_verifies("forged.tar.gz");
            assert!(!refused.well && refused.text.contains("digest mismatch"), "{algorithm}: {}", refused.text);
            assert_eq!(bench.opened(&forged).unwrap_err().reason(), Reason::KeyUnknown, "it names its own key");
            let (exit, text) =
                bench.try_ours(&["verify", &bench.path("forged.tar.gz"), "--key", &bench.path("public.pem")]);
            assert_eq!(exit, cli::Exit::No, "{text}");
            assert!(text.contains("FileChanged"), "{text}");
        }
    }
}

/// As an OPA server does it: keys by id from its configuration, the bundle from where it was published.
#[test]
fn opas_configuration_takes_our_bundles_by_key_id_and_scope_and_knows_no_ed25519() {
    let exec = |bench: &Bench, algorithm: &str, scope: &str| {
        let pem = String::from_utf8(bench.read("public.pem")).unwrap();
        let resource = format!("file://{}", bench.path("signed.tar.gz"));
        let config = json!({
            "bundles": {"audit": {"resource": resource, "signing": {"scope": scope}}},
            "keys": {"audit-1": {"algorithm": algorithm, "key": pem}},
        });
        bench.write("config.json", config.to_string().as_bytes());
        bench.write("input.json", br#"{"readings": {"p99": {"value": 2, "unit": "s"}}}"#);
        let decision = ["--decision", "compliance/audit/service_levels/severity", "--timeout", "20s"];
        bench.try_opa(&[&["exec", "--config-file", "config.json"], &decision[..], &["input.json"]].concat(), "")
    };
    for algorithm in ALGORITHMS {
        let bench = Bench::new(algorithm);
        let (plain, signed) = (bench.path("plain.tar.gz"), bench.path("signed.tar.gz"));
        bench.ours(&["build", EXAMPLE, "-o", &plain]);
        let key = bench.path("private.pem");
        bench.ours(&["sign", &plain, "--key", &key, "--key-id", "audit-1", "--scope", "production", "-o", &signed]);
        let taken = exec(&bench, algorithm, "production");
        if algorithm == "EdDSA" {
            assert!(!taken.well && taken.text.contains("unsupported algorithm"), "{}", taken.text);
            continue;
        }
        assert!(taken.well && taken.text.contains(r#""result": "critical""#), "{algorithm}: {}", taken.text);
        let other = exec(&bench, algorithm, "test");
        assert!(!other.well && other.text.contains("scope mismatch"), "{algorithm}: {}", other.text);
        bench.write("signed.tar.gz", &changed(&bench.read("signed.tar.gz"), "compliance/audit/limits/data.json"));
        let forged = exec(&bench, algorithm, "production");
        assert!(!forged.well && forged.text.contains("digest mismatch"), "{algorithm}: {}", forged.text);
    }
}

#[test]
fn we_verify_what_opa_builds_and_signs() {
    for algorithm in ALGORITHMS {
        let bench = Bench::new(algorithm);
        let key = ["--signing-key", "private.pem", "--signing-alg", algorithm];
        bench.opa(&[&["build", "--bundle", EXAMPLE, "-o", "opa.tar.gz"], &key[..]].concat());
        let bytes = bench.read("opa.tar.gz");
        let bundle = bench.opened(&bytes).unwrap();
        assert_eq!(bundle.manifest().sequence().unwrap().0, 1);
        assert_eq!(bundle.manifest().revision(), "2026-12-01");
        assert!(bundle.data().contains(r#""p999":{"unit":"s","value":5.0}"#), "{}", bundle.data());
        let modules: Vec<String> = bundle.modules().map(|(path, _)| path.to_owned()).collect();
        assert!(modules.iter().any(|path| path.ends_with("/service_levels.rego")), "{modules:?}");

        let forged = changed(&bytes, &modules[0]);
        assert_eq!(bench.opened(&forged).unwrap_err().reason(), Reason::FileChanged);
        bench.write("forged.tar.gz", &forged);
        assert!(!bench.opa_verifies("forged.tar.gz").well);

        // And what we sign anew, opa verifies.
        let again = bench.path("resigned.tar.gz");
        bench.ours(&["sign", &bench.path("opa.tar.gz"), "--key", &bench.path("private.pem"), "-o", &again]);
        let verified = bench.opa_verifies("resigned.tar.gz");
        assert!(verified.well, "{algorithm}: {}", verified.text);
    }
}

#[test]
fn a_shared_secret_of_opas_is_taken_only_where_the_source_says_so() {
    let bench = Bench::new("ES256");
    let secret = "0123456789abcdef0123456789abcdef";
    let key = ["--signing-key", secret, "--signing-alg", "HS256"];
    bench.opa(&[&["build", "--bundle", EXAMPLE, "-o", "hs.tar.gz"], &key[..]].concat());
    let bytes = bench.read("hs.tar.gz");
    let trust = || Trust::signed_by([TrustedKey::of("default", PublicKey::from_secret(secret.as_bytes()).unwrap())]);
    assert_eq!(opened(&bytes, &trust()).unwrap_err().reason(), Reason::SharedSecret);
    assert!(opened(&bytes, &trust().with_shared_secrets()).is_ok());
}

/// Data whose digest depends on how it is spelled, parsed and written again.
fn documents() -> Files {
    let mut files = Files::from([(MANIFEST.to_owned(), br#"{"roots": [""], "revision": "<&>\u2028"}"#.to_vec())]);
    let json = [
        r#"{"b":1.0,"a":1e3,"c":[1,2.50,-0,1E+2],"\u00e9":"x"}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"lim":{"p99_ms":20,"err":0.05},"svc":["b","a"],"u":"<é\u2028>"}"#,
        r#"{"k":"\b\f\n\r\t\u0001\u001f\u007f\/\"\\", "":[], "z":{}}"#,
        r#"{"s":"\ud83d\ude00 \ud83d \ude00", "big":123456789012345678901234567890, "e":1e400}"#,
        "{\"line\":\"\u{2028}\u{2029}\u{feff}\", \"é\":1, \"e\\u0301\":2, \"Z\":3, \"a\":4, \"\u{10000}\":5, \"\u{ffff}\":6}",
    ];
    let yaml = [
        "a: 1\nb: 1.0\nc: [yes, no, on, off, true, ~, null, y]\nd: 2023-01-01\ne: 1e3\nf: 0x1F\ng: 0o17\n",
        "a: 1\na: 2\n",
        "a: 1.5\nb: -0.0\nc: 1e21\nd: 1e-7\ne: 0.000001\nf: 123456789012345678\ng: 18446744073709551615\n",
        "a: 1\n---\nb: 2\n",
        "base: &b {x: 1}\nd:\n  <<: *b\n  y: 2\n",
        "1: x\ntrue: y\n1.5: z\n",
        "t: |\n  two\n  lines\nf: >\n  folded\n  text\nq: \"\\u2028\"\ns: 'it''s'\n",
        "o: [017, -017, 08, 018, 0x_1, 1_000, 0b11, +1, .5, 1., 12e03, -0, 0.10, 1e15]\n",
        "n: [NULL, TRUE, False, 1:30, 2001-12-14t21:59:43.10-05:00, !!binary aGk=, =, !!str 1, !custom x, on, '']\n",
        "{\"b\": 1.0, \"a\": 1e3}",
        "\u{feff}a: b\n",
    ];
    for (index, text) in json.iter().enumerate() {
        files.insert(format!("j{index}/data.json"), text.as_bytes().to_vec());
    }
    for (index, text) in yaml.iter().enumerate() {
        files.insert(format!("y{index}/data.yaml"), text.as_bytes().to_vec());
    }
    let mut random = fastrand::Rng::with_seed(4);
    for index in 0..200 {
        let text = format!("{{\"v\": {}}}", value(&mut random, 4));
        files.insert(format!("r{index}/data.json"), text.into_bytes());
    }
    // Not structured: hashed byte by byte.
    for name in ["other.json", "x/notes.txt", "x/my.yaml"] {
        files.insert(name.to_owned(), b"{ \"b\": 1,  \"a\": 2 }\r\n".to_vec());
    }
    files.insert("empty".to_owned(), Vec::new());
    files
}

fn value(random: &mut fastrand::Rng, depth: u32) -> String {
    let text = |random: &mut fastrand::Rng| {
        let any: String = (0..random.usize(0..6)).map(|_| random.char('\0'..='\u{2fff}')).collect();
        serde_json::Value::String(any).to_string()
    };
    match random.u32(0..if depth == 0 { 5 } else { 7 }) {
        0 => "null".into(),
        1 => random.bool().to_string(),
        2 => random.i64(..).to_string(),
        3 => format!("{}.{}e{}", random.i32(-99..99), random.u32(0..1000), random.i32(-400..400)),
        4 => text(random),
        5 => {
            let items: Vec<String> = (0..random.usize(0..4)).map(|_| value(random, depth - 1)).collect();
            format!("[{} ]", items.join(" , "))
        }
        _ => {
            let count = random.usize(0..4);
            let fields: Vec<String> =
                (0..count).map(|_| format!("{}: {}", text(random), value(random, depth - 1))).collect();
            format!("{{{}}}", fields.join(","))
        }
    }
}

#[test]
fn both_hash_documents_alike_however_they_are_spelled() {
    let bench = Bench::new("ES256");
    let files = documents();
    let by_opa = archive::write(&bench.signed_by_opa(&files)).unwrap();
    let pem = String::from_utf8(bench.read("public.pem")).unwrap();
    let key = || TrustedKey::of("k", PublicKey::from_pem(&pem).unwrap());
    let bundle = opened(&by_opa, &Trust::signed_by([key()]).by_key("k")).unwrap();
    assert_eq!(bundle.files(), &files);

    bench.write("plain.tar.gz", &archive::write(&files).unwrap());
    let signed = bench.path("ours.tar.gz");
    bench.ours(&["sign", &bench.path("plain.tar.gz"), "--key", &bench.path("private.pem"), "-o", &signed]);
    let verified = bench.opa_verifies("ours.tar.gz");
    assert!(verified.well, "{}", verified.text);
}

#[test]
fn opa_reads_the_data_that_we_read() {
    let bench = Bench::new("ES256");
    let mut files = documents();
    // A number that no machine type holds is no number to evaluate with.
    files.remove("j4/data.json");
    files.retain(|path, _| !path.starts_with('r'));
    let bytes = archive::write(&files).unwrap();
    bench.write("plain.tar.gz", &bytes);
    let theirs: serde_json::Value =
        serde_json::from_str(&bench.opa(&["eval", "--format", "raw", "--bundle", "plain.tar.gz", "data"])).unwrap();
    let ours: serde_json::Value =
        serde_json::from_str(opened(&bytes, &Trust::default().or_unsigned()).unwrap().data()).unwrap();
    assert_eq!(crate::rego_cases::numbers_as_floats(ours), crate::rego_cases::numbers_as_floats(theirs));
}

#[test]
fn both_refuse_a_missing_an_extra_and_a_duplicate_file_and_a_stripped_signature() {
    let bench = Bench::new("ES256");
    let signed = bench.signed_by_opa(&Files::from([
        (MANIFEST.to_owned(), br#"{"revision": "", "roots": ["a"]}"#.to_vec()),
        ("a/data.json".to_owned(), b"{\"x\": 1}".to_vec()),
        ("a/b.rego".to_owned(), b"package a\n".to_vec()),
    ]));
    let mut missing = signed.clone();
    missing.remove("a/b.rego");
    let mut extra = signed.clone();
    extra.insert("a/c.rego".to_owned(), b"package a\n".to_vec());
    let mut stripped = signed.clone();
    stripped.remove(SIGNATURES);
    let pem = String::from_utf8(bench.read("public.pem")).unwrap();
    let trust = || Trust::signed_by([TrustedKey::of("k", PublicKey::from_pem(&pem).unwrap())]).by_key("k");
    assert!(opened(&archive::write(&signed).unwrap(), &trust()).is_ok());
    for (files, reason) in
        [(missing, Reason::FileMissing), (extra, Reason::FileNotSigned), (stripped, Reason::Unsigned)]
    {
        let bytes = archive::write(&files).unwrap();
        bench.write("bad.tar.gz", &bytes);
        let theirs = bench.opa_verifies("bad.tar.gz");
        assert!(!theirs.well, "{reason}: {}", theirs.text);
        assert_eq!(opened(&bytes, &trust()).unwrap_err().reason(), reason);
    }
}

#[test]
fn the_example_is_clean_and_its_own_tests_pass() {
    let bench = Bench::new("ES256");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schemas/input.schema.json");
    bench.opa(&["check", "--strict", "--v1-compatible", "--schema", schema, EXAMPLE]);
    assert_eq!(bench.opa(&["fmt", "--list", EXAMPLE]), "");
    let report: serde_json::Value =
        serde_json::from_str(&bench.opa(&["test", "--bundle", "--format", "json", EXAMPLE])).unwrap();
    let tests = report.as_array().unwrap();
    assert!(tests.len() >= 7 && tests.iter().all(|test| test.get("fail").is_none()), "{report}");
    assert!(Path::new(EXAMPLE).join("public.pem").is_file());
}

#[test]
fn the_examples_readme_can_be_followed_to_the_letter() {
    let directory = parts::directory("readme");
    std::os::unix::fs::symlink(Path::new(EXAMPLE).parent().unwrap(), directory.join("bundles")).unwrap();
    let readme = fs::read_to_string(Path::new(EXAMPLE).join("README.md")).unwrap();
    let blocks = readme.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(lines.len() >= 8, "{lines:?}");
    for line in lines {
        let (program, rest) = line.split_once(' ').unwrap();
        let program = match program {
            "tradeguard" => PathBuf::from(env!("CARGO_BIN_EXE_tradeguard")),
            part => parts::binary(part),
        };
        let output = Command::new(program)
            .args(rest.split(' ').map(|word| word.trim_matches('\'')))
            .current_dir(&directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{line}: {text}");
    }
}
