//! One delivery attempt: posts the signed message to the webhook's URL, and interprets the answer.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use media::WallTime;
use transport::egress::EgressClient;

use super::{Webhook, WebhookMessage};
use crate::base::clock::wall_now;

/// Longest `Retry-After` that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The target accepted the message.
    Delivered,
    /// The target wants no further messages.
    Gone,
    /// With the reason, which the owner is told, and the `Retry-After` of the target, zero without one.
    Failed { reason: String, at_least: Duration },
}

fn failed(reason: impl Into<String>) -> AttemptOutcome {
    AttemptOutcome::Failed { reason: reason.into(), at_least: Duration::ZERO }
}

/// Sends `message`; reads only the head of the answer.
pub async fn post(
    egress: &EgressClient,
    webhook: &Webhook,
    message: &WebhookMessage,
    timeout: Duration,
) -> AttemptOutcome {
    let request = match request(webhook, message, wall_now().epoch_ms.div_euclid(1000)) {
        Ok(request) => request,
        Err(error) => return failed(error.to_string()),
    };
    match tokio::time::timeout(timeout, egress.request(&webhook.url, request, 0)).await {
        Ok(Ok(response)) => verdict(response.status(), response.headers(), wall_now()),
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed(format!("timeout: no answer within {} s", timeout.as_secs_f32())),
    }
}

fn request(
    webhook: &Webhook,
    message: &WebhookMessage,
    timestamp: i64,
) -> Result<Request<Bytes>, http::Error> {
    let signature = webhook.secret.sign(&message.id, timestamp, &message.body);
    Request::builder()
        .method(Method::POST)
        .header(header::CONTENT_TYPE, "application/cloudevents+json; charset=utf-8")
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(message.body.clone())
}

fn verdict(status: StatusCode, headers: &HeaderMap, now: WallTime) -> AttemptOutcome {
    if status.is_success() {
        return AttemptOutcome::Delivered;
    }
    if status == StatusCode::GONE {
        return AttemptOutcome::Gone;
    }
    if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        return failed(format!("answered {}: redirects are not followed", status.as_u16()));
    }
    let asks = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let asked = headers.get(header::RETRY_AFTER).filter(|_| asks);
    let at_least = asked.and_then(|value| retry_after(value, now)).unwrap_or_default();
    let at_least = at_least.min(RETRY_AFTER_MAX);
    AttemptOutcome::Failed { reason: format!("answered {}", status.as_u16()), at_least }
}

/// Parses `Retry-After`, in seconds or as a date (RFC 9110 10.2.3).
fn retry_after(value: &HeaderValue, now: WallTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let now = Duration::from_millis(now.epoch_ms.try_into().ok()?);
    Some(date.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_standard_webhooks_says() {
        let asks = |status: u16, secs| AttemptOutcome::Failed {
            reason: format!("answered {status}"),
            at_least: Duration::from_secs(secs),
        };
        let table = [
            (200, None, AttemptOutcome::Delivered),
            (204, None, AttemptOutcome::Delivered),
            (410, None, AttemptOutcome::Gone),
            (301, None, failed("answered 301: redirects are not followed")),
            (308, Some("9"), failed("answered 308: redirects are not followed")),
            (304, None, failed("answered 304")),
            (404, Some("9"), failed("answered 404")),
            (500, Some("9"), failed("answered 500")),
            (429, None, failed("answered 429")),
            (429, Some("soon"), failed("answered 429")),
            (429, Some("-1"), failed("answered 429")),
            (429, Some("9"), asks(429, 9)),
            (503, Some("Thu, 01 Jan 1970 00:01:07 GMT"), asks(503, 5)),
            (503, Some("Thu, 01 Jan 1970 00:00:00 GMT"), failed("answered 503")),
            (429, Some("Fri, 31 Dec 2100 23:59:59 GMT"), asks(429, 86_400)),
            (503, Some("99999999"), asks(503, 86_400)),
        ];
        for (status, retry_after, expected) in table {
            let mut headers = HeaderMap::new();
            if let Some(value) = retry_after {
                headers.insert(header::RETRY_AFTER, value.parse().expect("a value"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            let now = WallTime { epoch_ms: 62_000 };
            assert_eq!(verdict(status, &headers, now), expected, "{status} {retry_after:?}");
        }
    }
}
