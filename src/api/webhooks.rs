//! Webhooks of a run: made, listed and removed; their secret is told once.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
};
use http::request::Parts;
use media::{RequestId, RunId, WebhookId};
use serde::Serialize;
use serde_json::Value;
use timeline::EventKind;
use utoipa::ToSchema;

use super::{
    App,
    error::ApiError,
    extract::{Body, Caller, Owned, path_id},
    openapi::{Fails, terms},
    wire::shown,
};
use crate::{
    delivery::webhook::{DeadLetter, Secret, SecretError, Shown, Webhook},
    json::{Problem, Text},
    session::registry::RunError,
};

/// Where events are sent.
pub type WebhookUrl = Text<1, 2048>;
/// The owner's own words.
pub type Description = Text<0, 256>;

/// Where a run's events are sent.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `create` reads")]
struct WebhookRequest {
    /// An `https` URL of a public host, without user and password.
    #[schema(value_type = String, min_length = 1, max_length = 2048)]
    url: String,
    /// The kinds of events that are sent; every one when missing.
    #[schema(min_items = 1, max_items = 32)]
    kinds: Option<Vec<terms::Kind>>,
    /// What messages are signed with, `whsec_` and base64; made by the server when missing.
    secret: Option<String>,
    /// The owner's own words.
    #[schema(max_length = 256)]
    description: Option<String>,
}

/// A webhook.
#[derive(Serialize, ToSchema)]
#[schema(as = Webhook)]
struct WebhookRecord {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::WebhookId)]
    webhook_id: WebhookId,
    url: String,
    #[schema(required = true, value_type = Option<Vec<terms::Kind>>)]
    kinds: Option<Vec<&'static str>>,
    #[schema(required = true)]
    description: Option<String>,
    #[schema(value_type = terms::WebhookStatus)]
    status: &'static str,
    #[schema(value_type = terms::Time)]
    created_at: String,
    /// Events that the target never took and that can be looked at.
    dead_letters: usize,
    /// Dead letters that made room for newer ones.
    dead_letters_dropped: u64,
    /// The event that failed last, until one succeeds.
    #[schema(required = true)]
    last_error: Option<DeliveryError>,
}

/// Why an event was not delivered.
#[derive(Serialize, ToSchema)]
struct DeliveryError {
    seq: u64,
    message: String,
}

impl From<(Shown, usize)> for WebhookRecord {
    fn from((shown, dead_letters): (Shown, usize)) -> WebhookRecord {
        let webhook = &shown.webhook;
        WebhookRecord {
            webhook_id: webhook.id,
            url: webhook.url.url().to_string(),
            kinds: webhook.kinds.as_deref().map(names),
            description: webhook.description.clone(),
            status: shown.status.as_str(),
            created_at: webhook.created_at.rfc3339(),
            dead_letters,
            dead_letters_dropped: shown.dropped,
            last_error: shown
                .last_error
                .map(|(seq, message)| DeliveryError { seq: seq.0, message }),
        }
    }
}

/// A webhook that was just made.
#[derive(Serialize, ToSchema)]
pub struct WebhookCreated {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::WebhookId)]
    webhook_id: WebhookId,
    url: String,
    #[schema(required = true, value_type = Option<Vec<terms::Kind>>)]
    kinds: Option<Vec<&'static str>>,
    #[schema(required = true)]
    description: Option<String>,
    #[schema(value_type = terms::Time)]
    created_at: String,
    /// What messages are signed with; not shown again.
    secret: String,
}

fn names(kinds: &[EventKind]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.as_str()).collect()
}

fn kinds(value: &Value) -> Result<Vec<EventKind>, Problem> {
    let read = |value: &Value| value.as_str().and_then(EventKind::from_name);
    let found = value.as_array().filter(|list| (1..=32).contains(&list.len()));
    let found = found.and_then(|list| list.iter().map(read).collect::<Option<Vec<_>>>());
    // A webhook goes with its run: nobody is left to tell of the deletion.
    let is_sent = |kind: &EventKind| *kind != EventKind::RunDeleted;
    found.filter(|kinds| kinds.iter().all(is_sent)).ok_or_else(|| {
        let sent = EventKind::ALL.iter().filter(|kind| is_sent(kind));
        let names: Vec<_> = sent.map(|kind| kind.as_str()).collect();
        format!("must be an array of 1 to 32 of {}", names.join(", ")).into()
    })
}

/// A URL is read without the line breaks and tabs in it: whoever sent them meant another.
fn url(value: &Value) -> Result<&str, Problem> {
    match WebhookUrl::read(value)? {
        found if found.chars().any(char::is_control) => {
            Err("must hold no control character".into())
        }
        found => Ok(found),
    }
}

fn secret(value: &Value) -> Result<Secret, Problem> {
    let secret = value.as_str().ok_or(SecretError).and_then(Secret::parse);
    secret.map_err(|error| Problem::from(error.to_string()))
}

/// Have a run's events from now on sent to a URL, signed as Standard Webhooks says.
///
/// Deleting the run removes its webhooks: what was not delivered by then is not sent any more, and the
/// deletion is not told. Each is a CloudEvent; they come in order and at least once, each time with the same
/// `webhook-id`. Anything but a 2xx answer is tried again with growing delays; 410 ends it.
#[utoipa::path(
    post, path = "/v1/runs/{id}/webhooks", operation_id = "createWebhook", tag = "webhooks",
    request_body = WebhookRequest,
    responses(
        (status = 200, description = "The webhook", body = WebhookCreated),
        Fails<409>, Fails<503>,
    ),
)]
pub async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    body: Body,
) -> Result<Json<WebhookCreated>, ApiError> {
    let mut fields = body.fields()?;
    let url = fields.required("url", url);
    let kinds = fields.optional("kinds", kinds);
    let secret = fields.optional("secret", secret);
    let description = fields.optional("description", Description::read).map(str::to_owned);
    let url = fields.finish(|| url)?.to_owned();
    app.check_open()?;
    if !run.lifecycle().is_active() {
        return Err(RunError::Terminal(run.lifecycle()).into());
    }
    let url = app.webhooks.check(&url).await?;
    let webhook = Webhook {
        id: WebhookId::from_bytes(crate::random_bytes()),
        run: run.id(),
        owner: caller.principal,
        url,
        kinds,
        description,
        secret: secret.unwrap_or_else(Secret::generate),
        created_at: crate::clock::wall_now(),
    };
    let webhook = app.webhooks.create(webhook).await?.webhook;
    Ok(Json(WebhookCreated {
        request_id: caller.request_id,
        run_id: run.id(),
        webhook_id: webhook.id,
        url: webhook.url.url().to_string(),
        kinds: webhook.kinds.as_deref().map(names),
        description: webhook.description.clone(),
        created_at: webhook.created_at.rfc3339(),
        secret: webhook.secret.reveal(),
    }))
}

/// The webhooks of a run.
#[derive(Serialize, ToSchema)]
pub struct WebhookList {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    webhooks: Vec<WebhookRecord>,
}

/// List the webhooks of a run, the oldest first.
#[utoipa::path(
    get, path = "/v1/runs/{id}/webhooks", operation_id = "listWebhooks", tag = "webhooks",
    responses((status = 200, description = "The webhooks", body = WebhookList)),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
) -> Result<Json<WebhookList>, ApiError> {
    let webhooks = app.webhooks.of(&run).await?.into_iter().map(WebhookRecord::from).collect();
    Ok(Json(WebhookList { request_id: caller.request_id, run_id: run.id(), webhooks }))
}

/// The webhook that the path names, of the run that it names.
pub struct Named(Arc<Webhook>);

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Named, ApiError> {
        let Owned(run) = Owned::from_request_parts(parts, app).await?;
        let id = path_id(parts, app, "webhook_id", "webhook_id").await?;
        let webhook = app.webhooks.find(&run, id);
        webhook.map(Named).ok_or(ApiError::NotFound("webhook"))
    }
}

/// A webhook that is no more.
#[derive(Serialize, ToSchema)]
pub struct WebhookRemoved {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::WebhookId)]
    webhook_id: WebhookId,
}

/// Remove a webhook and its dead letters.
#[utoipa::path(
    delete, path = "/v1/runs/{id}/webhooks/{webhook_id}", operation_id = "deleteWebhook",
    tag = "webhooks",
    responses((status = 200, description = "Removed", body = WebhookRemoved), Fails<503>),
)]
pub async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(webhook): Named,
) -> Result<Json<WebhookRemoved>, ApiError> {
    app.webhooks.remove(webhook.id).await?;
    Ok(Json(WebhookRemoved {
        request_id: caller.request_id,
        run_id: webhook.run,
        webhook_id: webhook.id,
    }))
}

/// An event that a target never took.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetter)]
struct DeadLetterRecord {
    seq: u64,
    #[schema(value_type = terms::Kind)]
    kind: &'static str,
    attempts: u32,
    /// What the last attempt came to.
    error: String,
}

impl From<DeadLetter> for DeadLetterRecord {
    fn from(letter: DeadLetter) -> DeadLetterRecord {
        DeadLetterRecord {
            seq: letter.seq.0,
            kind: letter.kind.as_str(),
            attempts: letter.attempts,
            error: letter.error,
        }
    }
}

/// What a target never took.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterList {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::WebhookId)]
    webhook_id: WebhookId,
    dead_letters: Vec<DeadLetterRecord>,
}

/// List what a webhook's target never took: the newest 100, the oldest first.
#[utoipa::path(
    get, path = "/v1/runs/{id}/webhooks/{webhook_id}/dead-letters",
    operation_id = "listDeadLetters", tag = "webhooks",
    responses((status = 200, description = "The dead letters", body = DeadLetterList), Fails<503>),
)]
pub async fn dead_letters(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(webhook): Named,
) -> Result<Json<DeadLetterList>, ApiError> {
    let letters = app.webhooks.dead_letters(webhook.id).await?;
    Ok(Json(DeadLetterList {
        request_id: caller.request_id,
        run_id: webhook.run,
        webhook_id: webhook.id,
        dead_letters: letters.into_iter().map(DeadLetterRecord::from).collect(),
    }))
}

/// Dead letters that are sent again.
#[derive(Serialize, ToSchema)]
pub struct Redelivery {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::WebhookId)]
    webhook_id: WebhookId,
    /// How many there are.
    queued: usize,
}

/// Have a webhook's dead letters sent again, the oldest first, before what is new.
///
/// Each is tried once, under the `webhook-id` that it had: one that the target takes is a dead
/// letter no more, and the first that it does not take ends the redelivery, with those behind it
/// left as they are. A webhook that is disabled, as its target answered 410, is active again.
#[utoipa::path(
    post, path = "/v1/runs/{id}/webhooks/{webhook_id}/redeliver",
    operation_id = "redeliverDeadLetters", tag = "webhooks",
    responses(
        (status = 200, description = "They are sent again", body = Redelivery),
        Fails<503>,
    ),
)]
pub async fn redeliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(webhook): Named,
) -> Result<Json<Redelivery>, ApiError> {
    let queued = app.webhooks.redeliver(webhook.id).await?;
    Ok(Json(Redelivery {
        request_id: caller.request_id,
        run_id: webhook.run,
        webhook_id: webhook.id,
        queued,
    }))
}
