//! Every refusal, each by the change that brings it about.

use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta, Utc};
use p256::elliptic_curve::Generate;
use proptest::prelude::*;
use rsa::rand_core::{CryptoRng, TryCryptoRng, TryRng};

use super::*;
use crate::model::reason::Reason;

/// Random numbers that are the same in every run.
pub(super) fn random(seed: u64) -> impl CryptoRng {
    struct Counted(fastrand::Rng);
    impl TryRng for Counted {
        type Error = std::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(self.0.u32(..))
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0.u64(..))
        }
        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            self.0.fill(bytes);
            Ok(())
        }
    }
    impl TryCryptoRng for Counted {}
    Counted(fastrand::Rng::with_seed(seed))
}

/// One key pair of each kind.
pub(super) fn key(algorithm: Algorithm) -> &'static PrivateKey {
    static KEYS: LazyLock<[PrivateKey; 3]> = LazyLock::new(|| {
        [
            PrivateKey::generate(Algorithm::EdDsa, &mut random(1)).unwrap(),
            PrivateKey::Rsa(Box::new(rsa::PrivateKey::new(&mut random(2), 2048).unwrap())),
            PrivateKey::P256(p256::SecretKey::generate_from_rng(&mut random(3))),
        ]
    });
    KEYS.iter().find(|key| key.algorithm() == algorithm).expect("there is one of each kind")
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap()
}

fn files() -> Files {
    [
        (".manifest", r#"{"revision": "r1", "roots": ["audit"], "metadata": {"sequence": 7}}"#),
        ("audit/rules.rego", "package audit\n\nfindings contains \"x\"\n"),
        ("audit/limits/data.json", r#"{"share": 0.30, "names": ["b", "a"]}"#),
        ("README.txt", "hello"),
    ]
    .into_iter()
    .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
    .collect()
}

fn with(path: &str, text: &str) -> Files {
    let mut files = files();
    files.insert(path.to_owned(), text.as_bytes().to_vec());
    files
}

fn signed_as(mut files: Files, algorithm: Algorithm, key_id: &str, scope: &str) -> Files {
    let signing = Signing { key: key(algorithm), key_id: Some(key_id), scope };
    sign(&mut files, signing, &Limits::default()).unwrap();
    files
}

fn signed(files: Files) -> Files {
    signed_as(files, Algorithm::EdDsa, "k1", "")
}

fn trusted(algorithm: Algorithm, id: &str) -> TrustedKey {
    TrustedKey::from_pem(id, algorithm, &key(algorithm).public().to_pem().unwrap()).unwrap()
}

fn trust() -> Trust {
    Trust::signed_by([trusted(Algorithm::EdDsa, "k1")])
}

fn open_with(files: &Files, trust: &Trust, accepted: &Accepted) -> Result<Bundle, Refusal> {
    open(&archive::write(files).unwrap(), trust, &Limits::default(), accepted, now())
}

fn opened(files: &Files, trust: &Trust) -> Result<Bundle, Refusal> {
    open_with(files, trust, &Accepted::default())
}

/// Signs, opens, and gives the refusal.
fn refused(files: Files) -> Refusal {
    opened(&signed(files), &trust()).unwrap_err()
}

fn accepting(sequence: u64, digest: &ContentDigest) -> Accepted {
    Accepted { mark: Some(Mark { sequence: Sequence(sequence), digest: digest.clone() }), ..Accepted::default() }
}

#[test]
fn a_signed_bundle_is_opened_with_all_it_holds() {
    for algorithm in Algorithm::ASYMMETRIC {
        let files = signed_as(files(), algorithm, "k9", "audit");
        let trust = Trust::signed_by([trusted(algorithm, "k9")]).for_scope("audit");
        let bundle = opened(&files, &trust).unwrap();
        assert_eq!(bundle.signer(), Some(&Signer { key_id: "k9".into(), algorithm }));
        assert_eq!(bundle.manifest().revision(), "r1");
        assert_eq!(bundle.manifest().roots(), [Root::new("audit")]);
        assert_eq!(bundle.manifest().sequence(), Some(Sequence(7)));
        assert_eq!(bundle.data(), r#"{"audit":{"limits":{"names":["b","a"],"share":0.30}}}"#);
        assert_eq!(bundle.modules().map(|(path, _)| path).collect::<Vec<_>>(), ["audit/rules.rego"]);
        assert_eq!(bundle.files(), &super::tests::files());
        assert_eq!(bundle.mark().unwrap().sequence, Sequence(7));
    }
}

#[test]
fn signing_twice_gives_the_same_bytes() {
    for algorithm in Algorithm::ASYMMETRIC {
        let once = signed_as(files(), algorithm, "k1", "s");
        assert_eq!(once, signed_as(files(), algorithm, "k1", "s"));
        assert_eq!(once, signed_as(once.clone(), algorithm, "k1", "s"), "an earlier signature is replaced");
    }
}

// Unsigned, stripped.

#[test]
fn an_unsigned_bundle_is_refused_where_a_signature_is_required() {
    assert_eq!(opened(&files(), &trust()), Err(Refusal::Unsigned));
    assert_eq!(opened(&files(), &Trust::signed_by([])), Err(Refusal::Unsigned), "no key is no permission");
    assert_eq!(opened(&files(), &trust().for_scope("x").by_key("")), Err(Refusal::Unsigned));
}

#[test]
fn an_unsigned_bundle_is_opened_where_none_is_required_and_a_bad_signature_still_is_not() {
    let bundle = opened(&files(), &trust().or_unsigned()).unwrap();
    assert_eq!(bundle.signer(), None);
    let changed = {
        let mut files = signed(files());
        files.insert("README.txt".into(), b"bye".to_vec());
        files
    };
    assert_eq!(opened(&changed, &trust().or_unsigned()).unwrap_err().reason(), Reason::FileChanged);
    let nobody = Trust::default().or_unsigned();
    assert_eq!(opened(&signed(files()), &nobody).unwrap_err().reason(), Reason::KeyUnknown);
}

#[test]
fn a_stripped_signature_is_told_from_none() {
    let digest = opened(&signed(files()), &trust()).unwrap().digest().clone();
    let stripped = open_with(&files(), &trust(), &accepting(7, &digest)).unwrap_err();
    assert_eq!(stripped.reason(), Reason::SignatureStripped);
    let other = open_with(&with("a.txt", ""), &trust(), &accepting(7, &digest)).unwrap_err();
    assert_eq!(other.reason(), Reason::Unsigned);
    for text in ["{}", r#"{"signatures":[]}"#, r#"{"signatures":null}"#, r#"{"plugin":"_default"}"#] {
        for trust in [trust(), trust().or_unsigned()] {
            let refusal = opened(&with(SIGNATURES, text), &trust).unwrap_err();
            assert_eq!(refusal.reason(), Reason::SignatureStripped, "{text}");
        }
    }
}

// Keys.

#[test]
fn an_unknown_key_is_refused_by_id_and_a_false_one_by_its_signature() {
    let unknown = opened(&signed_as(files(), Algorithm::EdDsa, "k2", ""), &trust()).unwrap_err();
    assert_eq!(unknown.to_string(), ".signatures.json: signed by key `k2`; expected one of the trusted keys: k1");
    let mut nameless = files();
    sign(&mut nameless, Signing { key: key(Algorithm::EdDsa), key_id: None, scope: "" }, &Limits::default()).unwrap();
    assert_eq!(opened(&nameless, &trust()).unwrap_err().reason(), Reason::KeyUnknown);
    let other = PrivateKey::generate(Algorithm::EdDsa, &mut random(77)).unwrap();
    let mut false_name = files();
    sign(&mut false_name, Signing { key: &other, key_id: Some("k1"), scope: "" }, &Limits::default()).unwrap();
    assert_eq!(opened(&false_name, &trust()), Err(Refusal::Signature { key: "k1".into() }));
}

#[test]
fn a_key_that_is_named_from_outside_goes_before_what_the_signature_says() {
    let trust = Trust::signed_by([trusted(Algorithm::EdDsa, "default")]).by_key("default");
    assert!(opened(&signed_as(files(), Algorithm::EdDsa, "k2", ""), &trust).is_ok());
}

#[test]
fn a_revoked_key_is_refused() {
    let trust = Trust::signed_by([trusted(Algorithm::EdDsa, "k1").revoked().until(now())]);
    assert_eq!(opened(&signed(files()), &trust), Err(Refusal::KeyRevoked { key: "k1".into() }));
}

#[test]
fn a_key_expires_after_its_last_moment() {
    let second = TimeDelta::seconds(1);
    let until = |end| Trust::signed_by([trusted(Algorithm::EdDsa, "k1").until(end)]);
    assert!(opened(&signed(files()), &until(now())).is_ok());
    let expired = opened(&signed(files()), &until(now() - second)).unwrap_err();
    assert_eq!(
        expired.to_string(),
        ".signatures.json: signed by key `k1`, which expired at 2026-09-21T14:13:19Z; expected a key in force"
    );
}

#[test]
fn keys_rotate_without_a_gap() {
    let old = trusted(Algorithm::EdDsa, "old");
    let new = trusted(Algorithm::Es256, "new");
    let by_old = signed_as(files(), Algorithm::EdDsa, "old", "");
    let by_new = signed_as(files(), Algorithm::Es256, "new", "");
    let both = Trust::signed_by([old.clone(), new.clone()]);
    let digest = opened(&by_old, &both).unwrap().digest().clone();
    assert!(open_with(&by_new, &both, &accepting(7, &digest)).is_ok(), "signed anew it is the same content");
    let after = Trust::signed_by([old.revoked(), new]);
    assert_eq!(opened(&by_old, &after).unwrap_err().reason(), Reason::KeyRevoked);
    assert!(opened(&by_new, &after).is_ok());
}

#[test]
fn another_algorithm_than_the_keys_is_refused() {
    let files = signed_as(files(), Algorithm::Es256, "k1", "");
    let expected = Refusal::Algorithm { key: "k1".into(), found: "ES256".into(), expected: Algorithm::EdDsa };
    assert_eq!(opened(&files, &trust()), Err(expected));
    for name in ["none", "", "HS256", "RS384", "eddsa"] {
        let forged = with_header(&signed(super::tests::files()), &format!(r#"{{"alg":"{name}","kid":"k1"}}"#));
        assert_eq!(opened(&forged, &trust()).unwrap_err().reason(), Reason::AlgorithmMismatch, "{name}");
    }
}

#[test]
fn a_public_key_is_not_taken_for_a_shared_secret() {
    // The classic confusion: HS256 with the public key's text as the secret.
    let pem = key(Algorithm::Rs256).public().to_pem().unwrap();
    let trust = Trust::signed_by([trusted(Algorithm::Rs256, "k1")]).with_shared_secrets();
    let forged = hmac_signed(files(), "k1", pem.as_bytes());
    assert_eq!(opened(&forged, &trust).unwrap_err().reason(), Reason::AlgorithmMismatch);
}

#[test]
fn a_shared_secret_is_refused_unless_the_source_takes_it() {
    let secret = [b's'; 40];
    let files = hmac_signed(files(), "k1", &secret);
    let shared = Trust::signed_by([TrustedKey::of("k1", PublicKey::from_secret(&secret).unwrap())]);
    assert_eq!(opened(&files, &shared).unwrap_err().reason(), Reason::SharedSecret);
    assert!(opened(&files, &shared.with_shared_secrets()).is_ok());
}

#[test]
fn a_key_of_another_kind_than_declared_is_no_trusted_key() {
    let pem = key(Algorithm::Es256).public().to_pem().unwrap();
    let error = TrustedKey::from_pem("k1", Algorithm::Rs256, &pem).unwrap_err();
    assert_eq!(error.to_string(), "holds a key for ES256; expected one for RS256");
}

#[test]
fn another_scope_is_refused() {
    for (signed_for, expected) in [("a", ""), ("", "a"), ("a", "b"), ("a", "A")] {
        let files = signed_as(files(), Algorithm::EdDsa, "k1", signed_for);
        let refusal = opened(&files, &trust().for_scope(expected)).unwrap_err();
        assert_eq!(refusal.reason(), Reason::ScopeMismatch, "{signed_for} {expected}");
    }
}

// Files.

#[test]
fn one_changed_byte_in_any_file_is_refused_by_name() {
    let whole = signed(files());
    for path in files().keys() {
        for at in 0..whole[path].len() {
            let mut changed = whole.clone();
            changed.get_mut(path).unwrap()[at] ^= 1;
            let refusal = opened(&changed, &trust());
            match (path.as_str(), refusal) {
                // Blanks of JSON are not signed, as in OPA; then it means the same.
                (_, Ok(bundle)) => assert_eq!(bundle.data(), opened(&whole, &trust()).unwrap().data()),
                (path, Err(refusal)) => {
                    assert!(matches!(refusal.reason(), Reason::FileChanged | Reason::BundleInvalid), "{refusal}");
                    assert!(refusal.to_string().starts_with(path), "{refusal}");
                }
            }
        }
    }
    for at in (0..whole[SIGNATURES].len()).step_by(7) {
        let mut changed = whole.clone();
        changed.get_mut(SIGNATURES).unwrap()[at] ^= 1;
        // The name of the field `plugin` is not signed and says nothing.
        if let Ok(bundle) = opened(&changed, &trust()) {
            assert!(String::from_utf8_lossy(&changed[SIGNATURES]).contains("\"_default\""), "byte {at}");
            assert_eq!(bundle, opened(&whole, &trust()).unwrap());
        }
    }
}

#[test]
fn a_forged_bundle_gets_no_further_than_its_first_forged_file() {
    let mut forged = signed(files());
    forged.insert("README.txt".into(), b"bye".to_vec());
    forged.insert("audit/limits/data.json".into(), b"{{{".to_vec());
    assert!(matches!(opened(&forged, &trust()), Err(Refusal::Changed { file, .. }) if file == "README.txt"));
}

#[test]
fn a_missing_an_extra_and_a_renamed_file_are_refused() {
    let mut missing = signed(files());
    missing.remove("audit/rules.rego");
    assert_eq!(opened(&missing, &trust()), Err(Refusal::Missing { file: "audit/rules.rego".into() }));
    let mut extra = signed(files());
    extra.insert("audit/more.rego".into(), b"package audit".to_vec());
    assert_eq!(opened(&extra, &trust()), Err(Refusal::Extra { file: "audit/more.rego".into() }));
    let mut renamed = signed(files());
    let module = renamed.remove("audit/rules.rego").unwrap();
    renamed.insert("audit/zules.rego".into(), module);
    assert_eq!(opened(&renamed, &trust()).unwrap_err().reason(), Reason::FileNotSigned);
}

#[test]
fn a_manifest_that_was_put_in_or_taken_out_is_refused() {
    let mut without = files();
    without.remove(MANIFEST);
    let mut put_in = signed(without);
    put_in.insert(MANIFEST.into(), files()[MANIFEST].clone());
    assert_eq!(opened(&put_in, &trust()).unwrap_err().reason(), Reason::FileNotSigned);
    let mut taken_out = signed(files());
    taken_out.remove(MANIFEST);
    assert_eq!(opened(&taken_out, &trust()).unwrap_err().reason(), Reason::FileMissing);
}

#[test]
fn a_second_signature_file_is_refused() {
    let mut twice = signed(files());
    twice.insert(format!("a/{SIGNATURES}"), twice[SIGNATURES].clone());
    assert_eq!(opened(&twice, &trust()).unwrap_err().reason(), Reason::BundleInvalid);
}

#[test]
fn weak_hashes_are_refused() {
    for name in ["MD5", "SHA-1", "", "CRC"] {
        let forged = resigned(files(), |file| file.algorithm = name.into());
        assert_eq!(opened(&forged, &trust()).unwrap_err().reason(), Reason::WeakHash, "{name}");
    }
}

#[test]
fn a_file_that_the_signature_lists_twice_is_refused() {
    let forged = resigned(files(), |file| {
        if file.name == "README.txt" {
            file.name = "./.manifest".into();
        }
    });
    assert_eq!(opened(&forged, &trust()).unwrap_err().reason(), Reason::SignatureMalformed);
}

#[test]
fn what_a_stranger_wrote_moves_no_cursor() {
    let refusal = opened(&signed_as(files(), Algorithm::EdDsa, "\u{1b}[2J\nk", ""), &trust()).unwrap_err();
    assert!(refusal.to_string().contains("key `\\u{1b}[2J\\nk`"), "{refusal}");
}

#[test]
fn what_is_no_signature_file_is_refused_by_field() {
    let whole = String::from_utf8(signed(files())[SIGNATURES].clone()).unwrap();
    let jws = whole.split('"').find(|part| part.matches('.').count() == 2).unwrap();
    let one = |jws: &str| format!(r#"{{"signatures":["{jws}"]}}"#);
    for (text, field) in [
        (String::new(), "the file"),
        ("[]".into(), "the file"),
        (r#"{"signatures":[1]}"#.into(), "the file"),
        (format!(r#"{{"signatures":["{jws}","{jws}"]}}"#), "signatures"),
        (format!(r#"{{"signatures":["{jws}"],"plugin":"other"}}"#), "plugin"),
        (one(""), "signatures[0]"),
        (one("a.b"), "signatures[0]"),
        (one(&format!("{jws}.x")), "signatures[0]"),
        (one(&format!("{jws}=")), "signature"),
        (one("!.e30.AA"), "header"),
        (one("e30.e30.AA"), "header"),
        (one("eyJhbGciOiJFZERTQSIsImNyaXQiOlsieCJdfQ.e30.AA"), "header"),
        (one("eyJhbGciOiJFZERTQSJ9.W10.AA"), "payload"),
        // iat as a text, which OPA refuses too.
        (one("eyJhbGciOiJFZERTQSJ9.eyJpYXQiOiIxIn0.AA"), "payload"),
    ] {
        let refusal = opened(&with(SIGNATURES, &text), &trust()).unwrap_err();
        assert_eq!(refusal.reason(), Reason::SignatureMalformed, "{text}");
        assert!(refusal.to_string().starts_with(&format!(".signatures.json: {field}: ")), "{refusal}");
    }
}

// Order.

#[test]
fn a_lower_sequence_is_refused_and_a_higher_one_is_not() {
    let bundle = opened(&signed(files()), &trust()).unwrap();
    let replayed = open_with(&signed(files()), &trust(), &accepting(8, bundle.digest())).unwrap_err();
    assert_eq!(replayed, Refusal::SequenceReplayed { found: Sequence(7), accepted: Sequence(8) });
    assert!(open_with(&signed(files()), &trust(), &accepting(6, bundle.digest())).is_ok());
}

#[test]
fn the_same_sequence_is_the_same_content_or_refused() {
    let bundle = opened(&signed(files()), &trust()).unwrap();
    let accepted = accepting(7, bundle.digest());
    assert!(open_with(&signed(files()), &trust(), &accepted).is_ok());
    let reused = open_with(&signed(with("README.txt", "bye")), &trust(), &accepted).unwrap_err();
    assert_eq!(reused.reason(), Reason::SequenceReused);
}

#[test]
fn a_missing_sequence_is_refused_once_there_is_a_mark_or_where_one_is_required() {
    let files = signed(with(MANIFEST, r#"{"roots":["audit"]}"#));
    let bundle = opened(&files, &trust()).unwrap();
    assert_eq!(bundle.mark(), None);
    let marked = open_with(&files, &trust(), &accepting(0, bundle.digest())).unwrap_err();
    assert_eq!(marked.reason(), Reason::SequenceMissing);
    let required = Accepted { requires_sequence: true, ..Accepted::default() };
    assert_eq!(open_with(&files, &trust(), &required).unwrap_err().reason(), Reason::SequenceMissing);
}

// The manifest.

#[test]
fn a_manifest_that_says_nonsense_is_refused_by_field() {
    for (manifest, message) in [
        ("[]", ".manifest: the document: []; expected an object"),
        (r#"{"revision":1}"#, ".manifest: revision: 1; expected a text"),
        (r#"{"roots":"audit"}"#, ".manifest: roots: \"audit\"; expected a list of texts"),
        (r#"{"roots":["audit",2]}"#, ".manifest: roots[1]: 2; expected a text"),
        (r#"{"metadata":3}"#, ".manifest: metadata: 3; expected an object"),
        (r#"{"wasm":[{}]}"#, ".manifest: wasm: [{}]; expected no WebAssembly, which the engine does not run"),
        ("{", ".manifest:1:2: expected a key in quotes"),
    ] {
        let refusal = opened(&with(MANIFEST, manifest), &trust().or_unsigned()).unwrap_err();
        assert_eq!((refusal.reason(), refusal.to_string().as_str()), (Reason::BundleInvalid, message));
    }
    for sequence in ["\"7\"", "7.0", "7e0", "-1", "null", "9223372036854775808", "[7]"] {
        let manifest = format!(r#"{{"roots":["audit"],"metadata":{{"sequence":{sequence}}}}}"#);
        let refusal = refused(with(MANIFEST, &manifest));
        assert!(refusal.to_string().contains("metadata.sequence"), "{refusal}");
    }
}

#[test]
fn what_is_absent_or_null_in_a_manifest_has_opas_default() {
    for manifest in ["{}", r#"{"revision":null,"roots":null,"metadata":null,"wasm":[],"other":1}"#] {
        let bundle = opened(&signed(with(MANIFEST, manifest)), &trust()).unwrap();
        assert_eq!(bundle.manifest().roots(), [Root::everything()]);
        assert_eq!((bundle.manifest().revision(), bundle.manifest().sequence()), ("", None));
    }
    let mut without = files();
    without.remove(MANIFEST);
    assert!(opened(&signed(without), &trust()).is_ok());
}

#[test]
fn two_manifests_are_refused() {
    for second in ["audit/.manifest", "old.manifest"] {
        assert_eq!(refused(with(second, "{}")).reason(), Reason::BundleInvalid);
    }
}

#[test]
fn overlapping_roots_are_refused() {
    for roots in [r#"["audit","audit/limits"]"#, r#"["audit","audit"]"#, r#"["","audit"]"#, r#"["audit/","/audit"]"#] {
        let refusal = refused(with(MANIFEST, &format!(r#"{{"roots":{roots}}}"#)));
        assert_eq!(refusal.reason(), Reason::RootsOverlap, "{roots}");
    }
}

#[test]
fn foreign_roots_and_those_of_another_bundle_are_refused() {
    let allowing = |root: &str| Accepted { roots: Some(vec![Root::new(root)]), ..Accepted::default() };
    assert!(open_with(&signed(files()), &trust(), &allowing("audit")).is_ok());
    let foreign = open_with(&signed(files()), &trust(), &allowing("audit/limits")).unwrap_err();
    assert_eq!(foreign.to_string(), "root \"audit\" is not this source's; expected a root within [\"audit/limits\"]");
    assert_eq!(foreign.reason(), Reason::RootForeign);
    let beside = |root: &str| Accepted {
        neighbours: vec![Neighbour { bundle: "other".into(), roots: vec![Root::new(root)] }],
        ..Accepted::default()
    };
    assert!(open_with(&signed(files()), &trust(), &beside("audits")).is_ok());
    let taken = open_with(&signed(files()), &trust(), &beside("audit/limits")).unwrap_err();
    assert_eq!(taken.reason(), Reason::RootsOverlap);
    assert!(taken.to_string().contains("bundle other"), "{taken}");
}

#[test]
fn data_and_packages_outside_the_roots_are_refused() {
    for (path, text) in
        [("data.json", r#"{"other":1}"#), ("other/data.yaml", "a: 1"), ("data.json", r#"{"audit":1,"b":{}}"#)]
    {
        assert_eq!(refused(with(path, text)).reason(), Reason::OutsideRoots, "{path}: {text}");
    }
    let inside = signed(with("data.json", r#"{"audit":{"more":1}}"#));
    let bundle = opened(&inside, &trust()).unwrap();
    let package = |path: &[&str]| FoundPackage {
        file: "x.rego".into(),
        path: path.iter().map(|part| (*part).to_owned()).collect(),
    };
    let manifest = bundle.manifest();
    assert!(manifest.check_packages(&[package(&["data", "audit"]), package(&["data", "audit", "x"])]).is_ok());
    for outside in [&["data", "audits"][..], &["data"], &[]] {
        assert_eq!(manifest.check_packages(&[package(outside)]).unwrap_err().reason(), Reason::OutsideRoots);
    }
}

#[test]
fn other_rego_versions_are_refused() {
    for fields in
        [r#""rego_version":0"#, r#""rego_version":2"#, r#""rego_version":"1""#, r#""file_rego_versions":{"/a*":0}"#]
    {
        let refusal = refused(with(MANIFEST, &format!(r#"{{"roots":["audit"],{fields}}}"#)));
        assert_eq!(refusal.reason(), Reason::UnsupportedRegoVersion, "{fields}");
    }
    let one = r#"{"roots":["audit"],"rego_version":1,"file_rego_versions":{"/a*":1}}"#;
    assert!(opened(&signed(with(MANIFEST, one)), &trust()).is_ok());
}

// Content.

#[test]
fn what_the_engine_cannot_run_is_refused() {
    for path in ["policy.wasm", "audit/plan.json", "patch.json", ".manifest.pb"] {
        let refusal = refused(with(path, "{}"));
        assert_eq!(refusal.reason(), Reason::UnsupportedContent, "{path}");
    }
}

#[test]
fn data_that_clashes_is_refused_even_if_equal() {
    for (path, text, at) in [
        ("audit/data.json", r#"{"limits":{"share":0.30}}"#, "data.audit.limits.share"),
        ("audit/data.json", r#"{"limits":1}"#, "data.audit.limits"),
        ("audit/limits/data.yaml", "names: []", "data.audit.limits.names"),
    ] {
        let refusal = refused(with(path, text));
        assert_eq!(refusal.reason(), Reason::BundleInvalid);
        assert!(refusal.to_string().contains(at), "{refusal}");
    }
    let merged = opened(&signed(with("audit/data.yml", "limits: {more: 1.50}\nx: []")), &trust()).unwrap();
    assert_eq!(merged.data(), r#"{"audit":{"limits":{"more":1.5,"names":["b","a"],"share":0.30},"x":[]}}"#);
}

#[test]
fn values_are_counted_over_all_files_and_levels_over_directories() {
    let files = with("audit/data.yml", "more: [1, 2, 3]");
    let opened_within = |values| {
        let limits = Limits { values, ..Limits::default() };
        open(&archive::write(&files).unwrap(), &Trust::default(), &limits, &Accepted::default(), now())
    };
    // The manifest has 10, the JSON 7, the YAML 6 and the events of its brackets.
    assert!(opened_within(30).is_ok());
    for values in [5, 12, 18] {
        assert_eq!(opened_within(values).unwrap_err().reason(), Reason::BundleInvalid, "{values}");
    }
    let deep = format!("audit/{}data.json", "d/".repeat(100));
    assert!(opened(&with(&deep, "{\"a\":1}"), &Trust::default()).is_ok());
    let nested = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    let refusal = opened(&with(&deep, &nested), &Trust::default()).unwrap_err();
    assert!(refusal.to_string().contains("too deep"), "{refusal}");
}

#[test]
fn data_that_cannot_be_read_is_refused_with_its_place() {
    let mut files = with("audit/data.json", "{\n \"a\": }");
    let refusal = opened(&files, &trust().or_unsigned()).unwrap_err();
    assert_eq!(refusal.to_string(), "audit/data.json:2:7: is no JSON value");
    files.insert("audit/data.json".into(), b"[1]".to_vec());
    let manifest = br#"{"roots":[""]}"#;
    files.insert(MANIFEST.into(), manifest.to_vec());
    assert!(opened(&files, &trust().or_unsigned()).is_err());
    let root = with("data.json", "3");
    assert!(opened(&root, &trust().or_unsigned()).is_err());
    let mut binary = super::tests::files();
    binary.insert("audit/x.rego".into(), vec![0xff]);
    assert!(opened(&binary, &trust().or_unsigned()).unwrap_err().to_string().starts_with("audit/x.rego: is not UTF-8"));
}

#[test]
fn ten_thousand_files_fit_the_limits() {
    let mut many = files();
    for index in 0..10_000 {
        let module = format!("package audit.m{index}\n\nfindings contains {index}\n");
        many.insert(format!("audit/m{index}/rules.rego"), module.into_bytes());
    }
    assert!(opened(&many, &Trust::default()).is_ok());
    assert_eq!(opened(&signed(many), &trust()).unwrap().modules().count(), 10_001);
}

// Whatever comes.

proptest! {
    #[test]
    fn one_flipped_bit_anywhere_never_changes_what_a_bundle_means(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let bytes = archive::write(&signed(files())).unwrap();
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= 1 << bit;
        let opened = |bytes: &[u8]| open(bytes, &trust(), &Limits::default(), &Accepted::default(), now());
        if let Ok(bundle) = opened(&changed) {
            // Of gzip's header some bits mean nothing.
            prop_assert_eq!(bundle, opened(&bytes).unwrap());
        }
    }

    #[test]
    fn any_manifest_is_read_or_refused(text in r#"[\[\]{}:,"0-9eE.a-z_ /]{0,60}"#, known in prop::sample::select(vec!["revision", "roots", "rego_version", "file_rego_versions", "metadata", "wasm"])) {
        for text in [text.clone(), format!(r#"{{"{known}":{text}}}"#), format!(r#"{{"{known}":["{text}"]}}"#)] {
            let _ = opened(&with(MANIFEST, &text), &Trust::default());
        }
    }

    #[test]
    fn any_signature_is_read_or_refused(header in "\\PC{0,40}", payload in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        use base64::Engine;
        let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let jws = format!("{}.{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()), encode(&bytes));
        for text in [jws.clone(), serde_json::json!({"signatures": [jws]}).to_string(), header.clone()] {
            prop_assert!(Signature::read(text.as_bytes()).is_err() || header.contains("alg"));
        }
        for algorithm in Algorithm::ASYMMETRIC {
            prop_assert!(!key(algorithm).public().verifies(payload.as_bytes(), &bytes));
        }
    }

    #[test]
    fn any_key_text_is_read_or_refused(label in "(RSA |EC )?(PUBLIC|PRIVATE) KEY", body in "[A-Za-z0-9+/=\n]{0,120}") {
        let pem = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        let _ = PublicKey::from_pem(&pem);
        let _ = PrivateKey::from_pem(&pem);
        let _ = PublicKey::from_pem(&body);
    }
}

/// The same signature under another header.
fn with_header(files: &Files, header: &str) -> Files {
    use base64::Engine;
    let text = String::from_utf8(files[SIGNATURES].clone()).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let jws = document["signatures"][0].as_str().unwrap();
    let rest = jws.split_once('.').unwrap().1;
    let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header);
    let mut files = files.clone();
    files.insert(
        SIGNATURES.into(),
        serde_json::json!({"signatures": [format!("{encoded}.{rest}")]}).to_string().into_bytes(),
    );
    files
}

/// A good signature over digests that were changed before signing.
fn resigned(files: Files, change: impl Fn(&mut SignedFile)) -> Files {
    let mut files = signed(files);
    let mut listed = Signature::read(&files[SIGNATURES]).unwrap().files;
    listed.iter_mut().for_each(change);
    let text = signature::written(key(Algorithm::EdDsa), Some("k1"), "", &listed).unwrap();
    files.insert(SIGNATURES.into(), text);
    files
}

fn hmac_signed(files: Files, key_id: &str, secret: &[u8]) -> Files {
    use base64::Engine;
    use hmac::{Hmac, KeyInit, Mac};
    let files = signed(files);
    let payload = Signature::read(&files[SIGNATURES]).unwrap().message.split_once('.').unwrap().1.to_owned();
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let message = format!("{}.{payload}", engine.encode(format!(r#"{{"alg":"HS256","kid":"{key_id}"}}"#)));
    let mut mac = Hmac::<rsa::sha2::Sha256>::new_from_slice(secret).unwrap();
    mac.update(message.as_bytes());
    let jws = format!("{message}.{}", engine.encode(mac.finalize().into_bytes()));
    let mut files = files;
    files.insert(SIGNATURES.into(), serde_json::json!({"signatures": [jws]}).to_string().into_bytes());
    files
}
