//! What servers answer that are none of Git, or do not want us.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use super::super::remote::Checked;
use super::super::{Credentials, Error, Remote, failure, fetch};

/// Gives every request the same answer, and closes. Ends with the test.
fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/policies.git", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

fn asked(url: &str, credentials: Option<Credentials>, timeout: Duration) -> Error {
    let directory = tempfile::tempdir().unwrap();
    let remote =
        Remote { url: url.to_owned(), branch: String::from("prod"), path: String::new(), credentials, timeout };
    let error = fetch(&directory.path().join("cache"), &remote, None).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing stays behind");
    error
}

#[test]
fn each_answer_has_its_reason_and_says_what_it_was() {
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nhello";
    let nonsense = "HTTP/1.1 200 OK\r\ncontent-type: application/x-git-upload-pack-advertisement\r\n\
                    content-length: 5\r\n\r\nhello";
    let redirect = "HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1:1/elsewhere\r\ncontent-length: 0\r\n\r\n";
    let cases = [
        ("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", "SourceUnauthorized", "(status 401)"),
        ("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n", "SourceUnauthorized", "(status 403)"),
        ("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", "NotARepository", "status 404"),
        ("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", "SourceUnreachable", "status 503"),
        (page, "NotARepository", "it does not speak Git's protocol"),
        (nonsense, "NotARepository", "it does not speak Git's protocol"),
        (redirect, "SourceUnreachable", "redirects to another address"),
        ("", "SourceUnreachable", "expected a Git server that answers"),
    ];
    for (answer, reason, says) in cases {
        for credentials in [None, Some(Credentials::new("reader", "s3cret"))] {
            let error = asked(&server(answer), credentials, Duration::from_secs(20));
            let text = error.to_string();
            assert_eq!(error.reason().as_str(), reason, "{answer}: {text}");
            assert!(text.contains(says) && !text.contains("s3cret"), "{answer}: {text}");
        }
    }
}

#[test]
fn nobody_there_and_nobody_answering_are_told_apart() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/p.git", closed.local_addr().unwrap());
    let silent = asked(&url, None, Duration::from_millis(300));
    assert_eq!(silent.to_string(), format!("{url}: no complete answer within 300ms; expected one by then"));
    drop(closed);
    let gone = asked(&url, None, Duration::from_secs(20)).to_string();
    assert!(gone.starts_with(&format!("{url}: no connection: Connection refused")), "{gone}");
}

#[test]
fn a_full_disk_is_not_blamed_on_the_server() {
    let full = gix::Error::from_error(std::io::Error::from(std::io::ErrorKind::StorageFull));
    let remote = super::Upstream::new().remote("");
    let error = failure::of(&full, &Checked::new(&remote).unwrap(), std::path::Path::new("/state/source"));
    assert_eq!(error.reason().as_str(), "SourceCacheFailed");
    assert!(error.to_string().starts_with("/state/source: no storage space"), "{error}");
}
