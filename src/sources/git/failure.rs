//! What a failed conversation with a remote means.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::io;
use std::path::Path;

use gix::protocol::transport::client;

use super::Error;
use super::remote::Checked;
use super::update::LARGEST_OBJECT;

/// Causes lie within causes; deeper than this none is looked for.
const DEEPEST: usize = 32;

/// From what the Git library said to what went wrong between the remote and `cache`. The cases are told apart by types
/// and status codes, never by texts.
pub(super) fn of(error: &gix::Error, remote: &Checked, cache: &Path) -> Error {
    let mut facts = Facts::default();
    facts.look(error, 0);
    if let Some(status) = facts.status {
        return of_status(status, remote);
    }
    let url = remote.url.clone();
    let cause = remote.clean(&facts.cause);
    match facts.signs.first() {
        Some(Sign::Disk) => Error::Disk { path: cache.to_owned(), source: io::Error::other(cause) },
        Some(Sign::Timeout) => Error::Timeout { url, after: remote.timeout },
        Some(Sign::Redirect) => {
            Error::Unreachable { url, found: String::from("it redirects to another address, which is not followed") }
        }
        Some(Sign::NoProgram) => {
            let found = "the program git-upload-pack, which reads file:// addresses, is not installed";
            Error::Unreachable { url, found: String::from(found) }
        }
        Some(Sign::OtherProtocol) => other_protocol(url),
        Some(Sign::NoConnection) => Error::Unreachable { url, found: format!("no connection: {cause}") },
        None if error.is_resource_exhausted() => Error::TooLarge {
            what: url,
            found: String::from("it sends an object that is too large"),
            limit: format!("{LARGEST_OBJECT} bytes"),
        },
        None if error.is_unsupported() => other_protocol(url),
        // Also what the remote sent wrong: a fresh cache tells one from the other.
        None if error.is_corrupted() => Error::Damaged { found: cause },
        None => Error::Unreachable { url, found: cause },
    }
}

fn of_status(status: u16, remote: &Checked) -> Error {
    let url = remote.url.clone();
    match status {
        401 | 403 | 407 => {
            let who = if remote.authorization.is_some() { "the credentials" } else { "to answer without credentials" };
            Error::Unauthorized { url, found: format!("it refuses {who} (status {status})") }
        }
        404 | 410 => Error::NotARepository { url, found: format!("it answers with status {status}") },
        _ => Error::Unreachable { url, found: format!("it answers with status {status}") },
    }
}

fn other_protocol(url: String) -> Error {
    Error::NotARepository { url, found: String::from("it does not speak Git's protocol") }
}

/// What a cause among others says; the first of those found decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Disk,
    Timeout,
    Redirect,
    NoProgram,
    OtherProtocol,
    NoConnection,
}

#[derive(Default)]
struct Facts {
    /// Of the HTTP answer.
    status: Option<u16>,
    signs: BTreeSet<Sign>,
    /// The text of the innermost cause.
    cause: String,
    depth: usize,
}

impl Facts {
    fn look(&mut self, error: &(dyn StdError + 'static), depth: usize) {
        if depth > DEEPEST {
            return;
        }
        if depth >= self.depth {
            self.depth = depth;
            self.cause = error.to_string();
        }
        if error.is::<client::AuthenticationRequired>() {
            self.status = Some(401);
        } else if let Some(error) = error.downcast_ref::<reqwest::Error>() {
            self.status = self.status.or(error.status().map(|status| status.as_u16()));
            let signs = [
                (error.is_timeout(), Sign::Timeout),
                (error.is_redirect(), Sign::Redirect),
                (error.is_connect(), Sign::NoConnection),
            ];
            self.signs.extend(signs.into_iter().filter(|(found, _)| *found).map(|(_, sign)| sign));
        } else if let Some(error) = error.downcast_ref::<client::Error>() {
            self.signs.extend(sign_of_transport(error));
        } else if let Some(error) = error.downcast_ref::<io::Error>() {
            self.signs.extend(sign_of_system(error));
            if let Some(inner) = error.get_ref() {
                self.look(inner, depth + 1);
            }
        }
        if let Some(tree) = error.downcast_ref::<gix::Error>() {
            for inner in tree.iter_errors().filter(|inner| !inner.is::<gix::Error>()) {
                self.look(inner, depth + 1);
            }
        } else if let Some(source) = error.source() {
            self.look(source, depth + 1);
        }
    }
}

fn sign_of_transport(error: &client::Error) -> Option<Sign> {
    match error {
        client::Error::InvokeProgram { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some(Sign::NoProgram)
        }
        client::Error::Capabilities { .. }
        | client::Error::LineDecode { .. }
        | client::Error::ExpectedLine(_)
        | client::Error::ExpectedDataLine
        | client::Error::UnsupportedProtocolVersion(_) => Some(Sign::OtherProtocol),
        _ => None,
    }
}

fn sign_of_system(error: &io::Error) -> Option<Sign> {
    match error.kind() {
        io::ErrorKind::TimedOut => Some(Sign::Timeout),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem => {
            Some(Sign::Disk)
        }
        _ => None,
    }
}
