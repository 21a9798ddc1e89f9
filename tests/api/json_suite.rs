//! The public JSON test suite as bodies of every POST route: the right class, and never a 5xx.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    routes::book,
    support::{Server, Setup, setting, skip},
    uploads::{TYPE, file_form},
};

/// The suite, where it is there; see [`skip`].
fn suite(test: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = setting("SIGHTLINE_MEDIA_DIR")
        .map_or(root.join("../shared/media"), PathBuf::from)
        .join("../json-test-suite");
    let dir = setting("SIGHTLINE_JSON_SUITE_DIR").map_or(beside, PathBuf::from);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries.flatten(),
        Err(error) => {
            skip(test, format!("no JSON suite: {error}: {}", dir.display()));
            return None;
        }
    };
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("readable"))
        })
        .collect();
    files.sort();
    Some(files)
}

/// What a route makes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// JSON, and nothing else.
    Json,
    /// JSON, which it cannot act on here: it needs a database.
    JsonForADatabase,
    /// Something else, or no body at all.
    Other,
}

/// Every route that takes a POST.
const ROUTES: &[(&str, Reads)] = &[
    ("/v1/infer", Reads::Json),
    ("/v1/infer/batch", Reads::Json),
    ("/v1/query", Reads::Json),
    ("/v1/runs", Reads::Json),
    ("/v1/runs/{id}/analyze", Reads::Json),
    ("/v1/runs/{id}/feedback", Reads::JsonForADatabase),
    ("/v1/runs/{id}/ingest", Reads::Json),
    ("/v1/runs/{id}/keepalive", Reads::Other),
    ("/v1/runs/{id}/reason", Reads::Json),
    ("/v1/runs/{id}/stop", Reads::Other),
    ("/v1/runs/{id}/webhooks", Reads::Json),
    ("/v1/runs/{id}/webhooks/{webhook_id}/redeliver", Reads::Other),
    ("/v1/search", Reads::Json),
    ("/v1/stream/whip", Reads::Other),
    ("/v1/upload", Reads::Other),
];

/// The POST routes of the server's own document, and whether their bodies are JSON.
fn documented(server: &Server) -> Vec<(String, bool)> {
    let document = server.get("/v1/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    let posts = paths.iter().filter(|(_, item)| item["post"].is_object());
    let mut routes: Vec<(String, bool)> = posts
        .map(|(path, item)| {
            let content = &item["post"]["requestBody"]["content"];
            (path.clone(), content["application/json"].is_object())
        })
        .collect();
    routes.sort();
    routes
}

#[test]
fn no_body_of_the_suite_is_taken_for_what_it_is_not() {
    let Some(files) = suite("no_body_of_the_suite_is_taken_for_what_it_is_not") else { return };
    assert!(files.len() > 300, "the suite is whole: {}", files.len());
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).root(dir.path()).start();
    let mut wrong = Vec::new();
    let named = ROUTES.iter().map(|(path, reads)| ((*path).to_owned(), *reads != Reads::Other));
    assert_eq!(named.collect::<Vec<_>>(), documented(&server), "every route is tried");
    for (path, reads) in ROUTES {
        let run = server.create_run();
        let path = book::path(path, &run);
        for (name, body) in &files {
            let call = server.call("POST", &path).header("content-type", "application/json");
            let Ok(reply) = call.body(body.clone()).try_send() else {
                wrong.push(format!("POST {path} {name}: no answer"));
                continue;
            };
            let fits = match name.as_bytes()[0] {
                _ if reply.status >= 500 => {
                    *reads == Reads::JsonForADatabase && is_missing_database(&reply.text)
                }
                _ if *reads == Reads::Other => true,
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
    let Some(files) = suite("no_body_of_the_suite_is_taken_for_media_or_an_offer") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
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
    assert_eq!(server.get("/v1/files").json()["files"], serde_json::json!([]), "nothing is kept");
    assert_eq!(server.get("/v1/runs").json(), serde_json::json!([]));
}

/// The one 500 that the contract asks for: feedback without a database.
fn is_missing_database(text: &str) -> bool {
    text.contains("the database client is not configured")
}
