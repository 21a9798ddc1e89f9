//! JSON and what is none of it as bodies of every POST route: the right class, and never a 5xx.

use std::{fs, path::PathBuf};

use clips::beside_media;
use serde_json::Value;

use crate::{
    api::routes::book,
    support::{Server, setting, shared},
};

/// Bodies of our own, named as the suite names its files: `y` is JSON, `n` is none, `i` may be taken for either. Few, as the
/// parser has tests of its own, `src/base/json/tests.rs`; long and deep ones are in [`super::bombs`].
const OWN: &[(&str, &[u8])] = &[
    ("y_object", br#"{"a": 1, "b": [true, false, null], "c": {"d": "e"}}"#),
    ("y_string_alone", br#""a""#),
    ("y_escaped_nul", br#"{"\u0000": "\u0000"}"#),
    ("y_numbers", b"[0, -0, 1, -1, 10, 1.5, -0.25, 1e5, 1E+5, 1e-5, 0e1, 1.0e0]"),
    ("n_nothing", b""),
    ("n_word", b"hello"),
    ("n_trailing_comma", b"[1,]"),
    ("n_open_string", br#"["a"#),
    ("n_two_values", b"{} {}"),
    ("n_nul_behind", b"{}\0"),
    ("n_ampersand", b"a=1&b=2"),
    ("i_invalid_utf8", b"[\"\xff\xfe\"]"),
    ("i_utf16", b"[\0\"\0a\0\"\0]\0"),
    ("i_lone_surrogate", br#"["\ud800"]"#),
    ("i_huge_exponent", b"[1e9999]"),
    ("i_name_twice", br#"{"a": 1, "a": 2}"#),
];

/// Bodies of our own, and the public suite's where it lies beside the media folder or where a setting says.
fn bodies() -> Vec<(String, Vec<u8>)> {
    let own = OWN.iter().map(|(name, body)| ((*name).to_owned(), body.to_vec()));
    let mut bodies: Vec<(String, Vec<u8>)> = own.collect();
    let set = setting("SIGHTLINE_JSON_SUITE_DIR").map(PathBuf::from);
    let Some(dir) = set.or_else(|| beside_media("json-test-suite")) else { return bodies };
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let files = entries.map(|entry| entry.expect("readable").path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let before = bodies.len();
    bodies.extend(files.map(|path| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(&path).expect("readable"))
    }));
    assert!(bodies.len() > before + 300, "the suite is whole: {}", bodies.len() - before);
    bodies
}

/// The POST routes of the server's own document, and whether their bodies are JSON.
fn documented(server: &Server) -> Vec<(String, bool)> {
    let document = server.get("/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    let posts = paths.iter().filter(|(_, item)| item["post"].is_object());
    let is_json =
        |item: &Value| item["post"]["requestBody"]["content"]["application/json"].is_object();
    posts.map(|(path, item)| (path.clone(), is_json(item))).collect()
}

#[test]
fn no_body_of_the_suite_is_taken_for_what_it_is_not() {
    let files = bodies();
    let server = shared();
    let mut wrong = Vec::new();
    let routes = documented(&server);
    let of_json = routes.iter().filter(|(_, is_json)| *is_json).count();
    assert!(routes.len() >= 20 && of_json >= 12, "{routes:?}");
    for (path, is_json) in &routes {
        let run = server.create_run();
        let path = book::path(path, &run);
        for (name, body) in &files {
            let call = server.call("POST", &path).header("content-type", "application/json");
            let Ok(reply) = call.body(body.clone()).try_send() else {
                wrong.push(format!("POST {path} {name}: no answer"));
                continue;
            };
            let fits = match name.as_bytes()[0] {
                // The one 500 that the contract asks for.
                _ if reply.status >= 500 => {
                    reply.text.contains("the database client is not configured")
                }
                _ if !is_json => true,
                b'n' => reply.status == 400,
                // What is JSON may still be no request; it is not malformed.
                b'y' => reply.status != 400,
                _ => true,
            };
            if !fits {
                wrong.push(format!("POST {path} {name}: {} {}", reply.status, reply.text));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(server.get("/v1/health").status, 200);
}
