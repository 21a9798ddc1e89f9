//! Files over HTTP: ranges, conditions, names, and what lies beneath an operator's root.

use std::os::unix::fs::symlink;

use crate::support::{BOB, Server, Setup};

/// A root with a file of 1000 bytes, and a server that serves it.
fn served() -> (tempfile::TempDir, Vec<u8>, Server) {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("sub")).expect("made");
    let bytes: Vec<u8> = (0..1000u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(root.join("sub/a b.mp4"), &bytes).expect("written");
    std::fs::write(root.join("empty.webm"), b"").expect("written");
    std::fs::write(root.join("page.html"), b"<script>").expect("written");
    std::fs::write(dir.path().join("secret.mp4"), b"secret").expect("written");
    symlink("../secret.mp4", root.join("out.mp4")).expect("linked");
    symlink("sub/a b.mp4", root.join("in.mp4")).expect("linked");
    let server = Setup::new(dir.path()).root(&root).start();
    (dir, bytes, server)
}

#[test]
fn names_lead_to_files_beneath_a_root_and_nowhere_else() {
    let (_dir, bytes, server) = served();
    let rows = [
        ("sub/a%20b.mp4", 200),
        ("in.mp4", 200),
        ("empty.webm", 200),
        ("page.html", 200),
        ("sub", 404),
        ("none.mp4", 404),
        ("out.mp4", 404),
        ("sub/", 400),
        ("/etc/passwd", 400),
        ("%2fetc%2fpasswd", 400),
        ("../secret.mp4", 400),
        ("..%2fsecret.mp4", 400),
        ("%2e%2e/secret.mp4", 400),
        ("sub/..%2f..%2fsecret.mp4", 400),
        ("sub%2f.%2fa%20b.mp4", 400),
        ("a%00b", 400),
        ("a%0ab", 400),
        ("%zz", 400),
        ("%ff", 400),
    ];
    for (name, status) in rows {
        let reply = raw_get(&server, &format!("/v1/files/{name}"));
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {reply}");
        if status != 200 {
            assert!(reply.contains("text/plain"), "{name}: {reply}");
        }
        assert!(!reply.contains("secret"), "{name}: {reply}");
    }
    let reply = server.call("GET", "/v1/files/sub/a%20b.mp4").key(Some(BOB)).send();
    assert_eq!((reply.status, reply.bytes == bytes), (200, true), "a root is for every caller");
    assert_eq!(server.call("GET", "/v1/files/in.mp4").key(None).send().status, 401);
    assert_eq!(server.call("DELETE", "/v1/files/in.mp4").send().status, 404, "not an upload");
    let kinds = [
        ("sub/a%20b.mp4", "video/mp4", "inline; filename=\"a b.mp4\""),
        ("empty.webm", "video/webm", "inline; filename=\"empty.webm\""),
        ("page.html", "application/octet-stream", "attachment; filename=\"page.html\""),
    ];
    for (name, kind, disposition) in kinds {
        let reply = server.get(&format!("/v1/files/{name}"));
        assert_eq!(reply.header("content-type"), kind, "{name}");
        assert_eq!(reply.header("content-disposition"), disposition, "{name}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{name}");
    }
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
    let (_dir, bytes, server) = served();
    let path = "/v1/files/sub/a%20b.mp4";
    let whole = server.get(path);
    assert_eq!((whole.status, whole.bytes == bytes), (200, true));
    assert_eq!(whole.header("accept-ranges"), "bytes");
    assert_eq!(whole.header("cache-control"), "private, no-cache");
    let (etag, modified) = (whole.header("etag"), whole.header("last-modified"));
    assert!(etag.starts_with('"') && modified.ends_with("GMT"), "{etag} {modified}");
    let weak = format!("W/{etag}");
    let early = "Sun, 09 Sep 2001 01:46:40 GMT";
    type Row<'a> = (&'a [(&'a str, &'a str)], u16, &'a str, std::ops::Range<usize>);
    let rows: [Row<'_>; 19] = [
        (&[("range", "bytes=0-0")], 206, "bytes 0-0/1000", 0..1),
        (&[("range", "bytes=10-19")], 206, "bytes 10-19/1000", 10..20),
        (&[("range", "bytes=990-")], 206, "bytes 990-999/1000", 990..1000),
        (&[("range", "bytes=-10")], 206, "bytes 990-999/1000", 990..1000),
        (&[("range", "bytes=0-5000")], 206, "bytes 0-999/1000", 0..1000),
        (&[("range", "bytes=1000-")], 416, "bytes */1000", 0..0),
        (&[("range", "bytes=-0")], 416, "bytes */1000", 0..0),
        (&[("range", "bytes=0-0,5-6")], 200, "", 0..1000),
        (&[("range", "bytes=9-1")], 200, "", 0..1000),
        (&[("range", "lines=0-1")], 200, "", 0..1000),
        (&[("range", "bytes=1-1"), ("if-range", etag)], 206, "bytes 1-1/1000", 1..2),
        (&[("range", "bytes=1-1"), ("if-range", "\"x\"")], 200, "", 0..1000),
        (&[("range", "bytes=1-1"), ("if-range", &weak)], 200, "", 0..1000),
        (&[("range", "bytes=1-1"), ("if-range", early)], 200, "", 0..1000),
        (&[("if-none-match", etag)], 304, "", 0..0),
        (&[("range", "bytes=1-1"), ("if-none-match", etag)], 304, "", 0..0),
        (&[("if-modified-since", modified)], 304, "", 0..0),
        (&[("if-match", "\"x\"")], 412, "", 0..0),
        (&[("if-unmodified-since", early)], 412, "", 0..0),
    ];
    for (headers, status, range, expected) in rows {
        let mut call = server.call("GET", path);
        for (name, value) in headers {
            call = call.header(name, value);
        }
        let reply = call.send();
        assert_eq!((reply.status, reply.header("content-range")), (status, range), "{headers:?}");
        if matches!(status, 200 | 206) {
            assert!(reply.bytes == bytes[expected], "{headers:?}: {} bytes", reply.bytes.len());
        }
        assert_eq!(reply.header("etag"), if status == 412 { "" } else { etag }, "{headers:?}");
    }
    let head = server.call("HEAD", path).header("range", "bytes=0-0").send();
    assert_eq!((head.status, head.header("content-length"), head.bytes.len()), (200, "1000", 0));
    let empty = server.call("GET", "/v1/files/empty.webm").header("range", "bytes=0-").send();
    assert_eq!((empty.status, empty.header("content-range")), (416, "bytes */0"));
}

#[test]
fn another_version_has_another_tag() {
    let (dir, _, server) = served();
    let path = "/v1/files/page.html";
    let first = server.get(path).header("etag").to_owned();
    std::fs::write(dir.path().join("root/page.html"), b"changed!").expect("written");
    let reply = server.call("GET", path).header("if-none-match", &first).send();
    assert_eq!((reply.status, reply.text.as_str()), (200, "changed!"), "same size, other bytes");
}
