//! Sources behind URLs: what comes from real hosts over TLS, and what each bad one is told.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};

use super::shutdown::ended;
use crate::support::{
    Reply, Server, Setup, clip_bytes, clips,
    host::{Answer, Certificate, Host},
    shared,
};

/// A server that may reach this machine.
pub fn local() -> Setup {
    let setup = Setup::temporary().behind_dead_proxies();
    setup.var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8, ::1/128")
}

/// The same, which trusts its certificate.
pub fn setup(certificate: &Certificate) -> Setup {
    local().var("SERVICE_EGRESS_CA_PATH", &certificate.path())
}

/// A host that takes requests and answers none.
pub fn silent_host(certificate: &Certificate) -> Host {
    Host::start(certificate, |_, _| {
        loop {
            std::thread::park();
        }
    })
}

/// Ingests `source`, of which frames are kept whatever time it begins at.
pub fn ingest(server: &Server, run: &str, source: &str) -> Reply {
    let gate = json!({ "keepalive_frames": 30, "activity_on": 1 });
    let body = json!({ "source_uri": source, "gate": gate });
    server.post_run(run, "ingest", &body)
}

/// Ingests each of these sources, which is refused in these words and leaves no more than that it was accepted.
pub fn refused(server: &Server, run: &str, rows: impl IntoIterator<Item = (String, &'static str)>) {
    for (source, expected) in rows {
        let reply = ingest(server, run, &source);
        assert_eq!((reply.status, reply.code().as_str()), (422, "validation_error"), "{source}");
        let message = reply.source_message();
        assert!(message.contains(expected), "{source}: {message}");
        assert!(!reply.text.contains("secret"), "{source}: {}", reply.text);
    }
    // What is refused once it is read says that it was accepted.
    assert!(server.kinds(run)[1..].iter().all(|kind| kind == "ingest_started"));
}

/// Results of an ingest of `source`: its signals and the hashes of its stills.
pub fn made(server: &Server, source: &str) -> (Value, Vec<Value>) {
    let run = server.create_run();
    let reply = ingest(server, &run, source);
    assert_eq!(reply.status, 200, "{source}: {}", reply.text);
    let of = |kind: &str, field: &str| -> Vec<Value> {
        server.payloads(&run, kind).into_iter().map(|payload| payload[field].clone()).collect()
    };
    let signals = of("frames_decoded", "signals").remove(0);
    assert!(signals.as_array().is_some_and(|signals| signals.len() > 10), "{source}");
    (signals, of("keyframe_stored", "image_sha256"))
}

#[test]
fn credentials_reach_their_host_and_nobody_else() {
    let certificate = Certificate::new();
    let bytes = Arc::new(clip_bytes("motion.mp4"));
    let media = Arc::clone(&bytes);
    let other = Host::start(&certificate, move |asked, out| out.ranged(asked, &media, &[]));
    let elsewhere = other.url("/clip.mp4");
    let host = Host::start(&certificate, move |asked, out| {
        // alice:p@ss
        match (asked.header("authorization"), asked.path.as_str()) {
            ("Basic YWxpY2U6cEBzcw==", "/elsewhere") => out.redirect(&elsewhere),
            ("Basic YWxpY2U6cEBzcw==", _) => out.ranged(asked, &bytes, &[]),
            _ => out.status("401 Unauthorized"),
        }
    });
    let server = setup(&certificate).start();
    let named = |path: &str| host.url(path).replace("://", "://alice:p%40ss@");
    let run = server.create_run();
    let source = named("/clip.mp4?token=x");
    let reply = ingest(&server, &run, &source).assert_ok();
    let masked = source.replace("alice:p%40ss", "***").replace("token=x", "token=***");
    assert_eq!(reply.json()["source_uri"], masked);
    let record = server.record(&run);
    assert_eq!((&record["source"], &record["source_uri"]), (&json!("url"), &json!(masked)));
    let events = server.get(&format!("/v1/runs/{run}/events")).text;
    assert!(events.contains(&masked) && !events.contains("p%40ss") && !events.contains("alice:"));
    assert!(!events.contains("token=x"), "{events}");
    assert!(host.asked().iter().any(|asked| asked.path == "/clip.mp4?token=x"), "it is sent");

    assert_eq!(ingest(&server, &server.create_run(), &named("/elsewhere")).status, 200);
    assert!(!other.asked().is_empty());
    assert!(other.asked().iter().all(|asked| asked.header("authorization").is_empty()));
    let reply = ingest(&server, &server.create_run(), &host.url("/clip.mp4"));
    let message = reply.source_message();
    assert!(message.starts_with("auth: localhost answered 401"), "{message}");
}

/// A host that answers each path as badly as its name says.
fn bad_host(certificate: &Certificate, clip: Vec<u8>, away: Vec<(&'static str, String)>) -> Host {
    let changes = AtomicUsize::new(0);
    Host::start(certificate, move |asked, out| {
        let path = asked.path.as_str();
        if let Some((_, location)) = away.iter().find(|(name, _)| *name == path) {
            return out.redirect(location);
        }
        match path {
            "/clip.mp4" => out.ranged(asked, &clip, &[]),
            "/401" => out.status("401 Unauthorized"),
            "/403" => out.status("403 Forbidden"),
            "/500" => out.status("500 Internal Server Error"),
            "/empty" => out.status("416 Range Not Satisfiable"),
            "/gzip" => out.head("200 OK", &["content-length: 9", "content-encoding: gzip"]),
            "/loop" => out.redirect("/loop"),
            "/nowhere" => out.head("302 Found", &["content-length: 0"]),
            "/greeting" => out.write_all(b"220 mail.example ESMTP\r\n"),
            "/closed" => Err(io::ErrorKind::Other.into()),
            "/text" => out.whole(b"not a video, only words, and enough of them to look at twice\n"),
            "/playlist" => out.whole(b"#EXTM3U\n#EXTINF:1,\nclip.mp4\n#EXT-X-ENDLIST\n"),
            "/changing" => {
                let tag = format!("etag: \"{}\"", changes.fetch_add(1, Ordering::Relaxed));
                out.ranged(asked, &clip, &[&tag])
            }
            "/other-part" => out
                .head("206 Partial Content", &["content-length: 1", "content-range: bytes 7-7/8"]),
            _ => out.status("404 Not Found"),
        }
    })
}

#[test]
fn a_bad_source_is_told_what_is_wrong_with_it() {
    let certificate = Certificate::new();
    let made = |name: &str, line: &str| {
        let motion = clips().join("motion.mp4");
        std::fs::read(clips::rendered_from(name, line, &[&motion])).expect("readable")
    };
    // Its index is behind its media, as recorders write it: reading it needs a seek.
    let clip = made("at-the-end.mp4", "-i {0} -an -c copy");
    let plain = Host::start_plain(|_, out| out.status("200 OK"));
    // `forgery.rs` leads to addresses that are not public.
    let away = vec![
        ("/to-plain", plain.url("/a.mp4")),
        ("/to-file", "file:///etc/passwd".to_owned()),
        ("/to-rtsp", "rtsp://localhost/a".to_owned()),
    ];
    let audio = clip_bytes("audio.mp4");
    let sound = Host::start(&certificate, move |asked, out| out.ranged(asked, &audio, &[]));
    let old = made("old.mkv", "-i {0} -frames:v 5 -an -c:v mpeg2video");
    let old = Host::start(&certificate, move |asked, out| out.ranged(asked, &old, &[]));
    let host = bad_host(&certificate, clip, away);
    let unused = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let unused = unused.expect("a port").port();
    let rows = [
        ("https://no-such-name.invalid/a.mp4".to_owned(), "dns: no-such-name.invalid"),
        (format!("https://localhost:{unused}/a.mp4"), "tcp: cannot connect to localhost"),
        (format!("https://localhost:{}/a.mp4", plain.port()), "tls: "),
        (host.url("/401"), "auth: localhost answered 401"),
        (host.url("/403"), "auth: localhost answered 403"),
        (host.url("/404"), "http status: localhost answered 404"),
        (host.url("/500"), "http status: localhost answered 500"),
        (host.url("/empty"), "has no bytes"),
        (host.url("/gzip"), "compresses the answer"),
        (host.url("/other-part"), "another part than was asked for"),
        (host.url("/loop"), "redirect loop: more than 5 redirects"),
        (host.url("/nowhere"), "redirects to nowhere"),
        (host.url("/greeting"), "does not speak HTTP"),
        (host.url("/closed"), "closed the connection without an answer"),
        (host.url("/text"), "unsupported container"),
        (host.url("/playlist"), "HLS playlists need SERVICE_ALLOW_REMOTE_HLS=true"),
        (host.url("/changing"), "changed while it was read"),
        (host.url("/to-plain"), "http needs SERVICE_ALLOW_INSECURE_HTTP=true"),
        (host.url("/to-file"), "scheme not served: file"),
        (host.url("/to-rtsp"), "scheme not served: rtsp"),
        (sound.url("/a.mp4"), "no video stream"),
        (old.url("/a.mkv"), "unsupported video codec: mpeg2video"),
    ];
    let server = setup(&certificate).start();
    let run = server.create_run();
    refused(&server, &run, rows);
    assert!(plain.asked().is_empty(), "nothing was sent over plain HTTP");
    assert_eq!(ingest(&server, &run, &host.url("/clip.mp4")).status, 200, "the run is usable");
}

pub fn ffmpeg(dir: &Path, arguments: &[&str]) {
    let mut command = std::process::Command::new("ffmpeg");
    let output = command.current_dir(dir).args(["-v", "error", "-y"]).args(arguments).output();
    let output = output.expect("ffmpeg runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn only_public_addresses_are_reached_unless_the_operator_says_so() {
    let certificate = Certificate::new();
    let host = Host::start(&certificate, |_, out| out.status("404 Not Found"));
    let server = shared();
    let run = server.create_run();
    let port = host.port();
    // `forgery.rs` has every spelling of each address.
    for spelling in ["localhost", "127.0.0.1", "[::1]"] {
        for scheme in ["https", "rtsps"] {
            let reply = ingest(&server, &run, &format!("{scheme}://{spelling}:{port}/a.mp4"));
            let message = reply.source_message();
            let is_refused = message.starts_with("blocked address: ")
                && message.contains("SERVICE_EGRESS_ALLOWED_NETWORKS")
                // No such name, for a scheme whose hosts are not read as numbers.
                || scheme == "rtsps" && message.starts_with("dns: ");
            assert!(reply.status == 422 && is_refused, "{scheme} {spelling}: {message}");
        }
    }
    assert!(host.asked().is_empty());
}

#[test]
fn plain_http_and_a_host_that_nobody_vouches_for_are_read_only_where_that_is_enabled() {
    let certificate = Certificate::new();
    let bytes = Arc::new(clip_bytes("motion.mp4"));
    let media = Arc::clone(&bytes);
    let plain = Host::start_plain(move |asked, out| out.ranged(asked, &media, &[]));
    let to_plain = plain.url("/a.mp4");
    let host = Host::start(&certificate, move |asked, out| match asked.path.as_str() {
        "/moved" => out.redirect(&to_plain),
        _ => out.ranged(asked, &bytes, &[]),
    });
    let setup = Setup::temporary().var("SERVICE_EGRESS_ALLOWED_NETWORKS", "127.0.0.0/8");
    let mut server = setup.start();
    let reply = ingest(&server, &server.create_run(), &host.url("/a.mp4"));
    let told = reply.source_message();
    assert!(told.starts_with("tls: no secure connection to localhost"), "{told}");
    assert!(told.contains("SERVICE_EGRESS_CA_PATH"), "{told}");
    server.kill();
    let setup = setup.var("SERVICE_ALLOW_INSECURE_TLS", "true");
    let setup = setup.var("SERVICE_ALLOW_INSECURE_HTTP", "1");
    let server = setup.start();
    for url in [host.url("/a.mp4"), plain.url("/a.mp4"), host.url("/moved")] {
        let reply = ingest(&server, &server.create_run(), &url);
        assert_eq!(reply.status, 200, "{url}: {}", reply.text);
    }
    let (_, _, said) = ended(setup.command().arg("--check-config"));
    assert!(said.contains("SERVICE_ALLOW_INSECURE_TLS=true: remote sources"), "{said}");
}
