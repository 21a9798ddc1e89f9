//! RTSP from a real server, GStreamer's, which sends coded files as they are.

use std::{
    io::{BufRead, BufReader},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use decode::Sampling;
use gate::GateConfig;
use worker::{JobInput, JobSpec, Limits, Rtsp};

use crate::support::{Heard, alone, rendered, run, spec};

/// A server process; ends with its value.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Serves every `(path, pipeline)`; `auth` is none, basic or digest.
    fn start(auth: &str, media: &[(&str, String)]) -> Server {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worker/rtsp-server.py");
        // Debian's own, which finds the packages that deploy/setup.sh installs.
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .arg(auth)
            .args(media.iter().map(|(path, pipeline)| format!("{path}={pipeline}")))
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("readable");
        let port = said.trim().parse().expect("a port: make setup installs what it needs");
        Server { child, port }
    }

    fn job(&self, path: &str, credentials: Option<(&str, &str)>) -> JobSpec {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        let url = format!("rtsp://127.0.0.1:{}{path}", self.port);
        job(socket, url, credentials)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("killed");
    }
}

fn job(socket: TcpStream, url: String, credentials: Option<(&str, &str)>) -> JobSpec {
    let credentials = credentials.map(|(user, password)| (user.to_owned(), password.to_owned()));
    JobSpec {
        input: JobInput::Rtsp(Rtsp { socket: socket.into(), url, credentials }),
        sampling: Sampling::Every,
        max_frames: 500_000,
        stills: true,
        gate: GateConfig::default(),
        threads: 2,
        limits: Limits::remote(),
    }
}

/// Four seconds of video as `codec` makes it.
fn made(name: &str, codec: &[&str]) -> PathBuf {
    rendered(name, "testsrc2=s=320x240:r=25:d=4", codec)
}

fn pipeline(path: &Path, demuxer: &str, payloader: &str) -> String {
    format!("( filesrc location={} ! {demuxer} ! {payloader} name=pay0 )", path.display())
}

fn assert_same_pictures(found: &Heard, expected: &Heard, name: &str) {
    assert_eq!(expected.signals.len(), 100, "{name}");
    assert_eq!(found.signals.len(), 100, "{name}: {:?}", found.done);
    for (found, expected) in found.signals.iter().zip(&expected.signals) {
        assert_eq!(found, expected, "{name}");
    }
    assert!(found.stills == expected.stills && !found.stills.is_empty(), "{name}");
    let report = found.done.as_ref().expect("a report");
    assert!(!report.truncated && report.damaged_packets == 0, "{name}: {report:?}");
}

#[test]
fn what_a_server_sends_is_what_its_file_holds() {
    let _alone = alone();
    let h264 = made("rtsp-h264.mp4", &["-bf", "2"]);
    let hevc =
        made("rtsp-hevc.mp4", &["-c:v", "libx265", "-x265-params", "log-level=none", "-bf", "0"]);
    let jpeg = made(
        "rtsp-jpeg.mov",
        &["-c:v", "mjpeg", "-pix_fmt", "yuvj420p", "-q:v", "5", "-huffman", "default"],
    );
    let server = Server::start(
        "none",
        &[
            ("/h264", pipeline(&h264, "qtdemux ! h264parse", "rtph264pay config-interval=-1")),
            ("/hevc", pipeline(&hevc, "qtdemux ! h265parse", "rtph265pay config-interval=-1")),
            ("/jpeg", pipeline(&jpeg, "qtdemux ! jpegparse", "rtpjpegpay")),
        ],
    );
    for (path, file) in [("/h264", h264), ("/hevc", hevc), ("/jpeg", jpeg)] {
        let expected = run(spec(&file)).expect("a result").settled();
        let found = run(server.job(path, None)).expect(path);
        assert_same_pictures(&found, &expected, path);
        let stream = found.opened.expect("opened");
        assert_eq!(stream.container, "rtsp");
        assert_eq!((stream.extent.width, stream.extent.height), (320, 240));
    }
}
