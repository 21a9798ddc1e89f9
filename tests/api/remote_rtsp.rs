//! Cameras: GStreamer's RTSP server behind the server's own connections, with TLS and without.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    api::{
        camera::ball,
        remote::{ingest, made, refused, setup},
    },
    support::{Running, host::Certificate, wait_until},
};

const SOUND: &str = "( audiotestsrc is-live=true ! alawenc ! rtppcmapay name=pay0 )";

/// A camera process; ends with its value.
pub struct Camera {
    _process: Running,
    pub port: u16,
}

impl Camera {
    /// Shows every `path=pipeline`; `auth` is none, basic or digest.
    pub fn start(auth: &str, media: &[String]) -> Camera {
        Camera::start_on(0, auth, media)
    }

    /// As [`Camera::start`], on the port of one that is gone.
    pub fn start_on(port: u16, auth: &str, media: &[String]) -> Camera {
        let script = "worker/tests/worker/rtsp-server.py";
        let child = Command::new("/usr/bin/python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
            .arg(auth)
            .arg(format!("port={port}"))
            .args(media)
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Running(child.expect("python3 is installed"));
        let mut said = String::new();
        let stdout = process.0.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("readable");
        let port = said.trim().parse().expect("a port: deploy/setup.sh test installs the camera");
        Camera { _process: process, port }
    }
}

#[test]
fn a_camera_gives_what_its_file_gives_with_and_without_tls() {
    let certificate = Certificate::new();
    let path = clips::rendered("clip.mp4", "-f lavfi -i testsrc2=s=320x240:r=25:d=3 -bf 2");
    let file = format!(
        "/clip=( filesrc location={} ! qtdemux ! h264parse ! rtph264pay config-interval=-1 \
         name=pay0 )",
        path.display()
    );
    let camera = Camera::start("digest", &[file]);
    let secure = certificate.before(camera.port);
    let server = setup(&certificate).var("SERVICE_ALLOW_UNENCRYPTED_RTSP", "true");
    let server = server.root(path.parent().expect("a folder")).start();
    let whole = made(&server, "clip.mp4");
    for (scheme, port) in [("rtsp", camera.port), ("rtsps", secure)] {
        let source = format!("{scheme}://camera:open%20sesame@localhost:{port}/clip");
        assert!(made(&server, &source) == whole, "{scheme} differs from the file");
    }
    let run = server.create_run();
    let source = format!("rtsps://camera:open%20sesame@localhost:{secure}/clip");
    assert_eq!(ingest(&server, &run, &source).status, 200);
    let record = server.get(&format!("/v1/runs/{run}")).json();
    let masked = format!("rtsps://***@localhost:{secure}/clip");
    assert_eq!((&record["source"], &record["source_uri"]), (&json!("rtsp"), &json!(masked)));
    let events = server.get(&format!("/v1/runs/{run}/events")).text;
    assert!(!events.contains("sesame"), "{events}");
}

#[test]
fn a_camera_that_shows_nothing_is_told_why() {
    let certificate = Certificate::new();
    let media = [ball(""), format!("/sound={SOUND}")];
    let camera = Camera::start("basic", &media);
    let secure = certificate.before(camera.port);
    let server = setup(&certificate).start();
    let run = server.create_run();
    let named = |path: &str| format!("rtsps://camera:open%20sesame@localhost:{secure}{path}");
    let rows = [
        (format!("rtsps://localhost:{secure}/live"), "asks for a user and a password"),
        (format!("rtsps://camera:no@localhost:{secure}/live"), "does not accept the user"),
        (named("/nothing"), "404 Not Found"),
        (named("/sound"), "no video stream"),
        (format!("rtsps://localhost:{}/live", camera.port), "tls: "),
        ("rtsps://no-such-camera.invalid/live".to_owned(), "dns: no-such-camera.invalid"),
        (format!("rtsp://localhost:{}/live", camera.port), "SERVICE_ALLOW_UNENCRYPTED_RTSP=true"),
    ];
    refused(&server, &run, rows);
    let live = json!({"source_uri": named("/live"), "max_frames": 20});
    let reply = server.post_run(&run, "ingest", &live);
    assert_eq!((reply.status, &reply.json()["decoded_frames"]), (200, &json!(20)));

    let started = Instant::now();
    let reply = std::thread::scope(|scope| {
        let endless = json!({"source_uri": named("/live"), "max_frames": 500_000});
        let (server, run) = (&server, &run);
        let before = certificate.connections();
        let job = scope.spawn(move || server.post_run(run, "ingest", &endless));
        wait_until("the camera is dialled", || certificate.connections() != before);
        assert_eq!(server.post_run(run, "stop", &json!({})).status, 200);
        job.join().expect("no panic")
    });
    assert_eq!((reply.status, reply.code().as_str()), (409, "conflict"), "{}", reply.text);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}
