//! Tests of accepted files, rejected files with their messages, and base URLs.

use std::time::Duration;

use super::{ApiKey, ApiProtocol, BackendConfig, BaseUrl, OpenaiKind};
use crate::ProviderKind;

fn lookup(name: &str) -> Option<String> {
    match name {
        "HOST" => Some("gpu-1".to_owned()),
        "KEY_1" => Some("sk-hidden".to_owned()),
        "SPACED" => Some("se cret".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Vec<BackendConfig>, String> {
    BackendConfig::parse("sightline.toml", text, &lookup).map_err(|error| error.to_string())
}

#[test]
fn a_file_is_read_with_its_variables() {
    let text = r#"
[[backends]]
name = "local"
type = "openai_compat"
base_url = "http://${HOST}:8000/"
priority = 1
openai_kind = "vllm"

[[backends]]
name = "cloud"
type = "gemini"
base_url = "https://generativelanguage.googleapis.com"
api_key = "${KEY_1}"
priority = 9
timeout_ms = 30_000

[[backends]]
name = "mac"
type = "openai_compat"
openai_kind = "mlx"
base_url = "http://${HOST}-mac:8080/v1"
model = "qwen3-vl-8b"
upstream_model = "mlx-community/Qwen3-VL-8B-4bit"
priority = 2
"#;
    let read = parse(text).expect("a file that can be read");
    let [local, cloud, mac] = read.as_slice() else {
        panic!("three backends: {read:?}");
    };
    assert_eq!((&*local.name, local.api), ("local", ApiProtocol::Openai(Some(OpenaiKind::Vllm))));
    assert_eq!(local.base_url.to_string(), "http://gpu-1:8000/v1");
    assert_eq!((local.priority, local.timeout, &local.api_key), (1, None, &None));
    assert_eq!(cloud.api.provider(), Some(ProviderKind::Gemini));
    assert_eq!(cloud.api_key, ApiKey::new("sk-hidden".to_owned()));
    assert_eq!(cloud.timeout, Some(Duration::from_secs(30)));
    assert_eq!(mac.model.as_deref(), Some("qwen3-vl-8b"));
    assert_eq!(mac.upstream_model.as_deref(), Some("mlx-community/Qwen3-VL-8B-4bit"));
    assert_eq!(mac.base_url.to_string(), "http://gpu-1-mac:8080/v1");
    assert!(!format!("{read:?}").contains("sk-hidden"), "{read:?}");
}

#[test]
fn no_backends_are_none() {
    assert_eq!(parse(""), Ok(Vec::new()));
    assert_eq!(parse("# nothing\n"), Ok(Vec::new()));
}

/// Returns the lines of a complete backend followed by `more`.
fn with(more: &str) -> String {
    format!(
        "[[backends]]\nname = \"a\"\ntype = \"openai_compat\"\nbase_url = \"http://h\"\n\
         priority = 1\n{more}"
    )
}

fn instead(line: &str, other: &str) -> String {
    with("").replace(line, other)
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_field() {
    let name = "name = \"a\"";
    let url = "base_url = \"http://h\"";
    let kind = "type = \"openai_compat\"";
    let at = |address: &str| with("").replace("http://h", address);
    let cases = [
        ("not TOML", "[[backends]\n".to_owned(), "sightline.toml:1: the file is not TOML"),
        (
            "another table",
            "[server]\n".to_owned(),
            "sightline.toml:1: server is unknown; known are",
        ),
        ("a table", "[backends]\nname = \"a\"\n".to_owned(), "1: backends must be an array"),
        (
            "an unknown field",
            with("colour = 1"),
            "6: backends[0].colour is unknown; known are name",
        ),
        ("no name", instead(name, ""), "1: backends[0].name is missing"),
        ("an empty name", instead(name, "name = \"\""), "2: backends[0].name must be 1 to 256"),
        ("no type", instead(kind, ""), "backends[0].type is missing"),
        ("another type", instead(kind, "type = \"claude\""), "3: backends[0].type must be openai"),
        ("a number as type", instead(kind, "type = 1"), "3: backends[0].type must be a string"),
        ("no URL", instead(url, ""), "backends[0].base_url is missing"),
        ("no URL at all", at("gpu"), "4: backends[0].base_url is not a URL"),
        ("another scheme", at("ftp://h"), "must begin with http://"),
        ("a password", at("http://u:p@h"), "must not hold a user name"),
        ("a query", at("http://h/?key=1"), "must not hold a query"),
        ("no variable", at("${NONE}"), "variable NONE, which is not set"),
        ("an empty one", at("${EMPTY}"), "variable EMPTY, which is not set"),
        ("an open one", at("${HOST"), "that is not closed"),
        ("one without a name", at("${}"), "no variable name"),
        ("one that begins with a digit", at("${1A}"), "no variable name"),
        ("no priority", instead("priority = 1", ""), "backends[0].priority is missing"),
        ("a fraction", instead("priority = 1", "priority = 1.5"), "integer in [0, 1000000]"),
        ("below zero", instead("priority = 1", "priority = -1"), "integer in [0, 1000000]"),
        (
            "a short time",
            with("timeout_ms = 5"),
            "6: backends[0].timeout_ms must be an integer in [100,",
        ),
        ("a key with spaces", with("api_key = \"${SPACED}\""), "api_key must be visible ASCII"),
        (
            "another program",
            with("openai_kind = \"tgi\""),
            "openai_kind must be vllm, sglang or mlx",
        ),
        ("a lone conversion", with("upstream_model = \"m\""), "upstream_model needs model"),
        (
            "a program behind Gemini",
            instead(kind, "type = \"gemini\"\nopenai_kind = \"vllm\""),
            "openai_kind needs type",
        ),
        ("the same name", with("") + &with(""), "7: backends[1].name is the name of an earlier"),
    ];
    for (case, text, expected) in cases {
        let said = parse(&text).err().unwrap_or_default();
        assert!(said.contains(expected), "{case}: {said:?}");
        assert!(!said.contains("se cret") && !said.contains(":p@"), "{case}: {said:?}");
    }
}

#[test]
fn too_many_backends_are_refused() {
    let text: String = (0..65).map(|n| with("").replace("\"a\"", &format!("\"a{n}\""))).collect();
    let said = parse(&text).err().unwrap_or_default();
    assert!(said.contains("more than 64 entries"), "{said}");
}

#[test]
fn a_base_url_ends_in_its_version_whether_it_was_written_or_not() {
    let cases = [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000/v1"),
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000/v1"),
        (" https://h/openai ", "https://h/openai/v1"),
        ("https://h/api/v3", "https://h/api/v3"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai"),
        ("http://[::1]:1/vision", "http://[::1]:1/vision/v1"),
    ];
    for (text, expected) in cases {
        let url = BaseUrl::openai(text).expect("a base URL");
        assert_eq!(url.to_string(), expected, "{text}");
    }
    let gemini = BaseUrl::gemini("https://h/").expect("a base URL");
    assert_eq!(gemini.to_string(), "https://h/v1beta");
    let below = gemini.endpoint(&["models", "a b/c:generateContent"]);
    assert_eq!(below.as_str(), "https://h/v1beta/models/a%20b%2Fc:generateContent");
}

#[test]
fn explicit_urls_are_vllm_before_sglang() {
    let url = |text| BaseUrl::openai(text).ok();
    let both = BackendConfig::of_urls(url("http://a"), url("http://b"));
    let order: Vec<_> = both.iter().map(|b| (&*b.name, b.priority, b.api.provider())).collect();
    let expected =
        [("vllm", 1, Some(ProviderKind::Vllm)), ("sglang", 2, Some(ProviderKind::Sglang))];
    assert_eq!(order, expected);
    assert_eq!(BackendConfig::of_urls(None, url("http://b")).len(), 1);
}
