//! HTTP client of the API: each request returns the response or one clear error.
//!
//! Follows no redirect, so the key is sent only to the named server, and never prints the key.

mod items;
mod target;
mod upload;

use std::{
    io::{self, Read},
    time::Duration,
};

use reqwest::{
    Method, StatusCode, Url,
    blocking::{Client as Http, RequestBuilder, Response},
    header::{HeaderMap, LINK},
    redirect::Policy,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    error::{ApiError, CliError},
    output::{counted, printable},
    trust::CaArgs,
};
use items::Stopped;
pub use target::{ServerArgs, Target, header, run_path};

/// Time limit of a request without work on the server.
pub const QUICK: Duration = Duration::from_secs(30);
/// Time limit of a request whose answer the server may hold for 30 s: a lookup of a job that waits for its
/// end, or a deletion.
pub const HELD: Duration = Duration::from_secs(60);
/// Time limit of a request that decodes a whole file.
pub const LONG: Duration = Duration::from_secs(6 * 3600);

/// Time limit of opening a connection, and of an answer that says how the server is.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Most bytes of an error response that are read.
const ERROR_BYTES_MAX: u64 = 64 << 10;
const KEPT_TEXT: usize = 300;
const FILES: &str = "/v1/files/";

const NO_KEY: &str = "; SIGHTLINE_API_KEY is not set: set it to one of the server's SERVICE_API_KEYS, \
    without the name before the colon";
const OTHER_KEY: &str = "; SIGHTLINE_API_KEY (or --key) is none of the server's SERVICE_API_KEYS: it \
    is what follows the name and the colon there";

const NO_TENANT: &str = "; --tenant or SIGHTLINE_TENANT_ID names it";

/// A server, and the credentials for it.
pub struct ApiClient {
    http: Http,
    trust: CaArgs,
    pub target: Target,
}

impl ApiClient {
    /// Checks the address and creates a client; connects later.
    pub fn new(args: &ServerArgs) -> Result<ApiClient, CliError> {
        let target = Target::new(args)?;
        let http = args.trust.client(&target.base, |builder| {
            let builder = builder.timeout(QUICK).connect_timeout(CONNECT).redirect(Policy::none());
            // A proxy configured for the web must not see the key.
            builder.no_proxy()
        })?;
        Ok(ApiClient { http, trust: args.trust.clone(), target })
    }

    /// Sends `GET path` with a query string and parses the response.
    pub fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, CliError> {
        let url = self.target.asked(path, query)?;
        self.answer(self.request(Method::GET, url, QUICK))
    }

    /// Sends `GET path` to a server that is to answer at once.
    pub fn get_at_once<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.answer(self.request(Method::GET, self.target.url(path)?, CONNECT))
    }

    /// Sends `GET path` and returns the response for streaming; a read fails after [`QUICK`] without data.
    pub fn reading(&self, path: &str, query: &[(&str, String)]) -> Result<Response, CliError> {
        // A timeout of the client applies to each read, a timeout of the request to the whole response.
        let request = self.http.get(self.target.asked(path, query)?).headers(self.target.headers());
        self.exchange(request)
    }

    /// Streams the items of the array `list` in a response to `take`, with the fields that precede the array. A list
    /// that leaves out events that the server cannot read is noted on stderr.
    pub fn each<T: DeserializeOwned>(
        &self,
        answer: Response,
        list: &str,
        take: impl FnMut(&Map<String, Value>, T) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let fields = items::each(answer, list, take).map_err(|stopped| match stopped {
            Stopped::Taker(error) => error,
            Stopped::Cut => CliError::Unreachable {
                server: self.target.server(),
                reason: "the answer was cut short: try again".to_owned(),
            },
            Stopped::Json(error) => self.target.odd(error),
        })?;
        note_damaged(fields.get("damaged_events").and_then(Value::as_u64).unwrap_or(0));
        Ok(())
    }

    /// Fetches the list at the JSON pointer `list` of every page of `path`, following the `Link` headers. A list that
    /// leaves out events that the server cannot read is noted on stderr.
    pub fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        list: &str,
    ) -> Result<Vec<T>, CliError> {
        let mut url = self.target.asked(path, query)?;
        let (mut items, mut damaged) = (Vec::new(), 0);
        loop {
            let reply = self.exchange(self.request(Method::GET, url.clone(), QUICK))?;
            let next = next_query(reply.headers());
            let mut page: Value = self.parse(reply)?;
            damaged = page["damaged_events"].as_u64().unwrap_or(0).max(damaged);
            let found = page.pointer_mut(list).map(Value::take).unwrap_or_default();
            let found = serde_json::from_value(found).map_err(|error| self.target.odd(error))?;
            items.extend::<Vec<T>>(found);
            // Uses only the query: a proxy may map the server's paths.
            match next {
                Some(next) if url.query() != Some(&next) => url.set_query(Some(&next)),
                _ => break,
            }
        }
        note_damaged(damaged);
        Ok(items)
    }

    /// Sends `POST path` with a JSON body and parses the response.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<T, CliError> {
        let request = self.request(Method::POST, self.target.url(path)?, patience).json(body);
        self.answer(request)
    }

    /// Like `post`, but asks the server to answer with a job if it can, and waits as long as for the work.
    pub fn post_async(&self, path: &str, body: &impl Serialize) -> Result<Value, CliError> {
        let request = self.request(Method::POST, self.target.url(path)?, LONG).json(body);
        self.answer(request.header("prefer", "respond-async"))
    }

    /// Sends `PATCH path` with a JSON body and parses the response.
    pub fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CliError> {
        let request = self.request(Method::PATCH, self.target.url(path)?, QUICK).json(body);
        self.answer(request)
    }

    /// Sends `DELETE path` and parses the response.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.answer(self.request(Method::DELETE, self.target.url(path)?, HELD))
    }

    /// Returns the body of `GET path`.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, CliError> {
        let reply = self.exchange(self.request(Method::GET, self.target.url(path)?, LONG))?;
        reply.bytes().map(Vec::from).map_err(|error| self.target.unreachable(&error))
    }

    fn request(&self, method: Method, url: Url, patience: Duration) -> RequestBuilder {
        self.http.request(method, url).timeout(patience).headers(self.target.headers())
    }

    fn exchange(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let request = request.build().map_err(|error| self.target.unreachable(&error))?;
        let limit = request.timeout().copied().unwrap_or(QUICK);
        let reply = self.http.execute(request).map_err(|error| {
            if !error.is_timeout() || error.is_connect() {
                return self.target.unreachable(&error);
            }
            let reason = format!("no answer within {} s", limit.as_secs());
            CliError::Unreachable { server: self.target.server(), reason }
        })?;
        if reply.status().is_success() {
            return Ok(reply);
        }
        let (status, path) = (reply.status(), reply.url().path().to_owned());
        let error = refusal(reply).map_err(|error| CliError::Unreachable {
            server: self.target.server(),
            reason: read_cause(&error),
        })?;
        Err(self.explained((status, &path), error))
    }

    /// Adds advice to an error response.
    fn explained(&self, (status, path): (StatusCode, &str), mut error: ApiError) -> CliError {
        match status {
            StatusCode::UNAUTHORIZED if error.message.contains("x-tenant-id") => {
                error.message.push_str(NO_TENANT);
            }
            StatusCode::UNAUTHORIZED if self.target.key.is_none() => error.message.push_str(NO_KEY),
            StatusCode::UNAUTHORIZED => error.message.push_str(OTHER_KEY),
            // A known route's 404 has an error envelope, except for files.
            StatusCode::NOT_FOUND if error.request_id.is_none() && !path.contains(FILES) => {
                let known = printable(path);
                error.message = format!(
                    "{} has no {known}: it is older than this command, or no Sightline server",
                    self.target.server()
                );
            }
            _ => {}
        }
        CliError::Api(error)
    }

    /// Sends a request and parses the response.
    fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CliError> {
        self.parse(self.exchange(request)?)
    }

    fn parse<T: DeserializeOwned>(&self, reply: Response) -> Result<T, CliError> {
        let bytes = reply.bytes().map_err(|error| self.target.unreachable(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.target.odd(error))
    }
}

/// Returns the body of a request without the fields that are null.
pub fn given(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

/// Notes that a list leaves out events, unless there are none.
pub fn note_damaged(count: u64) {
    if count > 0 {
        note!(
            "sightline: left out {} that the server cannot read: its log is damaged, as \
             `sightline log verify` says there",
            counted(count, "event")
        );
    }
}

/// Returns the query of the link to the next page.
pub fn next_query(headers: &HeaderMap) -> Option<String> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let (target, _) = next.trim().strip_prefix('<')?.split_once('>')?;
    Some(target.split_once('?')?.1.to_owned())
}

/// Returns the innermost cause, which names the fault ("connection refused") instead of a layer.
pub fn root_cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "timed out".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = cause.to_string();
    match cause.contains("UnknownIssuer") {
        true => format!("{cause}: name what to trust with --ca or SIGHTLINE_CA"),
        false => cause,
    }
}

/// Returns the innermost cause of an error while a response was read.
pub fn read_cause(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<reqwest::Error>());
    inner.map_or_else(|| error.to_string(), root_cause)
}

/// Reads an error response, of which only the first [`ERROR_BYTES_MAX`] count.
pub fn refusal(reply: Response) -> io::Result<ApiError> {
    let (status, mut body) = (reply.status(), Vec::new());
    reply.take(ERROR_BYTES_MAX).read_to_end(&mut body)?;
    Ok(api_error(status, &String::from_utf8_lossy(&body)))
}

/// Parses an error response, an envelope or plain text; three dots stand for the rest of a long text.
pub fn api_error(status: StatusCode, text: &str) -> ApiError {
    let parsed: Value = serde_json::from_str(text).unwrap_or_default();
    let (error, word) = (&parsed["error"], |word: &Value| word.as_str().map(printable));
    // Routes outside the API answer plain text, which is then the message.
    if let Some(message) = word(&error["message"]) {
        let details = error["details"].as_array().into_iter().flatten();
        let details =
            details.filter_map(|it| Some((word(&it["field"])?, word(&it["message"])?))).collect();
        let request_id = word(&error["request_id"]);
        return ApiError { status: status.as_u16(), message, details, request_id };
    }
    let text = text.trim();
    let plain: String = text.chars().take(KEPT_TEXT).collect();
    let message = match plain.is_empty() {
        true => status.canonical_reason().unwrap_or("the server refused").to_lowercase(),
        false if plain.len() < text.len() => format!("{}...", printable(&plain)),
        false => printable(&plain),
    };
    ApiError { status: status.as_u16(), message, details: Vec::new(), request_id: None }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn answers_outside_the_envelope_still_say_something() {
        let (long, kept) = ("x".repeat(KEPT_TEXT + 1), "x".repeat(KEPT_TEXT));
        let cut = format!("{kept}...");
        let cases = [
            (404, "", "not found"),
            (413, "body too large\n", "body too large"),
            (400, "{\"error\":\"odd\"}", "{\"error\":\"odd\"}"),
            (400, &kept, &kept),
            (400, &long, &cut),
        ];
        for (status, text, message) in cases {
            let status = StatusCode::from_u16(status).expect("valid status");
            assert_eq!(api_error(status, text).message, message);
        }
    }

    #[test]
    fn the_next_page_is_where_the_link_says() {
        let next = |link: Option<&'static str>| {
            let link = link.map(|link| (LINK, HeaderValue::from_static(link)));
            next_query(&link.into_iter().collect())
        };
        assert_eq!(next(None), None);
        assert_eq!(next(Some("</a?x=1>; rel=\"prev\"")), None);
        let link = "</a?x=1>; rel=\"prev\", </v1/a?limit=2&cursor=3.4.mk-5>; rel=\"next\"";
        assert_eq!(next(Some(link)).as_deref(), Some("limit=2&cursor=3.4.mk-5"));
    }

    #[test]
    fn the_key_shows_in_no_debug_output() {
        let args = ServerArgs {
            server: "http://127.0.0.1:1".to_owned(),
            key: Some("verysecret".to_owned()),
            tenant: None,
            trust: CaArgs::default(),
        };
        let client = ApiClient::new(&args).expect("valid");
        assert!(!format!("{args:?} {:?}", client.target.headers()).contains("verysecret"));
    }
}
