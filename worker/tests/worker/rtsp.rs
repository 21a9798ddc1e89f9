//! RTSP from a real server, GStreamer's, which sends coded files unchanged.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    net::TcpStream,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use decode::Demuxer;
use media::ErrorKind;
use worker::{CancelToken, JobEvent, JobInput, JobSpec, RtspMedia, WorkerLimits};

use crate::support::{Heard, alone, assert_same_media, rendered, run, spec, supervisor, whole};

/// A server process, which ends when dropped.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Serves each `(path, pipeline)` to anybody.
    pub fn start(media: &[(&str, String)]) -> Server {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/worker/rtsp-server.py");
        // Debian's own Python, which finds the packages that deploy/setup.sh installs.
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .arg("none")
            .args(media.iter().map(|(path, pipeline)| format!("{path}={pipeline}")))
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("readable");
        let port = said.trim().parse().expect("a port: deploy/setup.sh test installs the camera");
        Server { child, port }
    }

    fn job(&self, path: &str) -> JobSpec {
        job(self.connect(), self.url(path))
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens")
    }

    pub fn url(&self, path: &str) -> String {
        format!("rtsp://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("killed");
    }
}

pub fn job(socket: impl Into<OwnedFd>, url: String) -> JobSpec {
    let input = JobInput::Rtsp(RtspMedia { socket: socket.into(), url, credentials: None });
    JobSpec { limits: WorkerLimits::camera(), ..whole(input) }
}

/// Renders four seconds of video with these encoder options.
fn made(name: &str, codec: &str) -> PathBuf {
    rendered(name, "testsrc2=s=320x240:r=25:d=4", codec)
}

pub fn pipeline(path: &Path, demuxer: &str, payloader: &str) -> String {
    format!("( filesrc location={} ! {demuxer} ! {payloader} name=pay0 )", path.display())
}

#[test]
fn what_a_server_sends_is_what_its_file_holds() {
    let _alone = alone();
    let h264 = made("rtsp-h264.mp4", "-bf 2");
    let hevc = made("rtsp-hevc.mp4", "-c:v libx265 -x265-params log-level=none -bf 0");
    let jpeg = made("rtsp-jpeg.mov", "-c:v mjpeg -pix_fmt yuvj420p -q:v 5 -huffman default");
    let server = Server::start(&[
        ("/h264", pipeline(&h264, "qtdemux ! h264parse", "rtph264pay config-interval=-1")),
        ("/hevc", pipeline(&hevc, "qtdemux ! h265parse", "rtph265pay config-interval=-1")),
        ("/jpeg", pipeline(&jpeg, "qtdemux ! jpegparse", "rtpjpegpay")),
        ("/from-zero", pipeline(&jpeg, "qtdemux ! jpegparse", "rtpjpegpay timestamp-offset=0")),
    ]);
    for (path, file) in
        [("/h264", &h264), ("/hevc", &hevc), ("/jpeg", &jpeg), ("/from-zero", &jpeg)]
    {
        let expected = run(spec(file)).expect("a result").settled();
        let found = run(server.job(path)).expect(path);
        assert_same_media(&found, &expected, path);
        let stream = found.opened.expect("opened");
        assert_eq!(stream.container, "rtsp");
        assert_eq!((stream.extent.width, stream.extent.height), (320, 240));
    }
    let error = run(server.job("/nothing")).expect_err("no such path");
    let told = "the RTSP server answers DESCRIBE with status 404 Not Found";
    assert_eq!((error.to_string().as_str(), error.kind()), (told, ErrorKind::InvalidInput));
}

#[test]
fn pictures_that_a_camera_gives_one_time_are_told_apart() {
    let _alone = alone();
    // Without a container the pictures have no times, so their packets all have the same.
    let raw = made("rtsp-raw.h264", "-bf 0");
    let server =
        Server::start(&[("/raw", pipeline(&raw, "h264parse", "rtph264pay config-interval=-1"))]);
    let found = run(server.job("/raw")).expect("a result");
    let times: Vec<i64> = found.signals.iter().map(|signal| signal.pts_ms).collect();
    assert_eq!(times.len(), 100);
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

/// Endless pictures, each different.
const ENDLESS: &str = "( videotestsrc is-live=true pattern=ball ! \
    video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! jpegenc ! rtpjpegpay name=pay0 )";

#[test]
fn a_live_camera_that_dies_keeps_what_came() {
    let _alone = alone();
    let mut server = Server::start(&[("/live", ENDLESS.to_owned())]);
    let (mut heard, mut dead) = (Heard::default(), false);
    let job = server.job("/live");
    supervisor()
        .run_job(job, &CancelToken::new(), &mut |event| {
            if matches!(event, JobEvent::Progress { frames: 10.., .. }) && !dead {
                dead = true;
                server.child.kill().expect("our own child");
            }
            heard.take(event)
        })
        .expect("what came before");
    let times: Vec<i64> = heard.signals.iter().map(|signal| signal.pts_ms).collect();
    assert!(times.len() >= 10 && (0..=80).contains(&times[0]), "{times:?}");
    assert!(times.windows(2).all(|pair| (20..=200).contains(&(pair[1] - pair[0]))), "{times:?}");
    assert!(heard.done.expect("a report").truncated);
}

/// Responses of a server of this media to all requests up to PLAY.
fn answers(sdp: &str) -> String {
    format!(
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n\
         RTSP/1.0 200 OK\r\nCSeq: 2\r\nContent-Length: {}\r\n\r\n{sdp}\
         RTSP/1.0 200 OK\r\nCSeq: 3\r\nSession: 1\r\n\r\n\
         RTSP/1.0 200 OK\r\nCSeq: 4\r\n\r\n",
        sdp.len()
    )
}

/// Returns the packets of each picture of a file at 25 fps (RFC 6184 5.6), as sent over the connection.
fn packets(path: &Path) -> Vec<Vec<u8>> {
    let file = Box::new(File::open(path).expect("the file opens"));
    let pictures = Demuxer::open(file, decode::DemuxLimits::default()).expect("a container");
    let (mut number, mut sent) = (0u16, Vec::new());
    for (picture, coded) in (1u32..).zip(pictures.into_coded_pictures()) {
        let data = coded.access_unit.data;
        let starts = (0..data.len()).filter(|&at| data[at..].starts_with(&[0, 0, 0, 1]));
        let starts: Vec<usize> = starts.collect();
        let ends = starts.iter().skip(1).copied().chain([data.len()]);
        let mut bytes = Vec::new();
        for (start, end) in starts.iter().zip(ends) {
            let unit = &data[start + 4..end];
            let is_last = u8::from(end == data.len());
            let len = u16::try_from(12 + unit.len()).expect("a small picture");
            bytes.extend([b'$', 0]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([0x80, is_last << 7 | 96]);
            bytes.extend(number.to_be_bytes());
            // Starts at 1, as libav takes 0 as a missing time.
            bytes.extend((picture * 3600).to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(unit);
            number += 1;
        }
        sent.push(bytes);
    }
    sent
}

#[test]
fn what_a_camera_has_shown_is_told_before_it_shows_more() {
    let _alone = alone();
    // The file is a single GOP.
    let path = made("rtsp-one-gop.mp4", "-bf 0 -g 100 -x264-params slices=1");
    let expected = run(spec(&path)).expect("a result").settled();
    let pictures = packets(&path);
    let (before, after) = pictures.split_at(50);
    // A picture ends where the next one begins, and a signal needs the two frames after its own.
    let told = before.len() - 3;
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (go_on, waits) = mpsc::sync_channel(1);
    let mut heard = Heard::default();
    thread::scope(|scope| {
        scope.spawn(move || -> io::Result<()> {
            let mut camera = &ours;
            let h264 = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
            camera.write_all(answers(h264).as_bytes())?;
            camera.write_all(&before.concat())?;
            // If no message comes, the connection is closed: the signals have not come.
            if waits.recv().is_ok() {
                camera.write_all(&after.concat())?;
            }
            Ok(())
        });
        let mut go_on = Some(go_on);
        let camera = job(theirs, "rtsp://camera.test/".to_owned());
        supervisor().run_job(camera, &CancelToken::new(), &mut |event| {
            let flow = heard.take(event);
            if heard.signals.len() >= told
                && let Some(go_on) = go_on.take()
            {
                go_on.send(()).ok();
            }
            flow
        })
    })
    .expect("a result");
    assert_eq!(heard.signals.len(), 100);
    for (found, expected) in heard.signals.iter().zip(&expected.signals) {
        assert_eq!(found, expected);
    }
    assert!(heard.stills == expected.stills && !heard.stills.is_empty());
}

#[test]
fn a_connection_that_ends_early_says_when() {
    let _alone = alone();
    for (name, words, during) in [
        ("nothing", String::new(), "before it answered anything"),
        ("no media", answers("m=video 0 RTP/AVP 26\r\n"), "while it sent the media"),
    ] {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (&ours).write_all(words.as_bytes()).expect("room for all");
        ours.shutdown(std::net::Shutdown::Write).expect("open");
        let error = run(job(theirs, "rtsp://camera.test/".to_owned())).expect_err(name);
        let told = format!("the RTSP server ended the connection early, {during}");
        assert_eq!(error.to_string(), told, "{name}");
    }
}

#[test]
fn a_silent_server_is_not_waited_for_for_ever() {
    let _alone = alone();
    let (_ours, theirs) = UnixStream::pair().expect("a pair");
    let error = run(job(theirs, "rtsp://camera.test/".to_owned())).expect_err("silent");
    assert_eq!(error.to_string(), "timeout: the RTSP server was silent");
}
