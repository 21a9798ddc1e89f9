//! Fields of a webhook request.

use crate::{
    api::prelude::*,
    base::json::Declared,
    deliver::webhook::{SecretError, SigningSecret},
};

/// URL that events are delivered to.
pub type WebhookUrl = BoundedText<1, 2048>;
/// Note of the owner.
pub type WebhookDescription = BoundedText<0, 256>;

/// Webhook to create.
#[derive(ToSchema)]
pub struct WebhookRequest {
    /// An `https` URL of a public host, without user and password.
    #[schema(value_type = String, min_length = 1, max_length = 2048)]
    pub(super) url: String,
    /// Kinds of events to deliver; every kind when missing.
    #[schema(value_type = Option<Vec<schema_types::EventKind>>, min_items = 1, max_items = 32)]
    pub(super) kinds: Option<Kinds>,
    /// Secret that signs messages, `whsec_` and base64; generated when missing.
    #[schema(value_type = Option<String>)]
    pub(super) secret: Option<SigningSecret>,
    /// Note of the owner.
    #[schema(value_type = Option<String>, max_length = 256)]
    pub(super) description: Option<WebhookDescription>,
}

declared!(WebhookRequest { url: required url, kinds, secret: optional secret, description });

/// Kinds of events that a webhook may select. `run_deleted` is excluded for a webhook of one run, which is
/// removed with the run.
pub(super) struct Kinds(pub(super) Vec<EventKind>);

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
    let secret = value.as_str().ok_or(SecretError).and_then(SigningSecret::parse);
    secret.map_err(|error| ValueError::from(error.to_string()))
}
