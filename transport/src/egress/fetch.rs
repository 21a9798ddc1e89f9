//! Downloads of one job: bodies from any byte on, with redirects followed and a shared budget.
//!
//! A resource that is reopened must have the same version as before, as long as it is among the last that
//! were opened. Bodies are streamed and never stored.

mod body;
mod response_head;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::Instant;
use url::Url;

use super::{
    AGENT, EgressClient, EgressError, RequestUrl, TimeoutPhase,
    http1::{FIRST_BYTE, Http1Connection},
};
pub(in crate::egress) use response_head::ResponseHead;

pub use body::DownloadBody;

/// Most redirects followed per request.
pub const REDIRECTS_MAX: usize = 5;

/// Most resources remembered per job; a decoder returns to few.
const KNOWN_MAX: usize = 128;
/// Most hosts per job whose credentials are remembered.
const CREDENTIALS_MAX: usize = 16;

/// Download budget of one job, shared by all of its downloads.
#[derive(Debug)]
pub struct DownloadBudget {
    bytes_max: u64,
    bytes: AtomicU64,
    fetches_max: u64,
    fetches: AtomicU64,
    time: Duration,
    end: Instant,
}

impl DownloadBudget {
    /// Creates a budget of bytes and requests that ends after `time`.
    pub fn new(bytes_max: u64, fetches_max: u64, time: Duration) -> Arc<DownloadBudget> {
        let (bytes, fetches) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(DownloadBudget {
            bytes_max,
            bytes,
            fetches_max,
            fetches,
            time,
            end: Instant::now() + time,
        })
    }

    /// Charges bytes of a body; an error if the budget is exceeded.
    pub fn take(&self, bytes: u64) -> Result<(), EgressError> {
        count(&self.bytes, bytes, self.bytes_max, "bytes")
    }

    fn fetch(&self) -> Result<(), EgressError> {
        count(&self.fetches, 1, self.fetches_max, "requests")
    }

    /// Returns the bytes charged so far.
    pub fn used(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the instant at which all time is used up.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Returns the error to report at [`DownloadBudget::end`].
    pub fn late(&self) -> EgressError {
        EgressError::Timeout { wait: TimeoutPhase::Total, after: self.time }
    }
}

fn count(used: &AtomicU64, more: u64, limit: u64, amount: &'static str) -> Result<(), EgressError> {
    let before = used.fetch_add(more, Relaxed);
    if before.saturating_add(more) > limit {
        return Err(EgressError::TooMuch { amount, limit });
    }
    Ok(())
}

/// Started download.
#[derive(Debug)]
pub struct Download {
    /// Final URL after redirects, without credentials.
    pub url: Url,
    /// Bytes of the whole resource, if known.
    pub size: Option<u64>,
    /// True if the resource can be opened at another byte.
    pub seekable: bool,
    /// Body of the response.
    pub body: DownloadBody,
}

/// Resource known from an earlier response.
#[derive(Clone, Debug)]
struct Known {
    target: RequestUrl,
    head: ResponseHead,
}

/// Downloads of one job.
pub struct Fetcher {
    egress: EgressClient,
    budget: Arc<DownloadBudget>,
    /// Targets with credentials, one of each host; the oldest are dropped first.
    credentials: VecDeque<RequestUrl>,
    /// Resources opened last by URL; the oldest are forgotten first.
    known: VecDeque<(Url, Known)>,
    idle: body::IdleConnection,
}

impl Fetcher {
    /// Creates a fetcher with `budget`.
    pub fn new(egress: EgressClient, budget: Arc<DownloadBudget>) -> Fetcher {
        let idle = body::IdleConnection::default();
        let (credentials, known) = (VecDeque::new(), VecDeque::new());
        Fetcher { egress, budget, credentials, known, idle }
    }

    /// Opens `target` from byte `from` on.
    ///
    /// Credentials of a target are used only for its host, port and encryption.
    pub async fn get(&mut self, target: &RequestUrl, from: u64) -> Result<Download, EgressError> {
        if target.credentials().is_some() {
            self.learn(target);
        }
        let known = self.known(target.url()).cloned();
        let mut next = known.as_ref().map_or_else(|| target.clone(), |known| known.target.clone());
        for _ in 0..=REDIRECTS_MAX {
            let (connection, response) = self.ask(&next, from, known.as_ref()).await?;
            if let Some(location) = location(&next, &response)? {
                next = next.join(&location)?;
                continue;
            }
            let head = ResponseHead::read(&next, &response, from)?;
            if let Some(known) = &known {
                head.check_same(&next, &known.head)?;
            }
            let skip = head.skip(&next, from)?;
            let (size, seekable) = (head.size, head.is_seekable());
            self.remember(target, &next, head);
            let url = next.url().clone();
            let mut body = DownloadBody {
                target: next,
                incoming: response.into_body(),
                connection: Some(connection),
                budget: Arc::clone(&self.budget),
                idle: self.idle.clone(),
                pending: Bytes::new(),
            };
            body.skip(skip).await?;
            return Ok(Download { url, size, seekable, body });
        }
        Err(EgressError::Redirects { limit: REDIRECTS_MAX })
    }

    /// Forgets the version of `url`, which may change, as a live playlist does.
    pub fn forget(&mut self, url: &Url) {
        self.known.retain(|(of, _)| of != url);
    }

    fn known(&self, url: &Url) -> Option<&Known> {
        self.known.iter().find(|(of, _)| of == url).map(|(_, known)| known)
    }

    /// Stores the credentials of a host; the newest replace older ones.
    fn learn(&mut self, target: &RequestUrl) {
        self.credentials.retain(|owner| !owner.is_beside(target));
        if self.credentials.len() >= CREDENTIALS_MAX {
            self.credentials.pop_front();
        }
        self.credentials.push_back(target.clone());
    }

    fn remember(&mut self, asked: &RequestUrl, found: &RequestUrl, head: ResponseHead) {
        let known = Known { target: found.clone(), head };
        for url in [found.url(), asked.url()] {
            self.forget(url);
            if self.known.len() >= KNOWN_MAX {
                self.known.pop_front();
            }
            self.known.push_back((url.clone(), known.clone()));
        }
    }

    /// Sends one request, on the idle connection of an earlier one if it leads to the same host.
    async fn ask(
        &self,
        target: &RequestUrl,
        from: u64,
        known: Option<&Known>,
    ) -> Result<(Http1Connection, Response<Incoming>), EgressError> {
        self.check_scheme(target)?;
        self.budget.fetch()?;
        let request = || self.request(target, from, known);
        let opened = async {
            if let Some(mut connection) = self.idle.take(target).await {
                let answered = connection.send(target, request(), FIRST_BYTE).await;
                let Err(EgressError::Unanswered { .. }) = answered else {
                    return answered.map(|response| (connection, response));
                };
                // A server may close an idle connection at any moment; then the request is sent again on a
                // new one (RFC 9110 9.2.2).
                self.budget.fetch()?;
            }
            let stream = self.egress.dial(target).await?;
            let mut connection = Http1Connection::open(target, stream).await?;
            let response = connection.send(target, request(), FIRST_BYTE).await?;
            Ok((connection, response))
        };
        tokio::time::timeout_at(self.budget.end(), opened)
            .await
            .unwrap_or_else(|_| Err(self.budget.late()))
    }

    fn check_scheme(&self, target: &RequestUrl) -> Result<(), EgressError> {
        match target.url().scheme() {
            "https" => Ok(()),
            "http" if self.egress.0.insecure_http => Ok(()),
            "http" => Err(EgressError::NotEnabled {
                scheme: "http".to_owned(),
                setting: "SERVICE_ALLOW_INSECURE_HTTP",
            }),
            scheme => Err(EgressError::Scheme(scheme.to_owned())),
        }
    }

    fn request(&self, target: &RequestUrl, from: u64, known: Option<&Known>) -> Request<Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, AGENT);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let range = HeaderValue::try_from(format!("bytes={from}-")).expect("digits");
        headers.insert(header::RANGE, range);
        let validator = known.and_then(|known| known.head.strong_etag());
        if let Some(validator) = validator.filter(|_| from > 0) {
            let validator = HeaderValue::from_bytes(validator).expect("it was one");
            headers.insert(header::IF_RANGE, validator);
        }
        let owner = self.credentials.iter().find(|owner| owner.is_beside(target));
        if let Some(credentials) = owner.and_then(RequestUrl::credentials) {
            headers.insert(header::AUTHORIZATION, credentials.basic());
        }
        let mut request = Request::new(Bytes::new());
        *request.headers_mut() = headers;
        request
    }
}

/// Returns the target of a redirect; `None` for other responses.
fn location(
    target: &RequestUrl,
    response: &Response<Incoming>,
) -> Result<Option<String>, EgressError> {
    use StatusCode as Code;
    let is_redirect = matches!(
        response.status(),
        Code::MOVED_PERMANENTLY
            | Code::FOUND
            | Code::SEE_OTHER
            | Code::TEMPORARY_REDIRECT
            | Code::PERMANENT_REDIRECT
    );
    if !is_redirect {
        return Ok(None);
    }
    let value = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let host = target.host().to_owned();
    let missing = EgressError::Answer { host, problem: "redirects to nowhere" };
    value.map(str::to_owned).map(Some).ok_or(missing)
}

#[cfg(test)]
mod tests;
