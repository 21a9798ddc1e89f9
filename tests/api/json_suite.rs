//! JSON and what is none of it as bodies of every POST route: the right class, and never a 5xx.

use std::{fs, path::PathBuf};

use clips::beside_media;
use serde_json::Value;

use crate::{
    api::routes::book,
    support::{Server, setting, shared},
};

/// Bodies of our own, named as the suite names its files: `y` is JSON, `n` is none, `i` may be taken for either. The parser
/// has tests of its own: these are one of each kind of fault.
const OWN: &[(&str, &[u8])] = &[
    ("y_object", br#"{"a": 1, "b": [true, false, null], "c": {"d": "e"}}"#),
    ("y_white_space", b" \t\r\n{ \n\"a\" \t:\r 1 } \n"),
    ("y_string_alone", br#""a""#),
    ("y_null_alone", b"null"),
    ("y_escaped_nul", br#"{"\u0000": "\u0000"}"#),
    ("y_surrogate_pair", br#"["\ud834\udd1e"]"#),
    ("y_numbers", b"[0, -0, 1, -1, 10, 1.5, -0.25, 1e5, 1E+5, 1e-5, 0e1, 1.0e0]"),
    ("y_nested", b"[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"),
    ("n_nothing", b""),
    ("n_white_space", b" \n"),
    ("n_word", b"hello"),
    ("n_nan", b"[NaN]"),
    ("n_trailing_comma", b"[1,]"),
    ("n_single_quotes", b"{'a': 'b'}"),
    ("n_open_array", b"[1"),
    ("n_open_string", br#"["a"#),
    ("n_wrong_bracket", b"[1}"),
    ("n_two_values", b"{} {}"),
    ("n_more_behind", b"[]x"),
    ("n_nul_behind", b"{}\0"),
    ("n_comment", b"[1 /* one */]"),
    ("n_leading_zero", b"[01]"),
    ("n_line_end_in_string", b"[\"a\nb\"]"),
    ("n_ampersand", b"a=1&b=2"),
    ("n_markup", b"<a/>"),
    ("i_byte_order_mark", b"\xef\xbb\xbf{}"),
    ("i_invalid_utf8", b"[\"\xff\xfe\"]"),
    ("i_overlong_utf8", b"[\"\xc0\xaf\"]"),
    ("i_surrogate_in_utf8", b"[\"\xed\xa0\x80\"]"),
    ("i_utf16", b"[\0\"\0a\0\"\0]\0"),
    ("i_lone_surrogate", br#"["\ud800"]"#),
    ("i_pair_the_wrong_way", br#"["\udd1e\ud834"]"#),
    ("i_huge_exponent", b"[1e9999]"),
    ("i_tiny_exponent", b"[1e-9999]"),
    ("i_huge_integer", b"[123456789012345678901234567890]"),
    ("i_name_twice", br#"{"a": 1, "a": 2}"#),
];

/// Bodies of our own, and the public suite's where it lies beside the media folder or where a setting says.
fn bodies() -> Vec<(String, Vec<u8>)> {
    let own = OWN.iter().map(|(name, body)| ((*name).to_owned(), body.to_vec()));
    let long = [
        ("n_deep_arrays", b"[".repeat(100_000)),
        ("n_deep_objects", br#"{"a":"#.repeat(20_000)),
        ("i_deep_and_whole", [b"[".repeat(5000), b"]".repeat(5000)].concat()),
        ("i_long_number", b"1".repeat(50_000)),
        ("y_long_string", format!("\"{}\"", "a".repeat(50_000)).into_bytes()),
    ];
    let long = long.into_iter().map(|(name, body)| (name.to_owned(), body));
    let mut bodies: Vec<(String, Vec<u8>)> = own.chain(long).collect();
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
