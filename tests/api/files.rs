//! Files over HTTP: ranges, conditions, names; only the caller's uploads, nothing of a root.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::json;

use crate::{
    api::{
        edges::{head, raw},
        uploads::{stored, upload},
    },
    support::{ALICE, BOB, Server, Setup, clip_bytes},
};

/// An upload of Alice's: its name and its path.
fn uploaded(server: &Server, bytes: &[u8]) -> (String, String) {
    let answer = upload(server, "a b.mp4", bytes);
    let name = answer["file_name"].as_str().expect("a name").to_owned();
    let path = format!("/v1/files/{name}");
    (name, path)
}

#[test]
fn names_lead_to_uploads_and_nowhere_else() {
    let setup = Setup::temporary().own_root();
    let root = setup.dir().join("root");
    std::fs::create_dir(root.join("sub")).expect("made");
    for name in ["in.mp4", "sub/in.mp4", ".hidden", "page.html"] {
        std::fs::write(root.join(name), b"secret").expect("written");
    }
    let server = setup.start();
    let bytes = clip_bytes("motion.mp4");
    let (_, path) = uploaded(&server, &bytes);
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
        // No client library tidies up its path.
        let request = head(&format!("GET /v1/files/{name}"), &[&format!("x-api-key: {ALICE}")]);
        let reply = raw(&server, request.as_bytes());
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{name}: {reply}");
        assert!(reply.contains("text/plain") && !reply.contains("secret"), "{name}: {reply}");
    }
    let own = server.get(&path);
    assert_eq!((own.status, own.bytes == bytes), (200, true));
    assert_eq!(own.header("content-type"), "video/mp4");
    assert_eq!(own.header("content-disposition"), "inline; filename=\"a b.mp4\"");
    assert_eq!(own.header("x-content-type-options"), "nosniff");
    assert_eq!(own.header("accept-ranges"), "bytes");
    let (end, none) = (format!("bytes={}-", bytes.len()), format!("bytes */{}", bytes.len()));
    let past = server.call("GET", &path).header("range", &end).send();
    assert_eq!((past.status, past.header("content-range")), (416, &*none));
    // `source.rs` has more ranges and conditions of such files, unit tests have all.
    let modified = own.header("last-modified");
    let known = server.call("GET", &path).header("if-modified-since", modified).send();
    assert_eq!((known.status, known.header("etag")), (304, own.header("etag")));
    assert_eq!(server.call("GET", &path).key(Some(BOB)).send().status, 404, "Alice's alone");
    assert_eq!(server.call("GET", &path).key(None).send().status, 401);
    assert_eq!(server.call("DELETE", "/v1/files/in.mp4").send().status, 404, "not an upload");
}

#[test]
fn what_is_stored_is_for_nobody_else_and_an_error_at_once_where_another_file_replaced_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).clips().start();
    let (name, upload) = uploaded(&server, &clip_bytes("motion.mp4"));
    let ingest = |source: &str| {
        let run = server.create_run();
        let body = json!({"source_uri": source, "max_frames": 5});
        (server.post_run(&run, "ingest", &body).status, run)
    };
    let (status, run) = ingest("motion.mp4");
    let still = server.still_paths(&run).remove(0);
    assert_eq!((status, server.get(&still).status), (200, 200));
    assert_own(&dir.path().join("data"));
    let file = stored(dir.path()).pop().expect("the upload");
    let hash = still.rsplit('/').next().expect("a hash");
    let blob = dir.path().join("data/blobs").join(&hash[..2]).join(hash);
    for replace in replacements() {
        for file in [&file, &blob] {
            std::fs::remove_file(file).expect("removed");
            replace(file);
        }
        assert_eq!((server.get(&upload).status, ingest(&name).0), (500, 500));
        server.get(&still).assert_refused(500, "internal_error");
    }
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(server.get(&upload).status, 404);
    assert_eq!(server.get("/v1/health").status, 200);
    // The same still again: what took its place is written over.
    assert_eq!(ingest("motion.mp4").0, 200);
    assert_eq!(server.get(&still).status, 200);
}

/// Fails where anybody else may read what is at `path` or below it.
fn assert_own(path: &Path) {
    // Some go meanwhile.
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
    assert_eq!(mode, expected, "{}: {mode:o}", path.display());
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        assert_own(&entry.path());
    }
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
