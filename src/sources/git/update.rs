//! The conversation with a remote: where is the branch, and what of it is missing here.

use std::sync::{Arc, Mutex};

use gix::ObjectId;
use gix::progress::Discard;
use gix::protocol::transport::client::AuthenticationRequired;
use gix::protocol::transport::client::blocking_io::http;
use gix::remote::Direction;
use gix::remote::fetch::Tags;
use gix::remote::ref_map::Options;
use tokio::time::Instant;

use super::remote::Checked;
use super::watch::{Cut, watched};
use super::{Error, LARGEST_TRANSFER, failure};

/// The most bytes that one object may have, unpacked.
pub(super) const LARGEST_OBJECT: u64 = 64 << 20;

/// Where the cache keeps the head of the branch, whatever the branch is called.
pub(super) const HEAD: &str = "refs/tradeguard/head";

/// The most branches that a message names.
const BRANCHES_NAMED: usize = 5;

/// What came of a look at the remote.
pub(super) enum Update {
    /// The head of the branch; all of its history is in the repository.
    Head(ObjectId),
    /// The head is another one, and nothing was fetched, since the repository is worn.
    Declined,
}

/// Brings `repository` to where the remote's branch is. One that `worn` says is to be replaced gets nothing more.
pub(super) fn update(repository: &gix::Repository, remote: &Checked, worn: bool) -> Result<Update, Error> {
    // Built into the first HTTP client; already installed is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let deadline = Instant::now() + remote.timeout;
    let packs = repository.objects.store_ref().path().join("pack");
    let known = head_of(repository)?;
    let (answer, cut) = watched(deadline, &packs, |stop| {
        with_refs(repository, remote, &remote.branch, HEAD, deadline, |prepared| {
            let mappings = &prepared.ref_map().mappings;
            let Some(head) = mappings.first().and_then(|mapping| mapping.remote.as_id()).map(ToOwned::to_owned) else {
                return Ok(None);
            };
            if known == Some(head) {
                return Ok(Some(Update::Head(head)));
            }
            if worn {
                return Ok(Some(Update::Declined));
            }
            prepared.receive(Discard, stop).map_err(|error| failure::of(&error, remote, repository.path()))?;
            if head_of(repository)? != Some(head) {
                return Err(Error::Damaged { found: String::from("its head could not be moved") });
            }
            Ok(Some(Update::Head(head)))
        })
    });
    match (cut, answer) {
        (_, Ok(Some(update))) => Ok(update),
        (_, Ok(None)) => Err(branch_not_found(repository, remote, deadline)?),
        (Some(Cut::TooLate), Err(_)) => Err(Error::Timeout { url: remote.url.clone(), after: remote.timeout }),
        (Some(Cut::TooLarge), Err(_)) => Err(Error::TooLarge {
            what: remote.url.clone(),
            found: String::from("it sends more"),
            limit: format!("{LARGEST_TRANSFER} bytes at once"),
        }),
        (None, Err(error)) => Err(error),
    }
}

/// The head as of the last complete fetch.
pub(super) fn head_of(repository: &gix::Repository) -> Result<Option<ObjectId>, Error> {
    let found = repository.try_find_reference(HEAD).map_err(|error| Error::Damaged { found: error.to_string() })?;
    Ok(found.and_then(|reference| reference.try_id().map(gix::Id::detach)))
}

type Prepared<'auth, 'repository> = gix::remote::fetch::Prepare<
    'auth,
    'repository,
    Box<dyn gix::protocol::transport::client::blocking_io::Transport + Send>,
>;

/// Asks the remote for branches by `pattern`, to be kept here as `local`, and goes on with its answer.
fn with_refs<T>(
    repository: &gix::Repository,
    remote: &Checked,
    pattern: &str,
    local: &str,
    deadline: Instant,
    and_then: impl FnOnce(Prepared<'_, '_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let failed = |error: gix::Error| failure::of(&error, remote, repository.path());
    let handle = repository
        .remote_at_without_url_rewrite(remote.address.clone())
        .and_then(|handle| handle.with_refspecs([format!("+refs/heads/{pattern}:{local}").as_str()], Direction::Fetch))
        .map_err(failed)?
        .with_fetch_tags(Tags::None);
    // A directory is looked at here already; over HTTP nothing is.
    let connection = handle.connect(Direction::Fetch).map_err(|_| Error::NotARepository {
        url: remote.url.clone(),
        found: String::from("there is no repository"),
    })?;
    let connection = connection
        // Credentials went with the first request; who is asked for others was refused.
        .with_credentials(|_| Err(gix::Error::from_error(AuthenticationRequired::default())))
        .with_transport_options(Box::new(http_options(remote, deadline)));
    and_then(connection.prepare_fetch(Discard, Options::default()).map_err(failed)?)
}

fn http_options(remote: &Checked, deadline: Instant) -> http::Options {
    let header = remote.authorization.as_ref().map(|authorization| authorization.header.clone());
    let timeout = remote.timeout;
    let backend = http::reqwest::Options {
        configure_client: Some(Box::new(move |client| Ok(client.timeout(timeout)))),
        // Where a request was configured the library refuses redirects, which could lead credentials elsewhere.
        configure_request: Some(Box::new(move |request| {
            *request.timeout_mut() = Some(deadline.saturating_duration_since(Instant::now()));
            if let Some(header) = &header {
                request.headers_mut().insert(::http::header::AUTHORIZATION, header.clone());
            }
            Ok(())
        })),
    };
    http::Options { backend: Some(Arc::new(Mutex::new(backend))), ..http::Options::default() }
}

fn branch_not_found(repository: &gix::Repository, remote: &Checked, deadline: Instant) -> Result<Error, Error> {
    let mut existing = with_refs(repository, remote, "*", "refs/tradeguard/all/*", deadline, |prepared| {
        let names = prepared.ref_map().mappings.iter().filter_map(|mapping| mapping.remote.as_name());
        Ok(names.map(|name| short(&name.to_string())).collect::<Vec<_>>())
    })?;
    existing.sort();
    let more = existing.len().saturating_sub(BRANCHES_NAMED);
    existing.truncate(BRANCHES_NAMED);
    let existing = existing.iter().map(|name| remote.clean(name)).collect();
    Ok(Error::BranchNotFound { url: remote.url.clone(), branch: remote.branch.clone(), existing, more })
}

fn short(name: &str) -> String {
    name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()
}
