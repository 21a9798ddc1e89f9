//! HTTP and TCP connections to hosts that callers name; nothing else connects to such a host.
//!
//! A name is resolved once, refused unless all of its addresses may be connected to, and only those addresses
//! are dialled; each redirect is checked again. Proxy settings of the environment are ignored. Every wait,
//! body and number of requests is bounded.

mod address;
mod dial;
mod error;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http1;
mod target;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use rustls::ClientConfig;
use tokio::sync::Semaphore;

pub use address::NetworkAllowlist;
pub use dial::{CONNECT, CheckedStream};
pub use error::{EgressError, TimeoutPhase};
pub use fetch::{Download, DownloadBody, DownloadBudget, Fetcher, REDIRECTS_MAX};
pub use http1::{FIRST_BYTE, IDLE};
pub use target::{RequestUrl, UrlCredentials};

use crate::tls::{self, TrustAnchors, TrustError};

const LOOKUPS_MAX: usize = 32;
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("sightline/", env!("CARGO_PKG_VERSION")));

/// Operator's settings for connections to other hosts.
#[derive(Clone, Debug, Default)]
pub struct EgressConfig {
    /// Networks that may be connected to although they are not globally routable.
    pub networks: NetworkAllowlist,
    /// PEM file of certificates trusted in addition to the system's.
    pub ca_path: Option<PathBuf>,
    /// True if media may be fetched over unencrypted HTTP.
    pub insecure_http: bool,
    /// True if media may be fetched from hosts whose certificate is not verified.
    pub insecure_tls: bool,
}

/// Client for connections to other hosts; cheap to clone.
#[derive(Clone)]
pub struct EgressClient(Arc<Inner>);

struct Inner {
    networks: NetworkAllowlist,
    insecure_http: bool,
    /// TLS settings for media, which may skip verification by the operator's choice.
    media_tls: Arc<ClientConfig>,
    /// TLS settings for the server's own messages, which always verify.
    strict_tls: Arc<ClientConfig>,
    lookups: Arc<Semaphore>,
}

impl EgressClient {
    /// Creates the client and reads the trusted certificates.
    pub fn new(config: &EgressConfig) -> Result<EgressClient, TrustError> {
        let roots = tls::roots(config.ca_path.as_deref())?;
        if roots.is_empty() {
            tracing::warn!(
                "no trusted certificate: no TLS host can be reached; install the system's \
                 (ca-certificates) or set SERVICE_EGRESS_CA_PATH"
            );
        }
        let strict_tls = tls::client_config(TrustAnchors::Roots(roots))?;
        let media_tls = if config.insecure_tls {
            tls::client_config(TrustAnchors::InsecureAcceptAny)?
        } else {
            Arc::clone(&strict_tls)
        };
        Ok(EgressClient(Arc::new(Inner {
            networks: config.networks.clone(),
            insecure_http: config.insecure_http,
            media_tls,
            strict_tls,
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        })))
    }

    /// Checks that `target` may be connected to, by resolving its name.
    pub async fn check(&self, target: &RequestUrl) -> Result<(), EgressError> {
        self.resolve(target).await.map(drop)
    }

    /// Sends a message of the server to an `https` URL and returns the response, whatever its status.
    ///
    /// The request's own URI is ignored: the checked `target` is requested. Follows no redirect and always
    /// verifies the host. A response body longer than `reply_max` bytes is truncated. Ends within the sum of
    /// its timeouts, 30 s for the start of the response and as much for the rest: callers that need less set
    /// a timeout themselves.
    pub async fn request(
        &self,
        target: &RequestUrl,
        mut request: Request<Bytes>,
        reply_max: usize,
    ) -> Result<Response<Bytes>, EgressError> {
        if target.url().scheme() != "https" {
            return Err(EgressError::Scheme(target.url().scheme().to_owned()));
        }
        request.headers_mut().insert(header::USER_AGENT, AGENT);
        let stream = self.dial_with(target, &self.0.strict_tls).await?;
        http1::exchange(target, stream, request, reply_max).await
    }
}
