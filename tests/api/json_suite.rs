//! JSON and what is none of it as bodies of every POST route: the right class, and never a 5xx.

use std::{fs, path::PathBuf};

use clips::beside_media;
use serde_json::{Value, json};

use crate::{
    api::{
        routes::book,
        uploads::{TYPE, file_form},
    },
    support::{Server, setting, shared},
};

/// Bodies of our own, named as the suite names its files: `y` is JSON, `n` is none, `i` may be taken for either.
const OWN: &[(&str, &[u8])] = &[
    ("y_object", br#"{"a": 1, "b": [true, false, null], "c": {"d": "e"}}"#),
    ("y_empty_object", b"{}"),
    ("y_empty_array", b"[]"),
    ("y_white_space", b" \t\r\n{ \n\"a\" \t:\r 1 } \n"),
    ("y_string_alone", br#""a""#),
    ("y_number_alone", b"42"),
    ("y_null_alone", b"null"),
    ("y_true_alone", b"true"),
    ("y_empty_name", br#"{"": 0}"#),
    ("y_escapes", br#"["\" \\ \/ \b \f \n \r \t"]"#),
    ("y_escaped_nul", br#"{"\u0000": "\u0000"}"#),
    ("y_surrogate_pair", br#"["\ud834\udd1e"]"#),
    ("y_noncharacter", br#"["\uffff"]"#),
    ("y_utf8", "[\"\u{1f33c}\u{e9}\u{20ac}\"]".as_bytes()),
    ("y_delete_character", b"[\"\x7f\"]"),
    ("y_line_separators", "[\"\u{2028}\u{2029}\"]".as_bytes()),
    ("y_numbers", b"[0, -0, 1, -1, 10, 1.5, -0.25, 1e5, 1E+5, 1e-5, 0e1, 1.0e0]"),
    ("y_many_digits", b"[0.12345678901234567890123456789]"),
    ("y_small", b"[-1e-307]"),
    ("y_nested", b"[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"),
    ("n_nothing", b""),
    ("n_white_space", b" \n"),
    ("n_word", b"hello"),
    ("n_capital_true", b"[True]"),
    ("n_capital_null", b"[NULL]"),
    ("n_cut_true", b"[tru"),
    ("n_nan", b"[NaN]"),
    ("n_infinity", b"[-Infinity]"),
    ("n_trailing_comma", b"[1,]"),
    ("n_trailing_comma_of_object", br#"{"a": 1,}"#),
    ("n_leading_comma", b"[,1]"),
    ("n_two_commas", b"[1,,2]"),
    ("n_no_comma", b"[1 2]"),
    ("n_no_comma_of_object", br#"{"a": 1 "b": 2}"#),
    ("n_no_colon", br#"{"a" 1}"#),
    ("n_two_colons", br#"{"a":: 1}"#),
    ("n_no_value", br#"{"a":}"#),
    ("n_no_name", b"{: 1}"),
    ("n_bare_name", b"{a: 1}"),
    ("n_number_for_name", b"{1: 1}"),
    ("n_single_quotes", b"{'a': 'b'}"),
    ("n_open_array", b"[1"),
    ("n_open_object", br#"{"a": 1"#),
    ("n_open_string", br#"["a"#),
    ("n_open_escape", br#"["a\"#),
    ("n_wrong_bracket", b"[1}"),
    ("n_bracket_alone", b"]"),
    ("n_two_values", b"{} {}"),
    ("n_more_behind", b"[]x"),
    ("n_nul_behind", b"{}\0"),
    ("n_comment", b"[1 /* one */]"),
    ("n_line_comment", b"[1] // one"),
    ("n_plus", b"[+1]"),
    ("n_leading_zero", b"[01]"),
    ("n_leading_zero_of_negative", b"[-01]"),
    ("n_minus_alone", b"[-]"),
    ("n_no_digit_before_point", b"[.5]"),
    ("n_no_digit_behind_point", b"[1.]"),
    ("n_no_exponent", b"[1e]"),
    ("n_sign_of_no_exponent", b"[1e+]"),
    ("n_hexadecimal", b"[0x1f]"),
    ("n_full_width_digit", "[\u{ff11}]".as_bytes()),
    ("n_tab_in_string", b"[\"a\tb\"]"),
    ("n_line_end_in_string", b"[\"a\nb\"]"),
    ("n_nul_in_string", b"[\"a\0b\"]"),
    ("n_unknown_escape", br#"["\x41"]"#),
    ("n_short_escape", br#"["\u00g1"]"#),
    ("n_form_feed", b"[\x0c]"),
    ("n_no_break_space", "[\u{a0}]".as_bytes()),
    ("n_byte_order_mark_inside", "[\u{feff}]".as_bytes()),
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

/// Routes whose bodies are no JSON are given the files as what they take.
#[test]
fn no_body_of_the_suite_is_taken_for_media_or_an_offer() {
    let files = bodies();
    let server = shared();
    for (name, body) in &files {
        let upload = server.call("POST", "/v1/upload").header("content-type", TYPE);
        let upload = upload.body(file_form("a.mp4", body)).send();
        assert_eq!(upload.status, 422, "upload of {name}: {}", upload.text);
        let offer =
            server.call("POST", "/v1/stream/whip").header("content-type", "application/sdp");
        let offer = offer.body(body.clone()).send();
        let refused = if body.len() > 64 << 10 { 413 } else { 400 };
        assert_eq!(offer.status, refused, "offer of {name}: {}", offer.text);
    }
    assert_eq!(server.get("/v1/files").json()["files"], json!([]), "nothing is kept");
    assert_eq!(server.get("/v1/runs").json(), json!([]));
}
