//! Model list of a backend: the response to `GET models`.
//!
//! A response that is no such list is ignored and is no failure, as some programs have none.

use serde_json::Value;

use crate::config::ApiProtocol;

/// Most models kept of a list; the catalogs of large providers have some hundred.
const MODELS_MAX: usize = 4096;

/// Returns the model names as the backend accepts them; `None` if the body is no list.
pub(crate) fn models(api: ApiProtocol, body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let (list, name) = match api {
        ApiProtocol::Openai(_) => (list.get("data")?, "id"),
        ApiProtocol::Gemini => (list.get("models")?, "name"),
    };
    let names = list.as_array()?.iter().filter_map(|model| model.get(name)?.as_str());
    Some(names.take(MODELS_MAX).map(|name| plain(api, name).to_owned()).collect())
}

/// Returns `name` without the prefix or suffix that the backend adds.
fn plain(api: ApiProtocol, name: &str) -> &str {
    match api {
        ApiProtocol::Gemini => name.strip_prefix("models/").unwrap_or(name),
        // Ollama appends its default tag.
        ApiProtocol::Openai(_) => name.strip_suffix(":latest").unwrap_or(name),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPENAI: ApiProtocol = ApiProtocol::Openai(None);

    #[test]
    fn lists_are_read_and_what_is_none_says_nothing() {
        let rows: [(&str, &str, Option<&[&str]>); 8] = [
            (
                "openai",
                r#"{"object": "list", "data": [{"id": "a"}, {"id": "b"}]}"#,
                Some(&["a", "b"]),
            ),
            ("Ollama", r#"{"data": [{"id": "q:latest"}, {"id": "q:4b"}]}"#, Some(&["q", "q:4b"])),
            ("nothing loaded", r#"{"data": []}"#, Some(&[])),
            ("an entry without a name", r#"{"data": [{"id": 7}, {}, {"id": "a"}]}"#, Some(&["a"])),
            ("another's list", r#"{"models": [{"name": "models/g"}]}"#, None),
            ("no list", r#"{"data": {}}"#, None),
            ("no JSON", "<html>", None),
            ("nothing", "", None),
        ];
        for (name, body, expected) in rows {
            let expected =
                expected.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(models(OPENAI, body.as_bytes()), expected, "{name}");
        }
        let gemini = models(ApiProtocol::Gemini, br#"{"models": [{"name": "models/g"}]}"#);
        assert_eq!(gemini.as_deref(), Some(&["g".to_owned()][..]));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_bounded_list_or_none(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            for api in [OPENAI, ApiProtocol::Gemini] {
                let read = models(api, &body);
                prop_assert!(read.is_none_or(|names| names.len() <= MODELS_MAX));
            }
        }
    }
}
