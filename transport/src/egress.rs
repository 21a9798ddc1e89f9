//! Reaching other hosts: the only way out of the server.
//!
//! A name is resolved once, refused unless every address may be connected to, and only those
//! addresses are dialled; redirects are followed by hand, each checked again. No proxy is read
//! from the environment. Every wait, body and number of requests is bounded.

mod address;
mod dial;
mod error;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http1;
mod target;

use std::{fmt, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use rustls::ClientConfig;
use tokio::sync::Semaphore;

pub use address::{NetworkAllowlist, is_global};
pub use dial::{AsyncStream, CONNECT, CheckedStream};
pub use error::{DownloadLimit, EgressError, TimeoutPhase};
pub use fetch::{Download, DownloadBody, DownloadBudget, Fetcher, REDIRECTS_MAX};
pub use http1::{FIRST_BYTE, IDLE};
pub use target::{RequestUrl, UrlCredentials};

use crate::tls::{self, TrustAnchors, TrustError};

/// Name lookups at once.
const LOOKUPS_MAX: usize = 32;
/// `User-Agent` of requests.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("sightline/", env!("CARGO_PKG_VERSION")));

/// Permissions of the operator for requests to other hosts.
#[derive(Clone, Debug, Default)]
pub struct EgressConfig {
    /// Networks that may be connected to although they are not public.
    pub networks: NetworkAllowlist,
    /// PEM file of certificates trusted beside the system's.
    pub ca_path: Option<PathBuf>,
    /// Media may come over unencrypted HTTP.
    pub insecure_http: bool,
    /// Media may come from hosts that do not prove who they are.
    pub insecure_tls: bool,
}

/// The way out; cheap to clone.
#[derive(Clone)]
pub struct EgressClient(Arc<Inner>);

struct Inner {
    networks: NetworkAllowlist,
    insecure_http: bool,
    /// For media: believes what the operator says.
    media_tls: Arc<ClientConfig>,
    /// For our own messages: always verifies.
    strict_tls: Arc<ClientConfig>,
    lookups: Arc<Semaphore>,
}

impl fmt::Debug for EgressClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("networks", &self.0.networks).finish_non_exhaustive()
    }
}

impl EgressClient {
    /// Reads the trusted certificates.
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

    /// Checks that `target` may be connected to, as far as its name tells now.
    pub async fn check(&self, target: &RequestUrl) -> Result<(), EgressError> {
        self.resolve(target).await.map(drop)
    }

    /// Sends a message of our own to an `https` URL and returns the answer, whatever its status.
    ///
    /// The request's own URI is not looked at: what was checked is what is asked for. Follows no
    /// redirect and always verifies the host. A reply longer than `reply_max` bytes
    /// is cut there. Ends within the sum of its waits, 30 s for the start of the reply and as much
    /// for the rest: callers that want less time out themselves.
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
