//! Retry delay in the body of a rate-limit response: the `google.rpc.RetryInfo` of Google's errors, which
//! have no `Retry-After`.

use std::time::Duration;

use serde_json::Value;

/// Longest duration text that is read: twelve digits, a point, nine digits of fraction, and the unit.
const TEXT_BYTES_MAX: usize = 24;

/// Returns the retry delay that the body of an error states.
pub(crate) fn retry_after(body: &[u8]) -> Option<Duration> {
    let error: Value = serde_json::from_slice(body).ok()?;
    // OpenAI-compatible gateways to Gemini wrap the error in a list.
    let error = error.get(0).unwrap_or(&error).get("error")?;
    let mut details = error.get("details")?.as_array()?.iter();
    let is_retry_info = |detail: &&Value| {
        detail["@type"].as_str().is_some_and(|name| name.ends_with("google.rpc.RetryInfo"))
    };
    seconds(details.find(is_retry_info)?.get("retryDelay")?.as_str()?)
}

/// Parses a protobuf duration in JSON form: decimal seconds and an `s`.
fn seconds(text: &str) -> Option<Duration> {
    let digits = text.strip_suffix('s').filter(|_| text.len() <= TEXT_BYTES_MAX)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 9 {
        return None;
    }
    let nanos = format!("{part:0<9}").parse().ok()?;
    Some(Duration::new(whole.parse().ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn limited(delay: &str) -> Value {
        json!({"error": {
            "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota",
            "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
            ],
        }})
    }

    #[test]
    fn the_wait_of_an_error_is_read_from_its_body() {
        let read = |body: &Value| retry_after(body.to_string().as_bytes());
        for (delay, expected) in [
            ("34.074824224s", Some(Duration::new(34, 74_824_224))),
            ("7s", Some(Duration::from_secs(7))),
            ("0.5s", Some(Duration::from_millis(500))),
            ("0s", Some(Duration::ZERO)),
            ("-1s", None),
            ("7", None),
            ("s", None),
            (".5s", None),
            ("1.0000000001s", None),
            ("1e9s", None),
            ("99999999999999999999999s", None),
        ] {
            assert_eq!(read(&limited(delay)), expected, "{delay}");
        }
        assert_eq!(read(&json!([limited("2s")])), Some(Duration::from_secs(2)), "in a list");
        for (name, body) in [
            ("no details", json!({"error": {"code": 429}})),
            ("other details", json!({"error": {"details": [{"@type": "x", "retryDelay": "2s"}]}})),
            ("no error", json!([])),
        ] {
            assert_eq!(read(&body), None, "{name}");
        }
        assert_eq!(retry_after(b"<html>"), None);
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(whole in 0_u64..1_000_000_000_000, nanos in 0_u32..1_000_000_000) {
            let text = format!("{whole}.{nanos:09}s");
            prop_assert_eq!(seconds(&text), Some(Duration::new(whole, nanos)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            seconds(&text);
            retry_after(text.as_bytes());
        }
    }
}
