//! Short error message of a backend, without content that must stay private.

use std::net::IpAddr;

use serde_json::Value;

const CHARS_MAX: usize = 200;
/// Longest body that is parsed; a longer one is no error message.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Replacement for a private word.
const LEFT_OUT: &str = "***";

/// Returns the message in the `body` of an error response without `key` and addresses; empty if there is
/// none, as for a proxy's HTML page.
pub(crate) fn excerpt(body: &[u8], key: Option<&str>) -> String {
    if body.len() > BODY_BYTES_MAX {
        return String::new();
    }
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => message(&value).unwrap_or_default().to_owned(),
        Err(_) => std::str::from_utf8(body).unwrap_or_default().trim().to_owned(),
    };
    if text.starts_with('<') { String::new() } else { cleaned(&text, key) }
}

/// Returns the message of an error as vLLM, SGLang, llama.cpp, Ollama, FastAPI and Gemini write it.
fn message(value: &Value) -> Option<&str> {
    let value = value.get(0).unwrap_or(value);
    let error = value.get("error").unwrap_or(value);
    let named = ["message", "detail", "msg"].iter().find_map(|name| error.get(name));
    match named.unwrap_or(error) {
        Value::String(text) => Some(text),
        Value::Array(items) => items.first()?.get("msg")?.as_str(),
        _ => None,
    }
}

/// Returns `text` as one line of bounded length, without keys and addresses.
pub(crate) fn cleaned(text: &str, key: Option<&str>) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    // More words than characters are never shown.
    let words = words.filter(|word| !word.is_empty()).take(CHARS_MAX);
    let words = words.map(|word| if is_private(word, key) { LEFT_OUT } else { word });
    let mut line = words.collect::<Vec<_>>().join(" ");
    if let Some((at, _)) = line.char_indices().nth(CHARS_MAX) {
        line.truncate(at);
        line.push('…');
    }
    line.trim_end_matches('.').to_owned()
}

/// Returns true if the word is or contains a key, a URL or an address.
fn is_private(word: &str, key: Option<&str>) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    let is_key = ["sk-", "AIza", "hf_"].iter().any(|start| bare.starts_with(start));
    let is_address = bare.parse::<IpAddr>().is_ok()
        || has_port(bare)
        || ["://", "host="].iter().any(|mark| word.contains(mark));
    is_key || is_address || key.is_some_and(|key| word.contains(key))
}

/// Returns true for `host:port`, with or without a path. A single digit is no port: models are named so.
fn has_port(word: &str) -> bool {
    let authority = word.split('/').next().unwrap_or_default();
    authority.rsplit_once(':').is_some_and(|(host, port)| {
        let is_host = host.contains(|c: char| c.is_alphabetic() || matches!(c, '.' | ']'));
        is_host && port.len() > 1 && port.parse::<u16>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_and_cleaned() {
        let long = "x".repeat(500);
        let cut = format!("{}…", "x".repeat(CHARS_MAX));
        let rows = [
            (
                r#"{"object":"error","message":"The model `x` does not exist."}"#,
                "The model `x` does not exist",
            ),
            (r#"{"error":{"message":"no such\n model","code":404}}"#, "no such model"),
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"{"detail":[{"msg":"field required"}]}"#, "field required"),
            (r#"[{"error":{"message":"quota"}}]"#, "quota"),
            ("plain words", "plain words"),
            ("<html><h1>Bad Gateway</h1>", ""),
            ("{}", ""),
            ("", ""),
            (
                r#"{"error":"key sk-abc123, or my-key-7, at 10.0.0.7:8000 or http://a/b."}"#,
                "key *** or *** at *** or ***",
            ),
            (
                r#"{"error":"(vllm.internal:8000): at vllm:80, [2001:db8::1]:8000, 10.0.0.7:80/v1"}"#,
                "*** at *** *** ***",
            ),
            ("Pool(host='vllm.internal', port=80) refused", "*** port=80) refused"),
            (
                "model 'llama3:8b' or phi:3: not found at 12:30",
                "model 'llama3:8b' or phi:3: not found at 12:30",
            ),
            (&long, &cut),
        ];
        for (body, expected) in rows {
            assert_eq!(excerpt(body.as_bytes(), Some("my-key-7")), expected, "{body}");
        }
        assert_eq!(excerpt(&vec![b'x'; BODY_BYTES_MAX + 1], None), "");
    }
}
