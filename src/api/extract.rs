//! Validated extractors: who asks, which run, what the body and the query say.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
};
use http::{HeaderMap, StatusCode, header, request::Parts};
use media::RequestId;
use serde_json::{Map, Value};
use timeline::JsonText;

use super::{App, error::ApiError};
use crate::{
    config::Principal,
    json::{self, Detail, Fields},
    session::registry::Run,
};

/// Largest JSON body.
pub const BODY_BYTES_MAX: usize = 2 << 20;

/// Who asks; put there by the authentication layer.
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

/// The run that the path names, when it is visible and the caller's.
pub struct Owned(pub Arc<Run>);

impl FromRequestParts<Arc<App>> for Owned {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Owned, ApiError> {
        let run = OwnedOrDeleted::from_request_parts(parts, app).await?.0;
        if run.lifecycle().is_visible() { Ok(Owned(run)) } else { Err(ApiError::RUN_NOT_FOUND) }
    }
}

/// The run that the path names, when it is the caller's; it may be deleted.
pub struct OwnedOrDeleted(pub Arc<Run>);

impl FromRequestParts<Arc<App>> for OwnedOrDeleted {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<App>,
    ) -> Result<OwnedOrDeleted, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let Path(names) = Path::<Vec<(String, String)>>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
        let id = names.iter().find(|(name, _)| name == "id").and_then(|(_, id)| id.parse().ok());
        let run = id.and_then(|id| app.registry.find_any(id, &caller.principal));
        run.map(OwnedOrDeleted).ok_or(ApiError::RUN_NOT_FOUND)
    }
}

/// A JSON body, parsed strictly.
pub struct Body {
    value: Value,
    text: Bytes,
}

impl Body {
    /// The fields of the body, which must be an object.
    pub fn fields(&self) -> Result<Fields<'_>, ApiError> {
        Fields::of(&self.value).map_err(ApiError::Invalid)
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

impl FromRequest<Arc<App>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Body, ApiError> {
        check_type(request.headers())?;
        let text = Bytes::from_request(request, app).await.map_err(|rejection| {
            let text = match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => {
                    format!("the body has more than {BODY_BYTES_MAX} bytes")
                }
                _ => rejection.body_text(),
            };
            ApiError::Plain(rejection.status(), text)
        })?;
        Ok(Body { value: json::parse(&text)?, text })
    }
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
pub struct Params(Value);

impl Params {
    /// The parameters.
    pub fn fields(&self) -> Result<Fields<'_>, ApiError> {
        Fields::of(&self.0).map_err(ApiError::Invalid)
    }
}

impl FromRequestParts<Arc<App>> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Params, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| ApiError::Plain(rejection.status(), rejection.body_text()))?;
        let mut object = Map::new();
        let mut twice = Vec::new();
        for (name, value) in pairs {
            if object.insert(name.clone(), Value::String(value)).is_some() {
                twice.push(Detail::new(name, "appears twice"));
            }
        }
        if twice.is_empty() { Ok(Params(Value::Object(object))) } else { Err(twice.into()) }
    }
}
