//! Bodies and queries: what is JSON, fields that do not go with others (each by itself is in [`super::limits`]), control
//! characters, and what is small to send and could be dear to read.

use std::{fs, path::PathBuf};

use clips::beside_media;
use scripted_model::Step;
use serde_json::{Value, json};

use super::{
    abuse::resident,
    analyses::frame,
    routes::book,
    uploads::{TYPE, file_form},
    whip::{attached, offer, publishing},
};
use crate::support::{
    Server, Setup, clip_bytes,
    model::{Model, prompt},
    setting, shared,
};

#[test]
fn a_body_is_json_or_its_fault_is_named() {
    let server = shared();
    let padded = |len: usize| format!("{{\"x\":\"{}\"}}", "a".repeat(len - 8)).into_bytes();
    let json = "application/json";
    let rows: Vec<(&str, Vec<u8>, &str, u16, &str)> = vec![
        (json, b"{}".to_vec(), "", 200, ""),
        ("application/json; charset=utf-8", b"{}".to_vec(), "", 200, ""),
        ("Application/JSON", b"{}".to_vec(), "identity", 200, ""),
        ("application/problem+json", b"{}".to_vec(), "", 200, ""),
        ("text/plain", b"{}".to_vec(), "", 415, ""),
        ("", b"{}".to_vec(), "", 415, ""),
        (json, b"{}".to_vec(), "gzip", 415, ""),
        (json, b"{".to_vec(), "", 400, ""),
        (json, b"{\"mode\":1}".to_vec(), "", 422, "mode"),
        (json, b"{\"mode\":null}".to_vec(), "", 200, ""),
        (json, b"{\"mode\":\"custom\",\"mode\":\"custom\"}".to_vec(), "", 422, "mode"),
        (json, b"null".to_vec(), "", 422, "body"),
        (json, padded(2 << 20), "", 200, ""),
        (json, padded((2 << 20) + 1), "", 413, ""),
    ];
    for (content_type, body, encoding, status, field) in rows {
        let name = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        let mut call = server.call("POST", "/v1/runs").body(body);
        for (header, value) in [("content-type", content_type), ("content-encoding", encoding)] {
            if !value.is_empty() {
                call = call.header(header, value);
            }
        }
        let reply = call.send();
        assert_eq!(reply.status, status, "{name} as {content_type:?}: {}", reply.text);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{name}");
        assert!(status == 422 || reply.code().is_empty(), "{name} is answered in plain text");
        assert!(status != 413 || reply.text.contains("2097152"), "{}", reply.text);
    }
}

pub fn with(mut base: Value, field: &str, value: Value) -> Value {
    base[field] = value;
    base
}

#[test]
fn an_analysis_names_the_frame_or_field_that_does_not_go_with_the_others() {
    let server = shared();
    let path = format!("/v1/runs/{}/analyze", server.create_run());
    let base = json!({"model": "qwen3-vl-8b", "frames": [frame(0)]});
    let of = |frames: Value| with(base.clone(), "frames", frames);
    let one = |field: &str, value: Value| of(json!([with(frame(0), field, value)]));
    let at = |pts_ms: u64| with(frame(6), "pts_ms", json!(pts_ms));
    let rows = [
        (base.clone(), ""),
        (json!({"frames": [frame(0)]}), "model"),
        (of(json!([1])), "frames[0]"),
        (of(json!([frame(1), frame(0)])), "frames[1].frame_index"),
        (of(json!([frame(1), frame(1)])), "frames[1].frame_index"),
        (of(json!([frame(5), at(200)])), ""),
        (of(json!([frame(5), at(0)])), "frames[1].pts_ms"),
        (with(base.clone(), "trace_id", json!("a b")), "trace_id"),
        (with(base.clone(), "sampling_policy", json!("fixed")), "fixed_fps"),
        (with(base.clone(), "unknown", json!(1)), ""),
        (one("noise_variance_score", Value::Null), "frames[0].noise_variance_score"),
        (one("scene_score", Value::Null), ""),
        (one("perceptual_hash", json!("ff")), "frames[0].perceptual_hash"),
        (one("frame_index", json!(0.0)), "frames[0].frame_index"),
    ];
    for (body, field) in rows {
        let reply = server.post(&path, &body);
        let status = if field.is_empty() { 200 } else { 422 };
        assert_eq!(reply.status, status, "{body}: {}", reply.text);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{body}");
    }
}

#[test]
fn a_query_has_a_parameter_once_and_in_digits() {
    let server = shared();
    let run = server.create_run();
    let of_run = |list: &str| format!("/v1/runs/{run}/{list}");
    for list in ["/v1/runs".to_owned(), of_run("events"), of_run("keyframes"), of_run("markers")] {
        for limit in ["%2B1", "1&limit=1"] {
            let reply = server.get(&format!("{list}?limit={limit}"));
            assert_eq!(reply.status, 422, "{list}?limit={limit}: {}", reply.text);
        }
    }
    let many = server.get(&format!("/v1/runs?{}", "a=1&".repeat(1000)));
    assert_eq!((many.status, many.fields().len()), (422, 33), "bounded: {}", many.text);
}

/// White space and others, at both ends and between.
pub const ODD: &str = "\t\u{1}a\u{7}b\u{85}c\r\nd\u{7f}\n";

/// Beside the fields whose patterns `limits.rs` tries.
#[test]
fn what_has_no_room_for_them_is_refused_by_name() {
    let server = shared();
    let run = server.create_run();
    let hook = server.post_run(&run, "webhooks", &json!({"url": "https://ho\nst.example/"}));
    let tenant = server.call("POST", "/v1/runs").header("x-tenant-id", "a\tb").json(&json!({}));
    let upload = server.call("POST", "/v1/upload").header("content-type", TYPE);
    let upload = upload.body(file_form("a\u{85}.mp4", &clip_bytes("motion.mp4")));
    for (reply, field) in [(hook, "url"), (tenant.send(), "x-tenant-id"), (upload.send(), "file")] {
        reply.assert_invalid(field, "a control character");
    }
}

#[test]
fn prompts_and_descriptions_stay_as_they_were_written() {
    let model = Model::start(|_| Step::chat("hello"));
    let setup = model.behind(Setup::temporary().clips());
    let server = setup.var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8").start();
    let asked = |path: &str, body: &Value| {
        let before = model.server.seen().len();
        let reply = server.post(path, body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        prompt(&model.server.seen()[before])
    };
    let of = "qwen3-vl-4b";
    assert_eq!(asked("/v1/infer", &json!({"model": of, "prompt": ODD})), ODD);
    let run = server.create_run();
    let body = json!({
        "source_uri": "motion.mp4", "model": of, "max_frames": 30, "semantic_prompt": ODD,
    });
    let hook = json!({"url": "https://127.0.0.1:9/hook", "description": ODD});
    let made = server.post_run(&run, "webhooks", &hook).assert_ok();
    assert_eq!(made.json()["description"], ODD);
    let said = asked(&format!("/v1/runs/{run}/reason"), &body);
    assert!(said.contains(ODD), "{said:?}");
    let config = attached(&json!({"prompt": ODD}));
    let reply = publishing(&server, &offer("VP8"))
        .header("x-attach-config", &config)
        .send()
        .assert_status(201);
    let path = format!("{}/prompt", reply.header("location"));
    let updated = server.call("PATCH", &path).json(&json!({"prompt": ODD})).send();
    assert_eq!((updated.status, &updated.json()["prompt"]), (200, &json!(ODD)));
}

/// Bodies of our own, named as the suite names its files: `y` is JSON, `n` is none, `i` may be taken for either. Few, as the
/// parser has tests of its own, `src/base/json/tests.rs`; long and deep ones are below.
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

/// Processor time of an answer to a body, in ticks of 10 ms, of a build without optimisation; the densest body of 2 MiB takes a tenth.
const TICKS_MAX: u64 = 400;
/// Memory that stays with the allocator afterwards: a body takes many times its bytes for the moment of its reading.
const KEPT_BYTES_MAX: f64 = 192e6;
/// Just under the longest body that is read.
const BYTES: usize = (2 << 20) - 4096;

/// Ticks that the server has run for.
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    [11, 12].map(|at: usize| fields[at].parse::<u64>().expect("a number")).iter().sum()
}

/// Values that stand where something else is expected.
fn values() -> Vec<(&'static str, String)> {
    let many = |one: &str| vec![one; BYTES / (one.len() + 1)].join(",");
    let keys =
        |count: usize| (0..count).map(|at| format!("\"{at:x}\":0")).collect::<Vec<_>>().join(",");
    let deep = |levels: usize, open: &str, close: &str| {
        format!("{}0{}", open.repeat(levels), close.repeat(levels))
    };
    vec![
        ("deep arrays", deep(BYTES / 2, "[", "]")),
        ("deep objects", deep(BYTES / 6, "{\"a\":", "}")),
        ("as deep as is read", format!("[{}]", vec![deep(100, "[", "]"); BYTES / 210].join(","))),
        ("numbers", format!("[{}]", many("0"))),
        ("empty objects", format!("[{}]", many("{}"))),
        ("floats", format!("[{}]", many("2.2250738585072011e-308"))),
        ("large exponents", format!("[{}]", many("9e-99999"))),
        ("a number too large", "9e99999".to_owned()),
        ("a long exponent", format!("1e{}", "0".repeat(BYTES))),
        ("a long number", "7".repeat(BYTES)),
        ("a long fraction", format!("0.{}", "3".repeat(BYTES))),
        ("keys", format!("{{{}}}", keys(BYTES / 12))),
        ("a key that comes twice at last", format!("{{{},\"0\":0}}", keys(BYTES / 13))),
        ("a key again and again", format!("{{{}}}", many("\"a\":0"))),
        ("a long key", format!("{{\"{}\":0}}", "k".repeat(BYTES))),
        ("a long text", format!("\"{}\"", "t".repeat(BYTES))),
        ("escapes", format!("\"{}\"", "\\u0041".repeat(BYTES / 6))),
        ("pairs of surrogates", format!("\"{}\"", "\\ud834\\udd1e".repeat(BYTES / 12))),
    ]
}

/// Schemas that would be dear to read or to hold an answer against, beside those that `infer` refuses by name in its own tests.
fn schemas() -> [(&'static str, Value); 4] {
    let again = |inner: Value, _: i32| json!({"unevaluatedProperties": inner});
    [
        (
            "two ways down",
            json!({"anyOf": [{"items": {"$ref": "#"}}, {"contains": {"$ref": "#"}}]}),
        ),
        (
            "names of names",
            json!({"additionalProperties": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}),
        ),
        ("a huge enum", json!({"enum": (0..20_000).collect::<Vec<_>>()})),
        ("unevaluated again and again", (0..20).fold(json!({"pattern": "a"}), again)),
    ]
}

/// Sends a body and looks at what it costs.
fn check(server: &Server, name: &str, path: &str, body: String) {
    let before = ticks(server);
    let call = server.call("POST", path).header("content-type", "application/json");
    let (reply, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| server.get("/v1/health").status);
        (call.body(body).send(), beside.join().expect("no panic"))
    });
    let spent = ticks(server) - before;
    let is_clear =
        (400..500).contains(&reply.status) && !reply.text.is_empty() && reply.text.len() < 16 << 10;
    assert!(is_clear, "{name} to {path}: {} {}", reply.status, reply.text);
    assert_eq!(beside, 200, "{name} to {path}");
    assert!(spent <= TICKS_MAX, "{name} to {path} took {spent} ticks");
}

#[test]
fn a_body_that_explodes_is_refused_for_what_it_is_and_costs_little() {
    let model = Model::start(|_| panic!("nothing is asked"));
    let server = model.behind(Setup::temporary()).start();
    let run = server.create_run();
    let before = resident(&server);
    for (name, value) in values() {
        check(&server, name, "/v1/query", value.clone());
        check(&server, name, &format!("/v1/runs/{run}/analyze"), format!("{{\"frames\":{value}}}"));
        check(&server, name, "/v1/infer", format!("{{\"model\":\"m\",\"output_schema\":{value}}}"));
    }
    for (name, schema) in schemas() {
        let asked = json!({"model": "qwen3-vl-8b", "prompt": "p", "output_schema": schema});
        check(&server, name, "/v1/infer", asked.to_string());
        let batch = json!({"requests": vec![asked; 8]});
        check(&server, name, "/v1/infer/batch", batch.to_string());
    }
    let kept = resident(&server) - before;
    assert!(kept < KEPT_BYTES_MAX, "{kept} bytes are kept");
}
