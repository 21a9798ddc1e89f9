//! Validated extractors: caller, run, body and query.

use std::{net::IpAddr, str::FromStr, sync::Arc};

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use media::{ParseError, RequestId};
use serde_json::{Map, Value};
use timeline::JsonText;
use transport::Peer;

use super::{App, error::ApiError};
use crate::{
    base::{
        json::{self, Declared, Faults, FieldError, Form},
        keys::Principal,
    },
    runs::registry::Run,
};

/// Largest JSON body.
pub const BODY_BYTES_MAX: usize = 2 << 20;

/// Identity of the caller; put there by the authentication layer.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The request.
    pub request_id: RequestId,
    /// Owner of what the request makes and may see.
    pub principal: Principal,
    /// The tenant it names, metadata only.
    pub tenant: Option<String>,
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Caller, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or(ApiError::Bug("a route outside the authentication layer asks for its caller"))
    }
}

/// Path prefix at which a proxy serves, from its `x-forwarded-prefix`; empty without one. Believed where the peer
/// is this host or on a private network, as the proxy of an installation is.
pub struct Prefix(String);

/// Longest prefix that is believed.
const PREFIX_BYTES_MAX: usize = 256;

impl Prefix {
    /// Prefix of a request.
    pub fn of(request: &Request) -> Prefix {
        let is_trusted = request.extensions().get().is_some_and(|Peer(address)| match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_private(),
            IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
        });
        let given = request.headers().get("x-forwarded-prefix");
        let given = given.and_then(|value| value.to_str().ok());
        let given = given.filter(|text| is_trusted && is_prefix(text)).unwrap_or_default();
        Prefix(given.trim_end_matches('/').to_owned())
    }

    /// Puts it before the paths of this server that an answer's headers lead to.
    pub fn lead(&self, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        for name in [header::LOCATION, header::LINK] {
            let led: Vec<_> = headers.get_all(&name).iter().map(|value| self.led(value)).collect();
            headers.remove(&name);
            headers.extend(led.into_iter().map(|value| (name.clone(), value)));
        }
    }

    fn led(&self, value: &HeaderValue) -> HeaderValue {
        let Prefix(prefix) = self;
        let text = value.to_str().unwrap_or_default();
        let led = match text.strip_prefix("</") {
            Some(rest) => format!("<{prefix}/{rest}"),
            None if text.starts_with('/') => format!("{prefix}{text}"),
            None => return value.clone(),
        };
        HeaderValue::from_str(&led).unwrap_or_else(|_| value.clone())
    }
}

/// A path of plain segments.
fn is_prefix(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.starts_with('/')
        && text.len() <= PREFIX_BYTES_MAX
        && text.bytes().all(is_plain)
        && text
            .trim_end_matches('/')
            .split('/')
            .skip(1)
            .all(|part| !matches!(part, "" | "." | ".."))
}

/// The run that the path names, when it is visible and the caller's.
pub struct OwnedRun(pub Arc<Run>);

impl FromRequestParts<Arc<App>> for OwnedRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<OwnedRun, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id = path_id(parts, app, "id", "run_id").await?;
        app.registry.find(id, &caller.principal).map(OwnedRun).ok_or(ApiError::RUN_NOT_FOUND)
    }
}

/// The id that the path has as `name`; a malformed one is refused as `field`, since a typo must
/// not look like something that is gone.
pub async fn path_id<T: FromStr<Err = ParseError>>(
    parts: &mut Parts,
    app: &Arc<App>,
    name: &str,
    field: &str,
) -> Result<T, ApiError> {
    let Path(names) = Path::<Vec<(String, String)>>::from_request_parts(parts, app)
        .await
        .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
    let text = names.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str());
    let id = text.unwrap_or_default().parse();
    id.map_err(|error: ParseError| ApiError::field(field, error.problem))
}

/// A JSON body, parsed strictly.
pub struct JsonBody {
    value: Value,
    text: Bytes,
}

impl JsonBody {
    /// The body as a `T`, or every fault of it.
    pub fn read<T: Declared>(&self) -> Result<T, Faults> {
        self.read_as(Form::Body)
    }

    /// The body as a `T` of this form, likewise.
    pub fn read_as<T: Declared>(&self, form: Form<'_>) -> Result<T, Faults> {
        T::take(&self.value, form)
    }

    /// Models that it names, in the fields that requests have for them.
    pub fn models(&self) -> Vec<&str> {
        let questions = self.value.get("requests").and_then(Value::as_array).into_iter().flatten();
        let all = std::iter::once(&self.value).chain(questions);
        let named = |one| {
            ["model", "first_pass_model", "second_pass_model"]
                .into_iter()
                .filter_map(move |field| Value::get(one, field)?.as_str())
        };
        all.flat_map(named).collect()
    }

    /// The body with a text instead of the value of `field`.
    pub fn with(&self, field: &str, text: &str) -> Option<JsonText> {
        let mut value = self.value.clone();
        value[field] = Value::from(text);
        JsonText::parse(value.to_string())
    }

    /// The body as it came.
    pub fn text(&self) -> Option<JsonText> {
        JsonText::parse(std::str::from_utf8(&self.text).ok()?)
    }
}

impl FromRequest<Arc<App>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<JsonBody, ApiError> {
        check_type(request.headers())?;
        let (_, text) = whole(request, app).await?;
        Ok(JsonBody { value: json::parse(&text)?, text })
    }
}

/// A request whose body is read whole.
pub async fn whole(request: Request, app: &Arc<App>) -> Result<(Parts, Bytes), ApiError> {
    let (parts, body) = request.into_parts();
    let mut copy = Request::new(body);
    // The bound of the body is among them.
    *copy.extensions_mut() = parts.extensions.clone();
    let body = Bytes::from_request(copy, app).await.map_err(|rejection| {
        let text = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                format!("the body has more than {BODY_BYTES_MAX} bytes")
            }
            _ => rejection.body_text(),
        };
        ApiError::Plain(rejection.status(), text)
    })?;
    Ok((parts, body))
}

/// Caller of a request, for a layer below the one that authenticates.
pub fn caller(request: &Request) -> Result<Caller, ApiError> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or(ApiError::Bug("a layer outside the authentication layer asks for its caller"))
}

fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_json = |essence: &str| {
        essence == "application/json"
            || essence.starts_with("application/") && essence.ends_with("+json")
    };
    check_body(headers, "application/json", is_json)
}

/// Refuses a body that is compressed, or whose lower-case media type is not as `expected`.
pub fn check_body(
    headers: &HeaderMap,
    expected: &str,
    is_expected: impl Fn(&str) -> bool,
) -> Result<(), ApiError> {
    let refuse = |text: String| Err(ApiError::Plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let encoding = headers.contains_key(header::CONTENT_ENCODING);
    if encoding && text(header::CONTENT_ENCODING) != Some("identity") {
        return refuse("compressed request bodies are not accepted".to_owned());
    }
    let essence = text(header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    if essence.is_some_and(|essence| is_expected(&essence.trim().to_ascii_lowercase())) {
        return Ok(());
    }
    refuse(format!("expected a request with content-type {expected}"))
}

/// The parameters of the query, as the fields of an object of strings.
pub struct RawParams(Value);

impl RawParams {
    /// The parameters as a `T`, or every fault of them.
    pub fn read<T: Declared>(&self) -> Result<T, Faults> {
        T::take(&self.0, Form::Query)
    }
}

impl FromRequestParts<Arc<App>> for RawParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<RawParams, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
        let mut object = Map::new();
        let mut twice = Vec::new();
        for (name, value) in pairs {
            if object.insert(name.clone(), Value::String(value)).is_some() {
                twice.push(FieldError::new(name, "appears twice"));
            }
        }
        if twice.is_empty() { Ok(RawParams(Value::Object(object))) } else { Err(twice.into()) }
    }
}

/// The parameters of the query as a `T`.
pub struct QueryParams<T>(pub T);

impl<T: Declared> FromRequestParts<Arc<App>> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<App>,
    ) -> Result<QueryParams<T>, ApiError> {
        Ok(QueryParams(RawParams::from_request_parts(parts, app).await?.read()?))
    }
}
