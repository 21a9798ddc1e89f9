//! Bytes to a backend and back: one client, deadlines, a limit on what is read, failures by class.
//!
//! Uses no proxy, follows no redirect, and repeats a request once where its connection ends within a
//! second and without a byte: nearly always one that was given up while it was idle. A backend that
//! takes a question in and closes as soon as that is asked twice. What else is sent again is decided
//! above.

use std::{
    error::Error,
    time::{Duration, Instant, SystemTime},
};

use reqwest::{
    Client, RequestBuilder, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use tokio::time::timeout;

use crate::{Failure, config::Secret};

/// Longest reply that is read.
pub const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time for a connection and its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Uvicorn, which vLLM and SGLang serve with, closes idle connections after 5 s: a connection that
/// is given up earlier is never one that the backend is just closing.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// A connection that ends sooner than this, without a byte, was given up while it was idle.
const STALE_MAX: Duration = Duration::from_secs(1);

/// The client could not be made of the TLS configuration.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client can be made for the backends: {0}")]
pub struct SetupError(#[source] reqwest::Error);

/// A whole response.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

/// The one client.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client,
}

impl Http {
    pub fn new(tls: rustls::ClientConfig) -> Result<Http, SetupError> {
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
        Ok(Http { client })
    }

    pub async fn post(
        &self,
        url: Url,
        headers: HeaderMap,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Response, Failure> {
        let json = HeaderValue::from_static("application/json");
        let request = self.client.post(url).headers(headers).header(CONTENT_TYPE, json).body(body);
        within(limit, request).await
    }

    pub async fn get(
        &self,
        url: Url,
        headers: HeaderMap,
        limit: Duration,
    ) -> Result<Response, Failure> {
        within(limit, self.client.get(url).headers(headers)).await
    }
}

/// The header that carries `key`, marked so that no layer logs it.
pub(crate) fn key_header(name: HeaderName, prefix: &str, key: &Secret) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A key is visible ASCII: `Secret::new` saw to it.
    if let Ok(mut value) = HeaderValue::from_str(&format!("{prefix}{}", key.reveal())) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

async fn within(limit: Duration, request: RequestBuilder) -> Result<Response, Failure> {
    timeout(limit, whole(request)).await.unwrap_or_else(|_| Err(timed_out(limit)))
}

/// No answer within `limit`. The parts of a millisecond say nothing to whoever reads the message.
pub(crate) fn timed_out(limit: Duration) -> Failure {
    let after = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    Failure::Timeout { after }
}

async fn whole(request: RequestBuilder) -> Result<Response, Failure> {
    let too_large = Failure::TooLarge { bytes_max: REPLY_BYTES_MAX };
    let mut response = sent(request).await.map_err(|error| failure(&error))?;
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(pause);
    let announced = response.content_length().unwrap_or(0);
    if announced > REPLY_BYTES_MAX as u64 {
        return Err(too_large);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if body.len() + chunk.len() > REPLY_BYTES_MAX {
            return Err(too_large);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Response { status, retry_after, body })
}

/// Sends `request`, and once more where its connection turns out to be gone: the backend, or what
/// stands in front of it, has closed it since the last request.
async fn sent(request: RequestBuilder) -> reqwest::Result<reqwest::Response> {
    let started = Instant::now();
    let again = request.try_clone();
    match (request.send().await, again) {
        (Err(error), Some(again))
            if failure(&error) == Failure::Closed && started.elapsed() < STALE_MAX =>
        {
            again.send().await
        }
        (came, _) => came,
    }
}

/// `Retry-After`, in seconds or as a date.
fn pause(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let seconds = text.trim().parse().map(Duration::from_secs).ok();
    seconds.or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        // A date that has passed means now.
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    })
}

/// The class of `error`. Its text holds the URL, and goes nowhere.
fn failure(error: &reqwest::Error) -> Failure {
    if error.is_connect() {
        return Failure::Refused;
    }
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if inner.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return Failure::Malformed { problem: "it is not HTTP" };
        }
        cause = inner.source();
    }
    Failure::Closed
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
