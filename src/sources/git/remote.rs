//! The fields of a remote, checked before anything is sent.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gix::bstr::ByteSlice;
use http::HeaderValue;
use url::{Host, Url};

use super::{Credentials, Error, Remote};
use crate::model::problem::Problem;

/// A remote whose fields make sense.
pub(super) struct Checked {
    /// For the transport.
    pub(super) address: gix::Url,
    /// For people; it has no user name, password or query.
    pub(super) url: String,
    pub(super) branch: String,
    pub(super) folder: Vec<String>,
    pub(super) authorization: Option<Authorization>,
    pub(super) timeout: Duration,
}

/// What goes into the request, and what must not come out of it again.
#[derive(Clone)]
pub(super) struct Authorization {
    pub(super) header: HeaderValue,
    /// The password as it is, and as it travels.
    pub(super) secrets: [String; 2],
}

impl Checked {
    pub(super) fn new(remote: &Remote) -> Result<Self, Error> {
        let url = checked_url(&remote.url)?;
        // Over http the address goes out as it was checked; a file's is a path, which a URL writes with escapes.
        let address = if url.scheme() == "file" {
            let path = url.to_file_path().map_err(|()| url_problem("has another host in it", "file:///path"))?;
            gix::url::parse(gix::path::into_bstr(path).map_err(|_| url_problem("is no path", "file:///path"))?.as_ref())
        } else {
            gix::url::parse(url.as_str().as_bytes().as_bstr())
        };
        let address = address.map_err(|_| url_problem("is no address of a repository", "https://host/path"))?;
        let authorization = remote.credentials.as_ref().map(|given| authorization(given, &url)).transpose()?;
        Ok(Self {
            address,
            url: url.into(),
            branch: branch(&remote.branch)?,
            folder: folder(&remote.path)?,
            authorization,
            timeout: remote.timeout,
        })
    }

    /// What came from outside, fit for a message: one line, not long, without the password.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.split(|c: char| c.is_whitespace() || c.is_control()).collect::<Vec<_>>().join(" ");
        for secret in self.authorization.iter().flat_map(|authorization| &authorization.secrets) {
            if !secret.is_empty() {
                text = text.replace(secret, "[password]");
            }
        }
        text.chars().take(200).collect()
    }
}

fn url_problem(found: &str, expected: &str) -> Error {
    // The text itself is not repeated: it may hold a password.
    Error::Invalid(Problem::expected("url", found, expected))
}

fn checked_url(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|error| url_problem(&format!("is no URL: {error}"), "https://host/path"))?;
    if !["https", "http", "file"].contains(&url.scheme()) {
        return Err(url_problem(&format!("has the scheme `{}`", url.scheme()), "https, http or file"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(url_problem("has a user name or password in it", "these among the source's credentials"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(url_problem("has a query or fragment", "an address without `?` and `#`"));
    }
    Ok(url)
}

fn authorization(credentials: &Credentials, url: &Url) -> Result<Authorization, Error> {
    let local = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if local => {}
        "http" => return Err(url_problem("would send the credentials in clear text", "https where there are any")),
        _ => return Err(Error::Invalid(Problem::expected("credentials", "are set", "none with a file:// address"))),
    }
    if credentials.username.contains(':') {
        return Err(Error::Invalid(Problem::expected("credentials.username", "has a `:`", "a user name without")));
    }
    let encoded = BASE64_STANDARD.encode(format!("{}:{}", credentials.username, credentials.password));
    let header = HeaderValue::try_from(format!("Basic {encoded}"));
    let mut header =
        header.map_err(|_| Error::Invalid(Problem::expected("credentials", "fit in no header", "shorter ones")))?;
    header.set_sensitive(true);
    Ok(Authorization { header, secrets: [credentials.password.clone(), encoded] })
}

fn branch(name: &str) -> Result<String, Error> {
    let valid = gix::validate::reference::name(format!("refs/heads/{name}").as_bytes().as_bstr()).is_ok();
    if name.is_empty() || name.starts_with("refs/") || !valid {
        let expected = "the short name of a branch, as `prod`";
        return Err(Error::Invalid(Problem::expected("branch", format!("`{name}`"), expected)));
    }
    Ok(name.to_owned())
}

/// The parts of a folder's path; none for the root.
pub(super) fn folder(path: &str) -> Result<Vec<String>, Error> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<_> = path.split('/').map(str::to_owned).collect();
    if parts.iter().any(|part| part.is_empty() || part == "." || part == ".." || part.contains(['\\', '\0'])) {
        let expected = "a folder from the root of the repository, as `policies/prod`";
        return Err(Error::Invalid(Problem::expected("path", format!("`{path}`"), expected)));
    }
    Ok(parts)
}
