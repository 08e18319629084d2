use std::sync::LazyLock;

use super::*;
use crate::bundle::tests::{key, random};

/// `openssl genpkey -algorithm ed25519` of the RFC 8410 example.
const RFC_8410: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
const RFC_8410_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

static SHORT_RSA: LazyLock<rsa::PrivateKey> = LazyLock::new(|| rsa::PrivateKey::new(&mut random(9), 1024).unwrap());

#[test]
fn a_key_is_read_back_from_its_pem() {
    for algorithm in Algorithm::ASYMMETRIC {
        let key = key(algorithm);
        let again = PrivateKey::from_pem(&key.to_pem().unwrap()).unwrap();
        assert_eq!(again.algorithm(), algorithm);
        let public = PublicKey::from_pem(&key.public().to_pem().unwrap()).unwrap();
        assert_eq!(public.fingerprint(), again.public().fingerprint());
        assert_eq!(public.fingerprint().unwrap().len(), 16);
    }
}

#[test]
fn a_key_that_openssl_made_is_read() {
    let key = PrivateKey::from_pem(RFC_8410).unwrap();
    assert_eq!(key.public().to_pem().unwrap(), RFC_8410_PUBLIC);
}

#[test]
fn a_signature_fits_its_key_and_message_and_no_other() {
    for algorithm in Algorithm::ASYMMETRIC {
        let key = key(algorithm);
        let signature = key.sign(b"message").unwrap();
        assert_eq!(signature, key.sign(b"message").unwrap(), "{algorithm}: signing is reproducible");
        let public = key.public();
        assert!(public.verifies(b"message", &signature));
        assert!(!public.verifies(b"Message", &signature));
        assert!(!public.verifies(b"message", &signature[1..]) && !public.verifies(b"message", b""));
        for bit in 0..8 {
            let mut flipped = signature.clone();
            flipped[10] ^= 1 << bit;
            assert!(!public.verifies(b"message", &flipped), "{algorithm}");
        }
        for other in Algorithm::ASYMMETRIC.into_iter().filter(|other| *other != algorithm) {
            assert!(!crate::bundle::tests::key(other).public().verifies(b"message", &signature));
        }
    }
}

#[test]
fn a_shared_secret_checks_rfc_7515s_example() {
    // RFC 7515, appendix A.1.
    let secret = [
        3, 35, 53, 75, 43, 15, 165, 188, 131, 126, 6, 101, 119, 123, 166, 143, 90, 179, 40, 230, 240, 84, 201, 40, 169,
        15, 132, 178, 210, 80, 46, 191, 211, 251, 90, 146, 210, 6, 71, 239, 150, 138, 180, 195, 119, 98, 61, 34, 61,
        46, 33, 114, 5, 46, 79, 8, 192, 205, 154, 245, 103, 208, 128, 163,
    ];
    let message = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = [
        116, 24, 223, 180, 151, 153, 224, 37, 79, 250, 96, 125, 216, 173, 187, 186, 22, 212, 37, 77, 105, 214, 191,
        240, 91, 88, 5, 88, 83, 132, 141, 121,
    ];
    let key = PublicKey::from_secret(&secret).unwrap();
    assert!(key.verifies(message.as_bytes(), &signature) && !key.verifies(b"other", &signature));
}

#[test]
fn what_is_no_usable_key_is_refused_with_what_was_found() {
    let public = |text: &str| PublicKey::from_pem(text).unwrap_err().to_string();
    assert_eq!(public("hello"), "is no PEM; expected `-----BEGIN PUBLIC KEY-----`");
    assert_eq!(public(RFC_8410), "holds a PRIVATE KEY; expected a PUBLIC KEY");
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
    assert_eq!(public(certificate), "holds a CERTIFICATE; expected a PUBLIC KEY");
    assert!(public("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----").starts_with("holds no key"));
    let short = SHORT_RSA.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
    assert_eq!(public(&short), "holds an RSA key of 1024 bits; expected at least 2048");
    let private = PrivateKey::from_pem(RFC_8410_PUBLIC).unwrap_err().to_string();
    assert_eq!(private, "holds a PUBLIC KEY; expected a PRIVATE KEY");
    assert_eq!(PublicKey::from_secret(b"short").unwrap_err(), KeyError::WeakSecret { bytes: 5 });
}

#[test]
fn a_key_shows_nothing_of_itself() {
    assert_eq!(format!("{:?}", key(Algorithm::EdDsa)), "PrivateKey(EdDSA)");
}
