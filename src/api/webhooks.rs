//! Webhooks of a run, or of all runs of a principal. The secret is shown only on creation.

pub mod of_all;

use axum::extract::FromRequestParts;
use http::request::Parts;
use media::WebhookId;

use super::{extract::path_id, prelude::*};
use crate::{
    base::json::Declared,
    deliver::webhook::{DeadLetter, SigningSecret, Webhook, WebhookState},
    runs::registry::RunError,
};

pub type WebhookUrl = BoundedText<1, 2048>;
pub type WebhookDescription = BoundedText<0, 256>;

/// Webhook to create.
#[derive(ToSchema)]
pub struct WebhookRequest {
    /// An `https` URL of a public host, without user and password.
    #[schema(value_type = String, min_length = 1, max_length = 2048)]
    url: String,
    /// Kinds of events to deliver; every kind when missing.
    #[schema(value_type = Option<Vec<schema_types::EventKind>>, min_items = 1, max_items = 32)]
    kinds: Option<Kinds>,
    /// Secret that signs messages, `whsec_` and base64; generated when missing.
    #[schema(value_type = Option<String>)]
    secret: Option<SigningSecret>,
    /// Note of the owner.
    #[schema(value_type = Option<String>, max_length = 256)]
    description: Option<WebhookDescription>,
}

declared!(WebhookRequest { url: required url, kinds, secret: optional secret, description });

/// Kinds of events that a webhook may select. `run_deleted` is excluded for a webhook of one run, which is
/// removed with the run.
struct Kinds(Vec<EventKind>);

impl Declared for Kinds {
    fn take(value: &Value, form: Form<'_>) -> Result<Kinds, Faults> {
        let read = |value: &Value| value.as_str().and_then(EventKind::from_name);
        let found = value.as_array().filter(|list| (1..=32).contains(&list.len()));
        let found = found.and_then(|list| list.iter().map(read).collect::<Option<Vec<_>>>());
        let is_of_run = matches!(form, Form::OfRun);
        let is_sent = |kind: &EventKind| !is_of_run || *kind != EventKind::RunDeleted;
        let problem = || {
            let sent = EventKind::ALL.iter().filter(|kind| is_sent(kind));
            let names: Vec<_> = sent.map(|kind| kind.as_str()).collect();
            ValueError::from(format!("must be an array of 1 to 32 of {}", names.join(", ")))
        };
        let found = found.filter(|kinds| kinds.iter().all(is_sent));
        Ok(found.map(Kinds).ok_or_else(problem)?)
    }
}

/// Reads a URL; refuses control characters, which a URL parser would drop silently.
fn url(value: &Value) -> Result<String, ValueError> {
    match WebhookUrl::read(value)?.0 {
        found if found.chars().any(char::is_control) => {
            Err("must hold no control character".into())
        }
        found => Ok(found),
    }
}

fn secret(value: &Value) -> Result<SigningSecret, ValueError> {
    SigningSecret::parse(value.as_str().unwrap_or_default())
}

/// A webhook.
#[derive(Serialize, ToSchema)]
#[schema(as = Webhook)]
struct WebhookRecord {
    webhook_id: schema_types::WebhookId,
    url: String,
    #[schema(required = true, value_type = Option<Vec<schema_types::EventKind>>)]
    kinds: Option<Vec<&'static str>>,
    #[schema(required = true)]
    description: Option<String>,
    status: schema_types::WebhookStatus,
    created_at: schema_types::Timestamp,
    /// Stored events that the target did not accept.
    dead_letters: usize,
    /// Dead letters dropped in favour of newer ones.
    dead_letters_dropped: u64,
    /// Error of the event that failed last, until a delivery succeeds.
    #[schema(required = true)]
    last_error: Option<DeliveryError>,
}

/// Failure to deliver an event.
#[derive(Serialize, ToSchema)]
struct DeliveryError {
    seq: u64,
    message: String,
}

/// A new webhook.
#[derive(Serialize, ToSchema)]
pub struct WebhookCreated {
    request_id: schema_types::RequestId,
    /// Run of the webhook; null if it is of all runs.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    webhook_id: schema_types::WebhookId,
    url: String,
    #[schema(required = true, value_type = Option<Vec<schema_types::EventKind>>)]
    kinds: Option<Vec<&'static str>>,
    #[schema(required = true)]
    description: Option<String>,
    created_at: schema_types::Timestamp,
    /// Secret that signs messages; shown only here.
    secret: String,
}

fn names(kinds: &[EventKind]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.as_str()).collect()
}

/// Deliver a run's future events to a URL, signed by the Standard Webhooks scheme.
///
/// Deleting the run removes its webhooks: undelivered events are not sent, and the deletion is not
/// reported. Each message is a CloudEvent, delivered in order and at least once, always with the same
/// `webhook-id`. Any answer but 2xx is retried with growing delays; 410 disables the webhook.
#[utoipa::path(
    post, path = "/v1/runs/{id}/webhooks", operation_id = "createWebhook", tag = "webhooks",
    request_body = WebhookRequest,
    responses(
        (status = 200, description = "The webhook", body = WebhookCreated),
        FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn create(
    OwnedRun(app, caller, run): OwnedRun,
    body: JsonBody,
) -> ApiResult<Json<WebhookCreated>> {
    made(&app, caller, Some(&run), &body).await
}

/// Creates a webhook of `run`, or of all runs of the caller.
async fn made(
    app: &App,
    caller: Caller,
    run: Option<&Run>,
    body: &JsonBody,
) -> ApiResult<Json<WebhookCreated>> {
    let form = if run.is_some() { Form::OfRun } else { Form::Body };
    let WebhookRequest { url, kinds, secret, description } = body.read_as(form)?;
    app.check_open()?;
    let url = app.deliveries.webhooks.check(&url).await?;
    // After the name was resolved: a run that ended meanwhile would never remove the webhook.
    if let Some(run) = run
        && !run.lifecycle().is_active()
    {
        return Err(RunError::Terminal(run.lifecycle()).into());
    }
    let webhook = Webhook {
        id: WebhookId::from_bytes(crate::base::random_bytes()),
        run: run.map(Run::id),
        owner: caller.principal,
        url,
        kinds: kinds.map(|it| it.0),
        description: description.map(|it| it.0),
        secret: secret.unwrap_or_else(SigningSecret::generate),
        created_at: crate::base::clock::wall_now(),
    };
    let webhook = app.deliveries.webhooks.create(webhook).await?;
    Ok(Json(WebhookCreated {
        request_id: caller.request_id.into(),
        run_id: webhook.run.map(|run| run.to_string()),
        webhook_id: webhook.id.into(),
        url: webhook.url.url().to_string(),
        kinds: webhook.kinds.as_deref().map(names),
        description: webhook.description.clone(),
        created_at: webhook.created_at.into(),
        secret: webhook.secret.reveal(),
    }))
}

/// The webhooks of a run.
#[derive(Serialize, ToSchema)]
pub struct WebhookList {
    request_id: schema_types::RequestId,
    /// Run of the webhooks; null if they are of all runs.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    webhooks: Vec<WebhookRecord>,
}

/// List the webhooks of a run, oldest first.
#[utoipa::path(
    get, path = "/v1/runs/{id}/webhooks", operation_id = "listWebhooks", tag = "webhooks",
    responses((status = 200, description = "The webhooks", body = WebhookList)),
)]
pub async fn list(OwnedRun(app, caller, run): OwnedRun) -> ApiResult<Json<WebhookList>> {
    listed(&app, &caller, Some(run.id())).await
}

/// Returns the webhooks of `run`, or those of all runs of the caller.
async fn listed(app: &App, caller: &Caller, run: Option<RunId>) -> ApiResult<Json<WebhookList>> {
    let webhooks = app.deliveries.webhooks.of(&caller.principal, run).await?.into_iter();
    let shown = |(state, dead_letters): (WebhookState, usize)| WebhookRecord {
        webhook_id: state.webhook.id.into(),
        url: state.webhook.url.url().to_string(),
        kinds: state.webhook.kinds.as_deref().map(names),
        description: state.webhook.description.clone(),
        status: state.status().into(),
        created_at: state.webhook.created_at.into(),
        dead_letters,
        dead_letters_dropped: state.dropped,
        last_error: state.last_error.map(|(seq, message)| DeliveryError { seq: seq.0, message }),
    };
    Ok(Json(WebhookList {
        request_id: caller.request_id.into(),
        run_id: run.map(|run| run.to_string()),
        webhooks: webhooks.map(shown).collect(),
    }))
}

/// The server, the caller, and the webhook that the path names, of the run named there or of all runs.
pub struct OwnedWebhook(Arc<App>, Caller, Arc<Webhook>);

impl FromRequestParts<Arc<App>> for OwnedWebhook {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<OwnedWebhook> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let run = match parts.uri.path().starts_with("/v1/runs/") {
            true => Some(OwnedRun::from_request_parts(parts, app).await?.2.id()),
            false => None,
        };
        let id = path_id(parts, app, "webhook_id", "webhook_id").await?;
        let webhook = app.deliveries.webhooks.find(&caller.principal, run, id);
        let webhook = webhook.ok_or(ApiError::NotFound("webhook"))?;
        Ok(OwnedWebhook(Arc::clone(app), caller, webhook))
    }
}

/// A removed webhook.
#[derive(Serialize, ToSchema)]
pub struct WebhookDeleted {
    request_id: schema_types::RequestId,
    /// Run of the webhook; null if it is of all runs.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    webhook_id: schema_types::WebhookId,
}

/// Remove a webhook and its dead letters.
#[utoipa::path(
    delete, path = "/v1/runs/{id}/webhooks/{webhook_id}", operation_id = "deleteWebhook",
    tag = "webhooks",
    responses((status = 200, description = "Removed", body = WebhookDeleted), FailureResponse<503>),
)]
pub async fn remove(
    OwnedWebhook(app, caller, webhook): OwnedWebhook,
) -> ApiResult<Json<WebhookDeleted>> {
    app.deliveries.webhooks.remove(webhook.id).await?;
    Ok(Json(WebhookDeleted {
        request_id: caller.request_id.into(),
        run_id: webhook.run.map(|run| run.to_string()),
        webhook_id: webhook.id.into(),
    }))
}

/// An event that the target did not accept.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetter)]
struct DeadLetterRecord {
    seq: u64,
    /// Run of the event; null if it was purged.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    kind: schema_types::EventKind,
    attempts: u32,
    /// Error of the last attempt.
    error: String,
}

/// Dead letters of a webhook.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterList {
    request_id: schema_types::RequestId,
    /// Run of the webhook; null if it is of all runs.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    webhook_id: schema_types::WebhookId,
    dead_letters: Vec<DeadLetterRecord>,
}

/// List the events that a webhook's target did not accept: the newest 100, oldest first.
#[utoipa::path(
    get, path = "/v1/runs/{id}/webhooks/{webhook_id}/dead-letters",
    operation_id = "listDeadLetters", tag = "webhooks",
    responses((status = 200, description = "The dead letters", body = DeadLetterList), FailureResponse<503>),
)]
pub async fn dead_letters(
    OwnedWebhook(app, caller, webhook): OwnedWebhook,
) -> ApiResult<Json<DeadLetterList>> {
    let letters = app.deliveries.webhooks.dead_letters(webhook.id).await?.into_iter();
    let shown = |letter: DeadLetter| {
        let head = app.registry.timeline().heads(letter.seq, 1).first().copied();
        DeadLetterRecord {
            seq: letter.seq.0,
            run_id: head.map(|head| head.run.to_string()),
            kind: letter.kind.into(),
            attempts: letter.attempts,
            error: letter.error,
        }
    };
    Ok(Json(DeadLetterList {
        request_id: caller.request_id.into(),
        run_id: webhook.run.map(|run| run.to_string()),
        webhook_id: webhook.id.into(),
        dead_letters: letters.map(shown).collect(),
    }))
}

/// Redelivery of dead letters.
#[derive(Serialize, ToSchema)]
pub struct RedeliverResult {
    request_id: schema_types::RequestId,
    /// Run of the webhook; null if it is of all runs.
    #[schema(value_type = Option<schema_types::RunId>, required = true)]
    run_id: Option<String>,
    webhook_id: schema_types::WebhookId,
    /// Number of dead letters to be redelivered.
    queued: usize,
}

/// Redeliver a webhook's dead letters, oldest first, before new events.
///
/// Each is tried once, with its original `webhook-id`: an accepted one is removed from the dead letters; the
/// first failure ends the redelivery and leaves the rest. A webhook that was disabled by a 410 answer becomes
/// active again.
#[utoipa::path(
    post, path = "/v1/runs/{id}/webhooks/{webhook_id}/redeliver",
    operation_id = "redeliverDeadLetters", tag = "webhooks",
    responses(
        (status = 200, description = "The redelivery has begun", body = RedeliverResult),
        FailureResponse<503>,
    ),
)]
pub async fn redeliver(
    OwnedWebhook(app, caller, webhook): OwnedWebhook,
) -> ApiResult<Json<RedeliverResult>> {
    let queued = app.deliveries.webhooks.redeliver(webhook.id).await?;
    Ok(Json(RedeliverResult {
        request_id: caller.request_id.into(),
        run_id: webhook.run.map(|run| run.to_string()),
        webhook_id: webhook.id.into(),
        queued,
    }))
}
