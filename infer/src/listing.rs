//! The models that a backend says it has: what it answers to `GET models`.
//!
//! An answer that is no such list says nothing, and is no failure: some programs have none.

use serde_json::Value;

use crate::config::{Api, BackendConfig};

/// Models of a list that are kept; the catalogs of the large providers have some hundred.
const MODELS_MAX: usize = 4096;

/// The names in a list of models, as the backend writes them; `None` where it is no list.
pub(crate) fn models(api: Api, body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let (list, name) = match api {
        Api::Openai(_) => (list.get("data")?, "id"),
        Api::Gemini => (list.get("models")?, "name"),
    };
    let names = list.as_array()?.iter().filter_map(|model| model.get(name)?.as_str());
    Some(names.take(MODELS_MAX).map(str::to_owned).collect())
}

/// `listed` says that the backend has what it is asked for when `model` is wanted. A name that
/// was configured for it is believed: what programs list is not always what they answer to.
pub(crate) fn has(config: &BackendConfig, listed: Option<&[String]>, model: &str) -> bool {
    let (None, Some(listed)) = (&config.upstream_model, listed) else { return true };
    listed.iter().any(|name| {
        let name = match config.api {
            Api::Gemini => name.strip_prefix("models/").unwrap_or(name),
            // Ollama adds its default tag.
            Api::Openai(_) => name.strip_suffix(":latest").unwrap_or(name),
        };
        name == model
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Backends;

    const OPENAI: Api = Api::Openai(None);

    fn config(kind: &str, more: &str) -> BackendConfig {
        let text = format!(
            "[[backends]]\nname = \"a\"\ntype = \"{kind}\"\napi_key = \"k\"\n\
             base_url = \"http://127.0.0.1:9\"\npriority = 1\n{more}\n"
        );
        let configs = Backends::parse("test.toml", &text, &|_| None).expect("the file is right");
        configs.into_iter().next().expect("one")
    }

    #[test]
    fn lists_are_read_and_what_is_none_says_nothing() {
        let rows: [(&str, Api, &str, Option<&[&str]>); 8] = [
            (
                "openai",
                OPENAI,
                r#"{"object": "list", "data": [{"id": "a"}, {"id": "b"}]}"#,
                Some(&["a", "b"]),
            ),
            ("gemini", Api::Gemini, r#"{"models": [{"name": "models/g"}]}"#, Some(&["models/g"])),
            ("nothing loaded", OPENAI, r#"{"data": []}"#, Some(&[])),
            (
                "an entry without a name",
                OPENAI,
                r#"{"data": [{"id": 7}, {}, {"id": "a"}]}"#,
                Some(&["a"]),
            ),
            ("another's list", OPENAI, r#"{"models": [{"name": "models/g"}]}"#, None),
            ("no list", OPENAI, r#"{"data": {}}"#, None),
            ("no JSON", OPENAI, "<html>", None),
            ("nothing", OPENAI, "", None),
        ];
        for (name, api, body, expected) in rows {
            let expected =
                expected.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(models(api, body.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn a_backend_has_what_it_lists_or_what_it_is_configured_to_have() {
        let mapped = "model = \"house-7b\"\nupstream_model = \"org/house\"";
        let rows = [
            ("listed", "openai_compat", "", Some("qwen3-vl-8b"), true),
            ("by another name", "openai_compat", "", Some("Qwen/Qwen3-VL-8B-Instruct"), false),
            ("with Ollama's tag", "openai_compat", "", Some("qwen3-vl-8b:latest"), true),
            ("with another tag", "openai_compat", "", Some("qwen3-vl-8b:q4"), false),
            ("mapped", "openai_compat", mapped, Some("/models/file.gguf"), true),
            ("no list", "openai_compat", "", None, true),
            ("of Gemini", "gemini", "", Some("models/qwen3-vl-8b"), true),
        ];
        for (name, kind, more, listed, expected) in rows {
            let listed = listed.map(|name| vec![name.to_owned()]);
            let found = has(&config(kind, more), listed.as_deref(), "qwen3-vl-8b");
            assert_eq!(found, expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_bounded_list_or_none(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            for api in [OPENAI, Api::Gemini] {
                let read = models(api, &body);
                prop_assert!(read.is_none_or(|names| names.len() <= MODELS_MAX));
            }
        }
    }
}
