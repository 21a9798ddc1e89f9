//! Requests of the object store's client over our own HTTP client, and failures by class.
//!
//! Uses no proxy and follows no redirect. An answer that refuses becomes an error here, where its
//! body is still at hand; the client above sends again what may pass.

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

/// Time for a connection and its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A store closes idle connections after longer than this.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// As much as is read of the body of a refusal, and of an answer that tells of a thousand keys.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The one client.
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

/// A request as its answer is judged.
struct Asked {
    /// It goes to the store; requests for credentials are not signed, or not in this way.
    is_signed: bool,
    is_post: bool,
    /// Parts of it that no text may hold.
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

    /// Returns the refusal in an answer, if it is one.
    fn refusal(&self, answer: &Parts, text: &str) -> Option<Failure> {
        let refused = |body: &str| {
            let (status, headers) = (answer.status, &answer.headers);
            Failure::refused(status, headers, body, &self.secrets, self.is_signed)
        };
        if !answer.status.is_success() {
            return Some(refused(text));
        }
        // A key that was not there is removed already.
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
        // In its answers to a POST a store tells of failures with a status of success.
        if is_success && !(asked.is_post && asked.is_signed) {
            let body = HttpResponseBody::new(body.map_err(|error| broken(&error)));
            return Ok(HttpResponse::from_parts(parts, body));
        }
        let text = match read(body).await {
            Ok(text) => text,
            // The status says enough of a refusal.
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

/// Reads a body of text to its end.
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

/// The failure of a request that has no answer.
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

/// Says why there is no connection: the innermost cause, which names no URL.
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

/// The failure of an answer that breaks off.
fn broken(error: &HttpError) -> HttpError {
    let failure = match error.kind() {
        HttpErrorKind::Timeout => Failure::lost(RemoteFault::Slow, "its answer stands still"),
        _ => Failure::lost(RemoteFault::Unreachable, "the connection ended within an answer"),
    };
    HttpError::new(error.kind(), failure)
}
