//! Uploads over HTTP: what is kept, what is refused and why, and that refusals leave nothing.

use std::{
    io::{Cursor, Read, Write, repeat},
    net::TcpStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use reqwest::blocking::Body;
use serde_json::{Value, json};

use super::remote;
use crate::support::{
    ALICE, BOB, Call, Reply, Server, Setup, assert_has, clip_bytes, files, host::Certificate,
    shared, wait_until,
};

pub const BOUNDARY: &str = "x-boundary";
pub const TYPE: &str = "multipart/form-data; boundary=x-boundary";

/// One part of a form; `disposition` follows `form-data; `.
pub fn part(disposition: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; {disposition}\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

pub fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [&parts.concat(), format!("--{BOUNDARY}--\r\n").as_bytes()].concat()
}

pub fn file_form(name: &str, content: &[u8]) -> Vec<u8> {
    form(&[part(&format!("name=\"file\"; filename=\"{name}\""), content)])
}

fn send(server: &Server, body: Vec<u8>) -> Reply {
    server.call("POST", "/v1/upload").header("content-type", TYPE).body(body).send()
}

/// The request that uploads a file.
pub fn uploading<'a>(server: &'a Server, name: &str, content: &[u8]) -> Call<'a> {
    let call = server.call("POST", "/v1/upload").header("content-type", TYPE);
    call.body(file_form(name, content))
}

/// Uploads `content` as Alice; the answer is a success.
pub fn upload(server: &Server, name: &str, content: &[u8]) -> Value {
    uploading(server, name, content).send().assert_ok().json()
}

/// Every file beneath the server's upload directory.
pub fn stored(dir: &Path) -> Vec<PathBuf> {
    files(&dir.join("data/uploads"))
}

#[test]
fn an_upload_is_kept_served_ingested_and_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Setup::new(dir.path()).start();
    let bytes = clip_bytes("motion.mp4");
    let reply = uploading(&server, "Blume \u{1f33c}.MP4", &bytes).send().assert_ok();
    let answer = reply.json();
    let fields: Vec<&String> = answer.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["file_path", "file_name", "bytes", "sha256", "media_type"]);
    assert_has(&answer, &json!({"bytes": bytes.len(), "media_type": "video/mp4"}));
    let (name, path) = (answer["file_name"].as_str().expect("one"), &answer["file_path"]);
    let path = path.as_str().expect("a path");
    assert!(!path.contains("alice") && path.ends_with(name), "{path}");
    assert_eq!(std::fs::read(path).expect("there"), bytes);
    assert_eq!(reply.header("location"), format!("/v1/files/{name}"));

    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server = Setup::new(dir.path()).start();
        }
        let served = server.get(&format!("/v1/files/{name}"));
        assert_eq!((served.status, served.bytes == bytes), (200, true));
        let etag = format!("\"{}\"", answer["sha256"].as_str().expect("a hash"));
        assert_eq!(served.header("etag"), etag);
        let disposition =
            "inline; filename=\"Blume _.MP4\"; filename*=UTF-8''Blume%20%F0%9F%8C%BC.MP4";
        assert_eq!(served.header("content-disposition"), disposition);
    }
    for source in [path.to_owned(), format!("file://{path}"), name.to_owned()] {
        let ingest = format!("/v1/runs/{}/ingest", server.create_run());
        let body = json!({ "source_uri": source, "max_frames": 5 });
        let reply = server.post(&ingest, &body);
        assert_eq!((reply.status, &reply.json()["decoded_frames"]), (200, &json!(5)), "{source}");
    }
    check_that_bob_sees_nothing(&server, path, name);
    let reply = server.call("DELETE", &format!("/v1/files/{name}")).send();
    assert_eq!((reply.status, &reply.json()["file_name"]), (200, &json!(name)));
    assert_eq!(stored(dir.path()), Vec::<PathBuf>::new());
    let ingest = format!("/v1/runs/{}/ingest", server.create_run());
    let gone = server.post(&ingest, &json!({ "source_uri": path }));
    assert_eq!((gone.status, gone.source_message().as_str()), (422, "not found"));
    for method in ["GET", "DELETE"] {
        let gone = server.call(method, &format!("/v1/files/{name}")).send();
        assert_eq!((gone.status, gone.text.as_str()), (404, "file not found"), "{method}");
    }
}

fn check_that_bob_sees_nothing(server: &Server, path: &str, name: &str) {
    let run = server.call("POST", "/v1/runs").key(Some(BOB)).json(&json!({})).send().json();
    let ingest = format!("/v1/runs/{}/ingest", run["run_id"].as_str().expect("an id"));
    let missing = path.replace(name, "00000000000000000000000000000000.mp4");
    for source in [path, &missing, name] {
        let body = json!({ "source_uri": source });
        let reply = server.call("POST", &ingest).key(Some(BOB)).json(&body).send();
        assert_eq!((reply.status, reply.source_message().as_str()), (422, "not found"), "{source}");
    }
    for method in ["GET", "HEAD", "DELETE"] {
        let reply = server.call(method, &format!("/v1/files/{name}")).key(Some(BOB)).send();
        assert_eq!(reply.status, 404, "{method}");
    }
    let listed = server.call("GET", "/v1/files").key(Some(BOB)).send();
    assert_eq!((listed.status, &listed.json()["files"]), (200, &json!([])));
}

/// Checks that a body that is no media file is refused and leaves nothing.
fn check_refused(server: &Server, dir: &Path) {
    let clip = clip_bytes("motion.mp4");
    let named = "name=\"file\"; filename=\"a.mp4\"";
    let hls = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n";
    let headers = [&b"--x-boundary\r\nx: "[..], &vec![b'a'; 3 << 20]].concat();
    let rows: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("text", form(&[part(named, b"hello, I am text")]), 422, "unsupported container"),
        ("playlist", form(&[part(named, hls)]), 422, "playlists and references"),
        ("cut head", form(&[part(named, &clip[..40])]), 422, ""),
        ("wave sound", form(&[part(named, &silence())]), 422, "unsupported container"),
        ("empty file", form(&[part(named, b"")]), 422, "is empty"),
        ("no such field", form(&[part("name=\"video\"", &clip[..99])]), 422, "is required"),
        ("no part", form(&[]), 422, "is required"),
        ("two files", form(&[part(named, &clip), part(named, &clip)]), 422, "appears twice"),
        ("cut off", file_form("a.mp4", &clip)[..9000].to_vec(), 400, ""),
        ("no form", b"nothing like a form".to_vec(), 400, ""),
        ("no body", Vec::new(), 400, ""),
        ("huge headers", headers, 400, "more than"),
        ("huge preamble", vec![b'a'; 3 << 20], 400, "more than"),
        ("huge other field", form(&[part("name=\"x\"", &vec![0; 3 << 20])]), 400, "more than"),
    ];
    for (name, body, status, expected) in rows {
        let reply = send(server, body);
        assert_eq!(reply.status, status, "{name}: {}", reply.text);
        assert!(reply.text.contains(expected), "{name}: {}", reply.text);
        let fields: &[&str] = if status == 422 { &["file"] } else { &[] };
        assert_eq!(reply.fields(), fields, "{name}: {}", reply.text);
        assert_eq!(stored(dir), Vec::<PathBuf>::new(), "{name}");
    }
    for (kind, status) in [("application/json", 415), ("multipart/form-data", 400), ("", 415)] {
        let mut call = server.call("POST", "/v1/upload").body(file_form("a.mp4", &clip));
        if !kind.is_empty() {
            call = call.header("content-type", kind);
        }
        let reply = call.send();
        assert_eq!((reply.status, reply.code().as_str()), (status, ""), "{kind}: {}", reply.text);
    }
    let packed = uploading(server, "a.mp4", &clip).header("content-encoding", "gzip").send();
    assert_eq!((packed.status, packed.code().as_str()), (415, ""), "{}", packed.text);
    let fields_around = [part("name=\"note\"", b"hi"), part(named, &clip), part("name=\"z\"", b"")];
    let reply = send(server, form(&fields_around));
    assert_eq!(reply.status, 200, "other fields are passed over: {}", reply.text);
    assert_eq!(stored(dir).len(), 1);
    server.call("DELETE", reply.header("location")).send().assert_ok();
}

/// A WAVE file: a container that is known, and no video.
fn silence() -> Vec<u8> {
    let mut bytes = b"RIFF\x24\x08\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x44\xac\0\0".to_vec();
    bytes.extend_from_slice(b"\x88\x58\x01\0\x02\0\x10\0data\0\x08\0\0");
    bytes.resize(bytes.len() + 2048, 0);
    bytes
}

#[test]
fn a_file_may_be_as_large_as_the_limit_and_no_larger() {
    let dir = tempfile::tempdir().expect("a directory");
    let clip = clip_bytes("motion.mp4");
    let limit = clip.len();
    let server = Setup::new(dir.path()).var("SERVICE_MAX_UPLOAD_BYTES", &limit.to_string()).start();
    assert_eq!(uploading(&server, "a.mp4", &clip).send().status, 200);
    let larger = |by: usize| file_form("a.mp4", &[&clip[..], &vec![0; by]].concat());
    // Chunked bodies do not tell their length.
    let chunked = |body: Vec<u8>| Body::new(Cursor::new(body));
    for by in [1, 5 << 20] {
        for told in [true, false] {
            let call = server.call("POST", "/v1/upload").header("content-type", TYPE);
            let body = if told { larger(by).into() } else { chunked(larger(by)) };
            let reply = call.body(body).send();
            assert_eq!(reply.status, 413, "{by} {told}: {}", reply.text);
            assert!(reply.text.contains(&format!("larger than {limit} bytes")), "{}", reply.text);
            assert_eq!(reply.code(), "", "plain text");
        }
    }
    let call = server.call("POST", "/v1/upload").key(Some("wrong")).header("content-type", TYPE);
    assert_eq!(call.body(larger(5 << 20)).send().status, 401, "told, not reset");
    send_without_end(&server);
    wait_for_files(dir.path(), 1);
    let limits = server.get("/v1/limits").json();
    assert_eq!(limits["limits"]["upload"]["max"], limit, "{limits}");
}

/// An upload that does not end is cut.
fn send_without_end(server: &Server) {
    let mut stream = TcpStream::connect(server.addr()).expect("connected");
    let head = format!(
        "POST /v1/upload HTTP/1.1\r\nhost: a\r\nx-api-key: {ALICE}\r\ncontent-type: {TYPE}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let chunk =
        |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    stream.write_all(&chunk(&part("name=\"file\"", b"x"))[..]).expect("sent");
    let started = Instant::now();
    // Without a pause until the server has had enough.
    while stream.write_all(&chunk(&[7; 64 << 10])).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(20), "the server takes it all");
    }
    let mut reply = String::new();
    // The connection may be reset before everything is read.
    stream.read_to_string(&mut reply).ok();
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 413"), "{reply}");
}

/// Opens an upload, with an idempotency key where one is given, and sends `sent` of what its head announces.
pub fn half_an_upload(server: &Server, key: Option<&str>, sent: &[u8]) -> TcpStream {
    let call = server.call("POST", "/v1/upload").header("content-type", TYPE);
    let call = key.into_iter().fold(call, |call, key| call.header("idempotency-key", key));
    let call = call.header("content-length", "100000000");
    call.body(part("name=\"file\"; filename=\"a.mp4\"", sent)).begin()
}

/// Waits until so many are stored: a server notices late that a client has gone.
pub fn wait_for_files(dir: &Path, count: usize) {
    wait_until("so many files", || stored(dir).len() == count);
}

#[test]
fn what_is_refused_a_client_that_goes_away_and_a_server_that_dies_leave_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(dir.path());
    let mut server = setup.start();
    check_refused(&server, dir.path());
    for sent in [0, 100, 600 << 10] {
        let stream = half_an_upload(&server, None, &vec![7; sent]);
        wait_for_files(dir.path(), 1);
        drop(stream);
        wait_for_files(dir.path(), 0);
    }
    check_bound(&server, dir.path());
    wait_for_files(dir.path(), 0);
    let _stream = half_an_upload(&server, None, &[7; 1 << 20]);
    wait_for_files(dir.path(), 1);
    server.kill();
    assert_eq!(stored(dir.path()).len(), 1);
    let _again = setup.start();
    assert_eq!(stored(dir.path()), Vec::<PathBuf>::new());
}

/// Uploads at once are bounded for each caller.
fn check_bound(server: &Server, dir: &Path) {
    let mut streams: Vec<_> = (0..4).map(|_| half_an_upload(server, None, b"x")).collect();
    wait_for_files(dir, 4);
    let reply = uploading(server, "a.mp4", b"x").send();
    assert_eq!((reply.status, reply.header("retry-after")), (429, "1"), "{}", reply.text);
    assert!(reply.text.contains("limit of 4 uploads of yours"), "{}", reply.text);
    let bobs = uploading(server, "a.mp4", b"x").key(Some(BOB)).send();
    assert_eq!(bobs.status, 422, "Bob has places of his own");
    streams.pop();
    wait_for_files(dir, 3);
    assert_eq!(uploading(server, "a.mp4", b"x").send().status, 422, "a place came back");
}

#[test]
fn an_upload_waits_for_no_job() {
    let certificate = Certificate::new();
    let host = remote::silent_host(&certificate);
    let server = remote::setup(&certificate).start();
    let places = server.get("/v1/limits").json()["limits"]["file_jobs"]["max"].as_u64();
    let runs: Vec<_> = (0..places.expect("a number")).map(|_| server.create_run()).collect();
    let clip = clip_bytes("motion.mp4");
    std::thread::scope(|scope| {
        for run in &runs {
            scope.spawn(|| remote::ingest(&server, run, &host.url("/never.mp4")));
        }
        wait_until("every slot is taken", || host.asked().len() >= runs.len());
        let reply = uploading(&server, "a.mp4", &clip).send();
        for run in &runs {
            assert_eq!(server.call("DELETE", &format!("/v1/runs/{run}")).send().status, 200);
        }
        assert_eq!(reply.status, 200, "{}", reply.text);
    });
}

#[test]
fn lists_of_uploads_go_page_by_page_while_more_come() {
    let server = shared();
    let clip = clip_bytes("motion.mp4");
    let add = || upload(&server, "a.mp4", &clip)["file_name"].as_str().expect("one").to_owned();
    let mut expected: Vec<String> = (0..5).map(|_| add()).collect();
    expected.reverse();
    let mut found = Vec::new();
    for page in server.pages("/v1/files?limit=2", || drop(add())) {
        let page = page.json()["files"].as_array().expect("an array").clone();
        assert!(page.iter().all(|file| file["original_name"] == "a.mp4"), "{page:?}");
        found.extend(page.iter().map(|file| file["file_name"].as_str().expect("one").to_owned()));
    }
    assert_eq!(found, expected, "each once, and nothing that came later");
    assert_eq!(server.get("/v1/files?cursor=x").status, 422);
}

#[test]
fn a_file_is_served_as_what_was_found_in_it_and_not_as_it_is_called() {
    let server = shared();
    let clip = clip_bytes("signing.mkv");
    for name in ["a.mkv", "a.mp4", "a.html", "a"] {
        let answer = upload(&server, name, &clip);
        assert_eq!(answer["media_type"], "video/matroska", "{name}");
        let path = format!("/v1/files/{}", answer["file_name"].as_str().expect("a name"));
        let served = server.call("HEAD", &path).send();
        assert_eq!(served.header("content-type"), "video/matroska", "{name}");
        let disposition = format!("inline; filename=\"{name}\"");
        assert_eq!(served.header("content-disposition"), disposition);
    }
}

/// A clip, and nothing behind it until the form is `size` bytes long: an MP4 may have as much free
/// space as it likes (ISO 14496-12 8.1.2). Gives it bit by bit.
fn long_form(clip: &[u8], size: u64) -> impl Read + Send + use<> {
    let form = file_form("a.mp4", clip);
    let (start, end) = form.split_at(form.len() - format!("\r\n--{BOUNDARY}--\r\n").len());
    let free = size - form.len() as u64;
    let start = [start, &[0, 0, 0, 1], b"free", &free.to_be_bytes()].concat();
    let space = repeat(0).take(free - 16);
    Cursor::new(start).chain(space).chain(Cursor::new(end.to_vec()))
}

#[test]
fn a_long_upload_takes_no_memory_to_speak_of() {
    let size: u64 = clips::sized(256 << 20, 1 << 30);
    let setup = Setup::temporary().var("SERVICE_MAX_UPLOAD_BYTES", &(size + 1).to_string());
    let server = setup.start();
    let clip = clip_bytes("motion.mp4");
    upload(&server, "first.mp4", &clip);
    // The peak from here on (proc(5), clear_refs).
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("reset");
    let before = server.memory_kb("VmRSS");
    let form = Body::sized(long_form(&clip, size), size);
    let reply = server
        .call("POST", "/v1/upload")
        .header("content-type", TYPE)
        .body(form)
        .send()
        .assert_ok();
    let grown = server.memory_kb("VmHWM").saturating_sub(before);
    println!("{size} bytes uploaded: {grown} kB more at the most");
    assert!(grown < 32 << 10, "{grown} kB more");
    let kept = reply.json()["bytes"].as_u64().expect("a size");
    assert!(size - kept < 1000, "{kept} bytes are kept");
}
