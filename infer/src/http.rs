//! HTTP client for the backends: deadlines, a limit on the response size, failures by class.
//!
//! Uses no proxy, follows no redirect and retries nothing by itself: it reports whether the closed connection
//! had answered before, and the caller decides about a retry.

use std::{
    collections::VecDeque,
    error::Error,
    iter,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use hyper_util::client::legacy::{self, connect::HttpInfo};
use reqwest::{
    Client, RequestBuilder, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};

use crate::{FailureKind, config::ApiKey};

/// Longest response that is read, in bytes.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time limit for a connection and its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Uvicorn, the server of vLLM and SGLang, closes idle connections after 5 s; connections closed earlier here
/// never race with that.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// Longest time in which a used connection that closes without a byte counts as stale, i.e. closed by the
/// backend while idle.
const STALE_MAX: Duration = Duration::from_secs(1);
/// Most connections remembered as having answered; more than are ever idle at once.
const KNOWN_MAX: usize = 1024;

/// The client could not be made from the TLS configuration.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client can be made for the backends: {0}")]
pub struct SetupError(#[source] reqwest::Error);

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoResponse {
    pub failure: FailureKind,
    /// True if the connection had answered before and closed at once: almost always a connection that the
    /// backend closed while idle.
    pub is_stale: bool,
}

impl From<FailureKind> for NoResponse {
    fn from(failure: FailureKind) -> NoResponse {
        NoResponse { failure, is_stale: false }
    }
}

/// HTTP client shared by all backends.
#[derive(Debug)]
pub(crate) struct HttpClient {
    client: Client,
    /// Local addresses of connections that have answered, most recent last.
    answered: Mutex<VecDeque<SocketAddr>>,
}

impl HttpClient {
    pub fn new(tls: rustls::ClientConfig) -> Result<HttpClient, SetupError> {
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_MAX)
            .user_agent(concat!("sightline/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(SetupError)?;
        Ok(HttpClient { client, answered: Mutex::default() })
    }

    pub async fn post(
        &self,
        url: Url,
        headers: HeaderMap,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<HttpResponse, NoResponse> {
        let json = HeaderValue::from_static("application/json");
        let request = self.client.post(url).headers(headers).header(CONTENT_TYPE, json).body(body);
        self.within(limit, request).await
    }

    pub async fn get(
        &self,
        url: Url,
        headers: HeaderMap,
        limit: Duration,
    ) -> Result<HttpResponse, NoResponse> {
        self.within(limit, self.client.get(url).headers(headers)).await
    }

    async fn within(
        &self,
        limit: Duration,
        request: RequestBuilder,
    ) -> Result<HttpResponse, NoResponse> {
        let ended = tokio::time::timeout(limit, self.whole(request)).await;
        ended.unwrap_or_else(|_| Err(timed_out(limit).into()))
    }

    async fn whole(&self, request: RequestBuilder) -> Result<HttpResponse, NoResponse> {
        let too_large = || NoResponse::from(FailureKind::TooLarge { bytes_max: REPLY_BYTES_MAX });
        let started = Instant::now();
        let sent = request.send().await.map_err(|error| self.lost(&error, started.elapsed()));
        let mut response = sent?;
        if let Some(info) = response.extensions().get::<HttpInfo>() {
            self.keep(info.local_addr());
        }
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(pause);
        let announced = response.content_length().unwrap_or(0);
        if announced > REPLY_BYTES_MAX as u64 {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if body.len() + chunk.len() > REPLY_BYTES_MAX {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, retry_after, body })
    }

    fn answered(&self) -> MutexGuard<'_, VecDeque<SocketAddr>> {
        // A panic between two changes loses one entry at most.
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, connection: SocketAddr) {
        let mut answered = self.answered();
        answered.retain(|known| *known != connection);
        if answered.len() == KNOWN_MAX {
            answered.pop_front();
        }
        answered.push_back(connection);
    }

    /// Returns the failure of a request that ended without a response, `after` its start.
    fn lost(&self, error: &reqwest::Error, after: Duration) -> NoResponse {
        let failure = failure(error);
        let had_answered = connection(error).is_some_and(|connection| {
            let mut answered = self.answered();
            let known = answered.len();
            answered.retain(|known| *known != connection);
            answered.len() < known
        });
        let is_stale = had_answered && failure == FailureKind::Closed && after < STALE_MAX;
        NoResponse { failure, is_stale }
    }
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    iter::successors(error.source(), |&inner| inner.source())
}

/// Returns the local address of the connection that `error` is about.
fn connection(error: &reqwest::Error) -> Option<SocketAddr> {
    let mut errors = causes(error).filter_map(|inner| inner.downcast_ref::<legacy::Error>());
    let mut extras = http::Extensions::new();
    errors.find_map(legacy::Error::connect_info)?.get_extras(&mut extras);
    extras.get::<HttpInfo>().map(HttpInfo::local_addr)
}

/// Returns the header that carries `key`, marked sensitive so that no layer logs it.
pub(crate) fn key_header(name: HeaderName, prefix: &str, key: &ApiKey) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A key is visible ASCII, as `ApiKey::new` ensures.
    if let Ok(mut value) = HeaderValue::from_str(&format!("{prefix}{}", key.reveal())) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// Returns a timeout failure with `limit` rounded up to whole milliseconds, so that the short delay before
/// the start does not show in the caller's limit.
pub(crate) fn timed_out(limit: Duration) -> FailureKind {
    let millis = limit.as_nanos().div_ceil(1_000_000).max(1);
    FailureKind::Timeout { after: Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)) }
}

/// Parses `Retry-After`, given in seconds or as a date.
fn pause(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let seconds = text.trim().parse().map(Duration::from_secs).ok();
    seconds.or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        // A date in the past means no delay.
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    })
}

/// Returns the failure class of `error`, whose text holds the URL and must not be shown.
fn failure(error: &reqwest::Error) -> FailureKind {
    if error.is_connect() {
        return FailureKind::Refused;
    }
    let mut errors = causes(error).filter_map(|inner| inner.downcast_ref::<hyper::Error>());
    match errors.any(hyper::Error::is_parse) {
        true => FailureKind::Malformed { problem: "it is not HTTP" },
        false => FailureKind::Closed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use reqwest::header::HeaderValue;

    use super::pause;

    #[test]
    fn a_pause_is_read_as_seconds_or_as_a_date() {
        let read = |text: &str| pause(&HeaderValue::from_str(text).expect("a header value"));
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read(" 0 "), Some(Duration::ZERO));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
        assert_eq!(read("-1"), None);
        let later = SystemTime::now() + Duration::from_secs(3600);
        let read = read(&httpdate::fmt_http_date(later)).expect("a date");
        assert!(read > Duration::from_secs(3500) && read <= Duration::from_secs(3600), "{read:?}");
    }
}
