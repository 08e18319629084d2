//! The transport of production: reqwest over rustls, without redirects, with capped bodies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;

use super::Error;
use super::options::{CheckedBackend, Options};
use super::transport::{Request, Response, Transport, TransportError};

/// Sends requests over the network, each backend with its own trust.
pub struct ReqwestTransport {
    clients: BTreeMap<Arc<str>, reqwest::Client>,
}

impl ReqwestTransport {
    /// Builds a client for each backend of `options`; reads their CA files.
    pub fn new(options: &Options) -> Result<Self, Error> {
        // Already installed (by the Kubernetes client, say) is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let checked = options.checked("signals").map_err(Error::Invalid)?;
        let mut clients = BTreeMap::new();
        for (name, backend) in checked.backends {
            let ca_file = match backend {
                CheckedBackend::Prometheus(prometheus) => prometheus.ca_file,
                CheckedBackend::Scrape(_) => None,
            };
            let mut builder = reqwest::Client::builder()
                // A redirect could lead a request, with its credentials, to where the configuration never said.
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(Duration::from_secs(5))
                .user_agent(concat!("tradeguard/", env!("CARGO_PKG_VERSION")))
                .gzip(true);
            if let Some(path) = ca_file {
                let pem = std::fs::read(&path).map_err(|source| Error::CaFile { path: path.clone(), source })?;
                let authorities = reqwest::Certificate::from_pem_bundle(&pem)
                    .ok()
                    .filter(|authorities| !authorities.is_empty())
                    .ok_or(Error::NoCertificate(path))?;
                builder = builder.tls_certs_only(authorities);
            }
            let client = builder.build().map_err(|source| Error::Client { backend: name.to_string(), source })?;
            clients.insert(name, client);
        }
        Ok(Self { clients })
    }
}

#[async_trait]
impl Transport for ReqwestTransport {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let Some(client) = self.clients.get(&request.backend) else {
            return Err(TransportError::Invalid(format!("there is no backend `{}`", request.backend)));
        };
        let limit = request.max_bytes;
        let timeout = request.timeout;
        let classify = |error: &reqwest::Error, sent: bool| {
            if error.is_timeout() {
                TransportError::Timeout(timeout)
            } else if error.is_builder() {
                TransportError::Invalid(chain(error))
            } else if sent {
                TransportError::Broken(chain(error))
            } else {
                TransportError::Connect(chain(error))
            }
        };
        let sending = client
            .request(request.method, request.url)
            .headers(request.headers)
            .body(request.body)
            .timeout(timeout)
            .send()
            .await;
        let mut response = sending.map_err(|error| classify(&error, false))?;
        let content_type = response.headers().get(http::header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let status = response.status().as_u16();
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| classify(&error, true))? {
            if body.len() + chunk.len() > limit {
                return Err(TransportError::TooLarge { limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status, content_type, body: body.freeze() })
    }
}

/// reqwest's own message says only that sending failed; why stands in the causes.
fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
