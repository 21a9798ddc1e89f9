//! Files over HTTP: ranges, conditions, names; only the caller's uploads, nothing of a root.

use std::{path::Path, process::Command};

use crate::{
    api::uploads::{stored, upload},
    support::{BOB, Server, Setup, clips},
};

/// An ingest root with a clip in it, and a server with an upload of Alice's.
fn served() -> (tempfile::TempDir, Vec<u8>, Server, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = std::fs::read(clips().join("motion.mp4")).expect("a clip");
    let server = Setup::new(dir.path()).own_root().start();
    std::fs::create_dir(dir.path().join("root/sub")).expect("made");
    for name in ["in.mp4", "sub/in.mp4", ".hidden", "page.html"] {
        std::fs::write(dir.path().join("root").join(name), b"secret").expect("written");
    }
    let answer = upload(&server, "a b.mp4", &bytes);
    let path = format!("/v1/files/{}", answer["file_name"].as_str().expect("a name"));
    (dir, bytes, server, path)
}

#[test]
fn names_lead_to_uploads_and_nowhere_else() {
    let (dir, bytes, server, path) = served();
    let rows = [
        ("in.mp4", 404),
        ("sub/in.mp4", 404),
        ("page.html", 404),
        (".hidden", 404),
        ("sub", 404),
        ("none.mp4", 404),
        ("sub/", 400),
        ("/etc/passwd", 400),
        ("%2fetc%2fpasswd", 400),
        ("../data/ledger", 400),
        ("..%2fdata%2fledger", 400),
        ("%2e%2e/data/ledger", 400),
        ("sub/..%2f..%2fdata%2fledger", 400),
        ("sub%2f.%2fin.mp4", 400),
        ("a%00b", 400),
        ("a%0ab", 400),
        ("%zz", 400),
        ("%ff", 400),
    ];
    for (name, status) in rows {
        let reply = raw_get(&server, &format!("/v1/files/{name}"));
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {reply}");
        assert!(reply.contains("text/plain") && !reply.contains("secret"), "{name}: {reply}");
    }
    let own = server.get(&path);
    assert_eq!((own.status, own.bytes == bytes), (200, true));
    assert_eq!(own.header("content-type"), "video/mp4");
    assert_eq!(own.header("content-disposition"), "inline; filename=\"a b.mp4\"");
    assert_eq!(own.header("x-content-type-options"), "nosniff");
    assert_eq!(server.call("GET", &path).key(Some(BOB)).send().status, 404, "Alice's alone");
    assert_eq!(server.call("GET", &path).key(None).send().status, 401);
    assert_eq!(server.call("DELETE", "/v1/files/in.mp4").send().status, 404, "not an upload");
    drop(dir);
}

#[test]
fn an_upload_that_another_file_replaced_is_an_error_at_once() {
    let (dir, _, server, path) = served();
    let name = path.rsplit('/').next().expect("a name");
    let file = stored(dir.path()).pop().expect("the upload");
    let ingest = |server: &Server| {
        let run = server.create_run();
        let body = serde_json::json!({ "source_uri": name });
        server.post_run(&run, "ingest", &body)
    };
    for replace in replacements() {
        std::fs::remove_file(&file).expect("removed");
        replace(&file);
        assert_eq!(server.get(&path).status, 500);
        assert_eq!(ingest(&server).status, 500);
    }
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(server.get(&path).status, 404);
    assert_eq!(server.get("/v1/health").status, 200);
}

#[test]
fn a_still_that_another_file_replaced_is_an_error_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).clips().start();
    let run = server.create_run();
    let body = serde_json::json!({"source_uri": "motion.mp4", "max_frames": 5});
    assert_eq!(server.post_run(&run, "ingest", &body).status, 200);
    let listed = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let hash = listed["keyframes"][0]["image_sha256"].as_str().expect("a hash");
    let path = format!("/v1/runs/{run}/keyframes/{hash}");
    assert_eq!(server.get(&path).status, 200);
    let blob = dir.path().join("data/blobs").join(&hash[..2]).join(hash);
    for replace in replacements() {
        std::fs::remove_file(&blob).expect("removed");
        replace(&blob);
        server.get(&path).assert_refused(500, "internal_error");
    }
    assert_eq!(server.get("/v1/health").status, 200);
    // The same still again: what took its place is written over.
    let again = server.create_run();
    assert_eq!(server.post_run(&again, "ingest", &body).status, 200);
    assert_eq!(server.get(&path).status, 200);
}

/// Replacements of a file: a FIFO, a link to a device, more bytes.
fn replacements() -> [fn(&Path); 3] {
    let fifo = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().expect("it runs").success());
    };
    let zero = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).expect("linked");
    let longer = |path: &Path| {
        let file = std::fs::File::create(path).expect("made");
        file.set_len(1 << 36).expect("sparse");
    };
    [fifo, zero, longer]
}

/// A request whose path no client library has tidied up.
fn raw_get(server: &Server, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.addr()).expect("connected");
    let key = crate::support::ALICE;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("an answer");
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn ranges_and_conditions_are_honoured() {
    let (_dir, bytes, server, path) = served();
    let size = bytes.len();
    let whole = server.get(&path);
    assert_eq!((whole.status, whole.bytes == bytes), (200, true));
    assert_eq!(whole.header("accept-ranges"), "bytes");
    assert_eq!(whole.header("cache-control"), "private, no-cache");
    let (etag, modified) = (whole.header("etag"), whole.header("last-modified"));
    assert!(etag.starts_with('"') && modified.ends_with("GMT"), "{etag} {modified}");
    let weak = format!("W/{etag}");
    let early = "Sun, 09 Sep 2001 01:46:40 GMT";
    type Row<'a> = (&'a [(&'a str, &'a str)], u16, String, std::ops::Range<usize>);
    let of = |range: &str| format!("bytes {range}/{size}");
    let end = format!("bytes={size}-");
    let tail = format!("bytes={}-", size - 10);
    let last = of(&format!("{}-{}", size - 10, size - 1));
    let all = of(&format!("0-{}", size - 1));
    let rows: [Row<'_>; 19] = [
        (&[("range", "bytes=0-0")], 206, of("0-0"), 0..1),
        (&[("range", "bytes=10-19")], 206, of("10-19"), 10..20),
        (&[("range", &*tail)], 206, last.clone(), size - 10..size),
        (&[("range", "bytes=-10")], 206, last, size - 10..size),
        (&[("range", "bytes=0-99999999")], 206, all, 0..size),
        (&[("range", &*end)], 416, of("*"), 0..0),
        (&[("range", "bytes=-0")], 416, of("*"), 0..0),
        (&[("range", "bytes=0-0,5-6")], 200, String::new(), 0..size),
        (&[("range", "bytes=9-1")], 200, String::new(), 0..size),
        (&[("range", "lines=0-1")], 200, String::new(), 0..size),
        (&[("range", "bytes=1-1"), ("if-range", etag)], 206, of("1-1"), 1..2),
        (&[("range", "bytes=1-1"), ("if-range", "\"x\"")], 200, String::new(), 0..size),
        (&[("range", "bytes=1-1"), ("if-range", &weak)], 200, String::new(), 0..size),
        (&[("range", "bytes=1-1"), ("if-range", early)], 200, String::new(), 0..size),
        (&[("if-none-match", etag)], 304, String::new(), 0..0),
        (&[("range", "bytes=1-1"), ("if-none-match", etag)], 304, String::new(), 0..0),
        (&[("if-modified-since", modified)], 304, String::new(), 0..0),
        (&[("if-match", "\"x\"")], 412, String::new(), 0..0),
        (&[("if-unmodified-since", early)], 412, String::new(), 0..0),
    ];
    for (headers, status, range, expected) in rows {
        let mut call = server.call("GET", &path);
        for (name, value) in headers {
            call = call.header(name, value);
        }
        let reply = call.send();
        assert_eq!((reply.status, reply.header("content-range")), (status, &*range), "{headers:?}");
        if matches!(status, 200 | 206) {
            assert!(reply.bytes == bytes[expected], "{headers:?}: {} bytes", reply.bytes.len());
        }
        assert_eq!(reply.header("etag"), if status == 412 { "" } else { etag }, "{headers:?}");
    }
    let head = server.call("HEAD", &path).header("range", "bytes=0-0").send();
    assert_eq!(
        (head.status, head.header("content-length"), head.bytes.len()),
        (200, &*size.to_string(), 0)
    );
}
