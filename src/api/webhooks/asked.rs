//! Fields of a request for a webhook.

use serde_json::Value;
use timeline::EventKind;
use utoipa::ToSchema;

use super::super::openapi::terms;
use crate::{
    base::json::{Problem, Text},
    deliver::webhook::{Secret, SecretError},
};

/// Target of events.
pub type WebhookUrl = Text<1, 2048>;
/// Note of the owner.
pub type Description = Text<0, 256>;

/// Target of a run's events.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `create` reads")]
pub(super) struct WebhookRequest {
    /// An `https` URL of a public host, without user and password.
    #[schema(value_type = String, min_length = 1, max_length = 2048)]
    url: String,
    /// The kinds of events that are sent; every one when missing.
    #[schema(min_items = 1, max_items = 32)]
    kinds: Option<Vec<terms::EventKind>>,
    /// Secret that signs messages, `whsec_` and base64; made by the server when missing.
    secret: Option<String>,
    /// Note of the owner.
    #[schema(max_length = 256)]
    description: Option<String>,
}

/// Kinds of events that a webhook may get: one of a run is gone when that is deleted, and is never
/// told of it.
pub(super) fn kinds(value: &Value, is_of_run: bool) -> Result<Vec<EventKind>, Problem> {
    let read = |value: &Value| value.as_str().and_then(EventKind::from_name);
    let found = value.as_array().filter(|list| (1..=32).contains(&list.len()));
    let found = found.and_then(|list| list.iter().map(read).collect::<Option<Vec<_>>>());
    let is_sent = |kind: &EventKind| !is_of_run || *kind != EventKind::RunDeleted;
    found.filter(|kinds| kinds.iter().all(is_sent)).ok_or_else(|| {
        let sent = EventKind::ALL.iter().filter(|kind| is_sent(kind));
        let names: Vec<_> = sent.map(|kind| kind.as_str()).collect();
        format!("must be an array of 1 to 32 of {}", names.join(", ")).into()
    })
}

/// Reads a URL, and refuses the control characters that a parser of URLs would drop from it.
pub(super) fn url(value: &Value) -> Result<&str, Problem> {
    match WebhookUrl::read(value)? {
        found if found.chars().any(char::is_control) => {
            Err("must hold no control character".into())
        }
        found => Ok(found),
    }
}

pub(super) fn secret(value: &Value) -> Result<Secret, Problem> {
    let secret = value.as_str().ok_or(SecretError).and_then(Secret::parse);
    secret.map_err(|error| Problem::from(error.to_string()))
}
