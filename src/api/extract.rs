//! Validating extractors: caller, run, body and query.

use std::{net::IpAddr, str::FromStr};

use axum::{
    body::HttpBody,
    extract::{FromRequest, FromRequestParts, Path, Query},
};
use http::request::Parts;
use media::ParseError;
use serde_json::Map;
use timeline::JsonText;
use transport::Peer;

use super::{prelude::*, send_budget};
use crate::base::json::{self, Declared};

/// Maximum size of a JSON body, bytes.
pub const BODY_BYTES_MAX: usize = 2 << 20;

/// Identity of the caller, added by the authentication middleware.
#[derive(Clone, Debug)]
pub struct Caller {
    pub request_id: RequestId,
    /// Principal that owns what the request creates, and whose data it may see.
    pub principal: Principal,
    /// Tenant named by the request; metadata only.
    pub tenant: Option<String>,
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> ApiResult<Caller> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or(ApiError::Bug("a route outside the authentication layer asks for its caller"))
    }
}

/// The server, and the caller of a request.
pub struct Call(pub Arc<App>, pub Caller);

impl FromRequestParts<Arc<App>> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Call> {
        Ok(Call(Arc::clone(app), Caller::from_request_parts(parts, app).await?))
    }
}

/// Path prefix of a reverse proxy, from `x-forwarded-prefix`; empty without one. Trusted only if the peer is
/// loopback or on a private network, as an installation's proxy is.
pub struct Prefix(String);

const PREFIX_BYTES_MAX: usize = 256;

impl Prefix {
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

    /// Puts the prefix before paths of this server in `Location` and `Link` headers.
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

/// Returns true if `text` is an absolute path of unreserved characters, without empty or dot segments.
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

/// The server, the caller, and the run that the path names, if it is visible and belongs to the caller.
pub struct OwnedRun(pub Arc<App>, pub Caller, pub Arc<Run>);

impl FromRequestParts<Arc<App>> for OwnedRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<OwnedRun> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let id = path_id(parts, app, "id", "run_id").await?;
        let run = app.registry.find(id, &caller.principal).ok_or(ApiError::RUN_NOT_FOUND)?;
        Ok(OwnedRun(Arc::clone(app), caller, run))
    }
}

/// Returns the id in the path parameter `name`. A malformed id is an error of `field`, not a 404: a typo
/// must not look like a deleted resource.
pub async fn path_id<T: FromStr<Err = ParseError>>(
    parts: &mut Parts,
    app: &Arc<App>,
    name: &str,
    field: &str,
) -> ApiResult<T> {
    let Path(names) = Path::<Vec<(String, String)>>::from_request_parts(parts, app)
        .await
        .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
    let text = names.iter().find(|(found, _)| found == name).map(|(_, text)| text.as_str());
    let id = text.unwrap_or_default().parse();
    id.map_err(|error: ParseError| ApiError::field(field, error.problem))
}

/// A strictly parsed JSON body.
pub struct JsonBody {
    value: Value,
    text: Bytes,
}

impl JsonBody {
    /// Reads the body as a `T`, or returns all its faults.
    pub fn read<T: Declared>(&self) -> Result<T, Faults> {
        self.read_as(Form::Body)
    }

    /// Reads the body as a `T` in the given form, or returns all its faults.
    pub fn read_as<T: Declared>(&self, form: Form<'_>) -> Result<T, Faults> {
        T::take(&self.value, form)
    }

    /// Returns the model names in the body, from all fields that may hold one.
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

    /// Returns the body with the value of `field` replaced by `text`.
    pub fn with(&self, field: &str, text: &str) -> Option<JsonText> {
        let mut value = self.value.clone();
        value[field] = Value::from(text);
        JsonText::parse(value.to_string())
    }

    /// Returns the body as received.
    pub fn text(&self) -> Option<JsonText> {
        JsonText::parse(std::str::from_utf8(&self.text).ok()?)
    }
}

impl FromRequest<Arc<App>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<JsonBody> {
        let is_json = |essence: &str| {
            essence == "application/json"
                || essence.starts_with("application/") && essence.ends_with("+json")
        };
        check_body(request.headers(), "application/json", is_json)?;
        let (_, text) = whole(request, app).await?;
        Ok(JsonBody { value: json::parse(&text)?, text })
    }
}

/// Marks a request whose body was read by [`whole`], which then charges nobody for it again.
#[derive(Clone, Copy)]
struct Arrived;

pub async fn whole(request: Request, app: &Arc<App>) -> ApiResult<(Parts, Bytes)> {
    let (mut parts, body) = request.into_parts();
    // A body of unknown length counts as the longest.
    let bytes = body.size_hint().upper().unwrap_or(u64::MAX).min(BODY_BYTES_MAX as u64);
    let has_arrived = parts.extensions.insert(Arrived).is_some();
    let caller = parts.extensions.get::<Caller>().filter(|_| !has_arrived);
    let charged = caller.map(|caller| send_budget::receive(app, &caller.principal, bytes));
    let _hold = charged.transpose()?;
    let mut copy = Request::new(body);
    // The extensions hold the size limit of the body.
    *copy.extensions_mut() = parts.extensions.clone();
    let body = Bytes::from_request(copy, app).await.map_err(|rejection| {
        let text = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                format!("the body has more than {BODY_BYTES_MAX} bytes")
            }
            _ => "the body of the request ended early, or its chunks are broken".to_owned(),
        };
        ApiError::Plain(rejection.status(), text)
    })?;
    Ok((parts, body))
}

/// Returns the caller of a request, for a middleware inside the authenticating one.
pub fn caller(request: &Request) -> ApiResult<Caller> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or(ApiError::Bug("a layer outside the authentication layer asks for its caller"))
}

/// Rejects a compressed body, and a media type (lower-cased) for which `is_expected` is false.
pub fn check_body(
    headers: &HeaderMap,
    expected: &str,
    is_expected: impl Fn(&str) -> bool,
) -> ApiResult<()> {
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

/// Parameters of the query, as an object of strings.
pub struct RawParams(Value);

impl RawParams {
    /// Reads the parameters as a `T`, or returns all their faults.
    pub fn read<T: Declared>(&self) -> Result<T, Faults> {
        T::take(&self.0, Form::Query)
    }
}

impl FromRequestParts<Arc<App>> for RawParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<RawParams> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
        let (mut object, mut faults) = (Map::new(), Faults::default());
        for (name, value) in pairs {
            if object.insert(name.clone(), Value::String(value)).is_some() {
                faults.refuse(name, "appears twice");
            }
        }
        Ok(faults.finish(|| Some(RawParams(Value::Object(object))))?)
    }
}

/// Parameters of the query, read as a `T`.
pub struct QueryParams<T>(pub T);

impl<T: Declared> FromRequestParts<Arc<App>> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<QueryParams<T>> {
        Ok(QueryParams(RawParams::from_request_parts(parts, app).await?.read()?))
    }
}
