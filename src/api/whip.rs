//! WHIP (RFC 9725): publishing live video over WebRTC.
//!
//! Answers are SDP or empty, errors plain text, as WHIP clients expect. The sessions themselves are in
//! `live`; this module handles headers and statuses.

pub mod attach_config;

use axum::{body::Body as RawBody, extract::Path};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use media::SessionId;

use super::{extract::check_body, prelude::*};
use crate::{
    base::labels::TenantLabels,
    record::live::{
        EndReason, IceServer, Instruction, LiveError, PromptError, PublisherIdentity, SessionLookup,
    },
};

use attach_config::PromptUpdate;
pub use attach_config::PublishConfig;

/// Path prefix of the routes of this module.
pub const BASE: &str = "/v1/stream/whip";
/// Request header with the publisher's configuration (attach config).
pub const ATTACH: HeaderName = HeaderName::from_static("x-attach-config");

const RUN_ID: HeaderName = HeaderName::from_static("x-service-run-id");
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
const SDP: &str = "application/sdp";
const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
const OFFER_TYPE: HeaderValue = HeaderValue::from_static(SDP);
const FRAGMENT_TYPE: HeaderValue = HeaderValue::from_static(FRAGMENT);
/// Maximum size of an offer or a fragment, bytes.
pub const SDP_BYTES_MAX: usize = 64 << 10;

/// Answer with the accepted media type; a browser's preflight is answered before any route.
#[utoipa::path(
    options, path = "/v1/stream/whip", operation_id = "whipOptions", tag = "live", security(()),
    responses((status = 204, description = "`Accept-Post` says what an offer is")),
)]
pub async fn options() -> Response {
    (StatusCode::NO_CONTENT, accepted().collect::<HeaderMap>()).into_response()
}

/// Returns the header with the media type of an offer (RFC 9725 4.2).
pub fn accepted() -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    std::iter::once((ACCEPT_POST, OFFER_TYPE))
}

/// Publish live video: send an SDP offer, receive the answer.
///
/// Creates a run that records the session. `Location` is an absolute path, with the `x-forwarded-prefix` of a
/// proxy on this host or a private network, and identifies the session for the other routes.
#[utoipa::path(
    post, path = "/v1/stream/whip", operation_id = "whipOffer", tag = "live",
    params(("x-attach-config" = Option<String>, Header,
        description = "Base64url, without padding, of a JSON object (`PublishConfig`)")),
    request_body(content = String, content_type = "application/sdp", description = "The offer"),
    responses(
        (status = 201, description = "The answer", body = String, content_type = "application/sdp"),
        (status = 400, description = "An offer or attach config that cannot be read", body = String, content_type = "text/plain"),
        (status = 409, description = "The caller has the maximum number of active runs", body = String, content_type = "text/plain"),
        (status = 422, description = "The offer has no video codec that the server decodes", body = String, content_type = "text/plain"),
        (status = 503, description = "No capacity", body = String, content_type = "text/plain"),
    ),
)]
pub async fn offer(Call(app, caller): Call, headers: HeaderMap, body: RawBody) -> ApiResult {
    check_body(&headers, SDP, |essence| essence == SDP)?;
    let offer = text(body).await?;
    let mut given = headers.get_all(ATTACH).iter();
    let attached = attach_config::decoded(given.next())?;
    if given.next().is_some() {
        let text = "x-attach-config appears twice: send one".to_owned();
        return Err(ApiError::Plain(StatusCode::BAD_REQUEST, text));
    }
    let named = attached.as_ref().and_then(|attached| attached.get("model")?.as_str());
    let catalog = app.inference.catalog_for(named.as_slice()).await;
    let gate = app.settings.gate;
    // Compiling an output schema takes time.
    let wishes =
        app.blocking(move || attach_config::read(attached.as_ref(), &catalog, gate)).await??;
    app.check_open()?;
    if let Some(refusal) = app.workers.refusal() {
        return Err(ApiError::MediaRefused(refusal));
    }
    let Caller { request_id, principal, tenant } = caller;
    app.quota.check(&principal)?;
    let who = PublisherIdentity {
        request_id,
        principal,
        words: TenantLabels { maps: app.labels.get(), tenant },
    };
    let (session, answer) = app.live.publish(who, offer, wishes).await.map_err(refused)?;
    let mut response = (StatusCode::CREATED, answer.sdp).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, OFFER_TYPE);
    headers.insert(header::LOCATION, value(&format!("{BASE}/{}", session.id)));
    headers.insert(header::ETAG, value(&answer.etag));
    headers.insert(RUN_ID, value(&session.run.id().to_string()));
    headers.insert(ACCEPT_PATCH, FRAGMENT_TYPE);
    for server in &app.settings.live.ice_servers {
        headers.append(header::LINK, value(&link(server)));
    }
    Ok(response)
}

/// Add ICE candidates of the publisher, or restart ICE.
///
/// The body is an SDP fragment (RFC 8840), a single candidate line, or empty if the publisher has no more
/// candidates.
#[utoipa::path(
    patch, path = "/v1/stream/whip/{sess}", operation_id = "whipIce", tag = "live",
    params(("if-match" = Option<String>, Header, description = "The `ETag` of the session; a restart needs it, or `*`")),
    request_body(content = String, content_type = "application/trickle-ice-sdpfrag", description = "The fragment"),
    responses(
        (status = 200, description = "ICE restarted: the server's side of it", body = String, content_type = "application/trickle-ice-sdpfrag"),
        (status = 204, description = "The candidates are taken"),
        (status = 400, description = "A fragment that cannot be read", body = String, content_type = "text/plain"),
        (status = 404, description = "No such session of the caller's", body = String, content_type = "text/plain"),
        (status = 412, description = "`If-Match` names another ICE session", body = String, content_type = "text/plain"),
        (status = 428, description = "A restart without `If-Match`", body = String, content_type = "text/plain"),
    ),
)]
pub async fn patch(
    Call(app, caller): Call,
    Path(session): Path<String>,
    headers: HeaderMap,
    body: RawBody,
) -> ApiResult {
    let fragment = text(body).await?;
    if !fragment.is_empty() {
        check_body(&headers, FRAGMENT, |essence| matches!(essence, FRAGMENT | "text/plain"))?;
    }
    let SessionLookup::Live(session) = find(&app, &caller.principal, &session)? else {
        return Err(ApiError::NotFound("session"));
    };
    if fragment.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let tag = headers.get(header::IF_MATCH).map(HeaderValue::as_bytes);
    let Some(restarted) = session.patch(&fragment, tag).map_err(ApiError::Fragment)? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let headers = [(header::CONTENT_TYPE, FRAGMENT_TYPE), (header::ETAG, value(&restarted.etag))];
    Ok((headers, restarted.sdpfrag).into_response())
}

/// End a session; its run is completed before the answer.
#[utoipa::path(
    delete, path = "/v1/stream/whip/{sess}", operation_id = "whipTerminate", tag = "live",
    responses(
        (status = 200, description = "Ended, now or in the last ten minutes"),
        (status = 404, description = "No such session of the caller's", body = String, content_type = "text/plain"),
    ),
)]
pub async fn terminate(Call(app, caller): Call, Path(session): Path<String>) -> ApiResult {
    if let SessionLookup::Live(session) = find(&app, &caller.principal, &session)? {
        session.end(EndReason::Deleted(caller.request_id)).await;
    }
    Ok(StatusCode::OK.into_response())
}

/// Prompt in use.
#[derive(Serialize, ToSchema)]
pub struct PromptApplied {
    prompt: String,
    #[schema(value_type = Option<schema_types::AnyObject>, required = true)]
    output_schema: Option<Value>,
    /// First frame that the prompt applies to.
    applied_from_frame: u64,
}

/// Change the prompt for a session's pictures.
///
/// Applies to the pictures and clips that the session's models are asked about next.
#[utoipa::path(
    patch, path = "/v1/stream/whip/{sess}/prompt", operation_id = "whipUpdatePrompt", tag = "live",
    request_body = PromptUpdate,
    responses(
        (status = 200, description = "The prompt in use", body = PromptApplied),
        (status = 400, description = "A prompt or schema that cannot be used", body = String, content_type = "text/plain"),
        (status = 404, description = "No such session of the caller's", body = String, content_type = "text/plain"),
        (status = 409, description = "The session has ended", body = String, content_type = "text/plain"),
    ),
)]
pub async fn prompt(
    Call(app, caller): Call,
    Path(session): Path<String>,
    body: JsonBody,
) -> ApiResult {
    let found = find(&app, &caller.principal, &session)?;
    let (instruction, output_schema) =
        app.blocking(move || attach_config::instruction(&body)).await??;
    let applied = match found {
        SessionLookup::Live(session) => session.instruct(&instruction),
        SessionLookup::Ended => Err(PromptError),
    };
    let applied_from_frame = applied.map_err(ApiError::Prompt)?;
    let Instruction { prompt, .. } = instruction;
    Ok(Json(PromptApplied { prompt, output_schema, applied_from_frame }).into_response())
}

fn find(app: &App, owner: &Principal, session: &str) -> ApiResult<SessionLookup> {
    let id: Option<SessionId> = session.parse().ok();
    id.and_then(|id| app.live.find(owner, id)).ok_or(ApiError::NotFound("session"))
}

async fn text(body: RawBody) -> ApiResult<String> {
    let refuse = |status, text: &str| Err(ApiError::Plain(status, text.to_owned()));
    match Limited::new(body, SDP_BYTES_MAX).collect().await {
        Ok(collected) => match String::from_utf8(collected.to_bytes().into()) {
            Ok(text) => Ok(text),
            Err(_) => refuse(StatusCode::BAD_REQUEST, "the body is not UTF-8"),
        },
        Err(error) if error.is::<LengthLimitError>() => {
            refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 65536 bytes")
        }
        Err(_) => refuse(StatusCode::BAD_REQUEST, "the body ended early"),
    }
}

fn refused(error: LiveError) -> ApiError {
    match error {
        LiveError::Run(error) => error.into(),
        error => ApiError::Live(error),
    }
}

/// Formats the `Link` of a STUN or TURN server (RFC 9725 4.6).
fn link(server: &IceServer) -> String {
    let IceServer { url, credential } = server;
    let Some((username, password)) = credential else {
        return format!("<{url}>; rel=\"ice-server\"");
    };
    let (username, password) = (quoted(username), quoted(password));
    format!(
        "<{url}>; rel=\"ice-server\"; username={username}; credential={password}; \
         credential-type=\"password\""
    )
}

/// Formats a quoted string (RFC 9110 5.6.4).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("our own, or checked with the configuration")
}
