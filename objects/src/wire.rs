//! HTTP connector of the object store's client, which classifies failures.
//!
//! Uses no proxy and follows no redirect. An error answer is turned into an error here, where its body is
//! available; the client above retries if that may help.

use std::{error::Error, io, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt;
use http::{Method, response::Parts};
use http_body_util::BodyExt;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use timeline::RemoteFault;

use crate::{
    SetupError,
    failure::{Failure, element, shown},
};

/// Timeout of a connection and its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest idle time of a pooled connection; stores close idle connections later than this.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// Maximum bytes read of the body of an error, or of an answer about a thousand keys.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// HTTP client shared by all requests.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    client: reqwest::Client,
}

impl Wire {
    pub fn new(tls: rustls::ClientConfig) -> Result<Wire, SetupError> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_MAX)
            .user_agent(concat!("sightline/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(SetupError::Client)?;
        Ok(Wire { client })
    }
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// Properties of a request that its answer is interpreted by.
struct Asked {
    /// True for a request to the store; requests for credentials are unsigned, or signed differently.
    is_signed: bool,
    is_post: bool,
    /// Parts of the request that no error may contain.
    secrets: Vec<String>,
}

impl Asked {
    fn of(request: &HttpRequest) -> Asked {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let authorization = header("authorization").unwrap_or_default();
        let is_signed = authorization.starts_with("AWS4-");
        // `AWS4-HMAC-SHA256 Credential=KEY/date/region/service/kind, ..., Signature=digits`, or a token.
        let words = authorization.split([' ', ',']);
        let words = words.filter(|word| !word.starts_with("AWS4-") && !word.contains("Headers="));
        let words = words.map(|word| {
            let value = word.split_once('=').map_or(word, |(_, value)| value);
            if is_signed { value.split('/').next().unwrap_or(value) } else { word }
        });
        let token = header("x-amz-security-token");
        let query = request.uri().query().unwrap_or_default().split('&');
        let identity = query.filter_map(|pair| pair.strip_prefix("WebIdentityToken="));
        let secrets = words.chain(token).chain(identity).filter(|secret| !secret.is_empty());
        let is_post = request.method() == Method::POST;
        Asked { is_signed, is_post, secrets: secrets.map(str::to_owned).collect() }
    }

    /// Returns the error in an answer, if any.
    fn refusal(&self, answer: &Parts, text: &str) -> Option<Failure> {
        let refused = |body: &str| {
            let (status, headers) = (answer.status, &answer.headers);
            Failure::refused(status, headers, body, &self.secrets, self.is_signed)
        };
        if !answer.status.is_success() {
            return Some(refused(text));
        }
        // A missing key counts as removed.
        let is_other = |error: &&str| element(error, "Code").is_none_or(|code| code != "NoSuchKey");
        text.split("<Error>").skip(1).find(is_other).map(refused)
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = Asked::of(&request);
        let response = self.client.call(request).await.map_err(|error| unanswered(&error))?;
        let (parts, body) = response.into_parts();
        let is_success = parts.status.is_success();
        // A store may answer a POST with a success status and an error in the body.
        if is_success && !(asked.is_post && asked.is_signed) {
            let body = HttpResponseBody::new(body.map_err(|error| broken(&error)));
            return Ok(HttpResponse::from_parts(parts, body));
        }
        let text = match read(body).await {
            Ok(text) => text,
            // The status suffices as an error.
            Err(_) if !is_success => String::new(),
            Err(error) => return Err(error),
        };
        match asked.refusal(&parts, &text) {
            Some(failure) if failure.is_passing() => {
                Err(HttpError::new(HttpErrorKind::Request, failure))
            }
            Some(failure) => Err(HttpError::new(HttpErrorKind::Unknown, failure)),
            None => Ok(HttpResponse::from_parts(parts, text.into())),
        }
    }
}

/// Reads a text body to its end.
async fn read(body: HttpResponseBody) -> Result<String, HttpError> {
    let (mut content, mut stream) = (Vec::new(), body.bytes_stream());
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| broken(&error))?;
        if content.len() + piece.len() > ANSWER_BYTES_MAX {
            let failure = Failure::lost(RemoteFault::Failed, "its answer is too long");
            return Err(HttpError::new(HttpErrorKind::Unknown, failure));
        }
        content.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// Returns the error of a request without an answer.
fn unanswered(error: &HttpError) -> HttpError {
    let ours = error.source().and_then(|source| source.downcast_ref::<reqwest::Error>());
    let failure = match ours {
        Some(cause) if cause.is_connect() => {
            Failure::lost(RemoteFault::Unreachable, unconnected(cause))
        }
        _ if error.kind() == HttpErrorKind::Timeout => {
            Failure::lost(RemoteFault::Slow, "no answer in time")
        }
        _ => Failure::lost(RemoteFault::Unreachable, "the connection ended before an answer"),
    };
    HttpError::new(error.kind(), failure)
}

/// Returns the reason of a failed connection: the innermost cause, which contains no URL.
fn unconnected(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
    }
    let (mut cause, mut innermost) = (error.source(), String::from("no connection"));
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return "connection refused".to_owned();
        }
        innermost = inner.to_string();
        cause = inner.source();
    }
    shown(&innermost, &[])
}

/// Returns the error of an answer that was cut off.
fn broken(error: &HttpError) -> HttpError {
    let failure = match error.kind() {
        HttpErrorKind::Timeout => Failure::lost(RemoteFault::Slow, "its answer stands still"),
        _ => Failure::lost(RemoteFault::Unreachable, "the connection ended within an answer"),
    };
    HttpError::new(error.kind(), failure)
}
