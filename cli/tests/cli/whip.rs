//! `sightline whip publish` against a server that refuses, and against our own receiver.

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use decode::{DemuxLimits, Demuxer};
use media::AccessUnit;
use transport::{
    rtp::ReceivedUnit,
    webrtc::{EndpointConfig, SessionEvent, SessionHandler, WebRtcEndpoint},
};

use crate::{
    remote::{self, Asked, KEY},
    support::{Outcome, command, finish, text},
};

/// Starts an endpoint that answers as `answer` says, and returns its address.
fn serve(answer: impl FnMut(Asked) -> (u16, String, String) + Send + 'static) -> String {
    remote::serve(usize::MAX, answer) + "/whip"
}

fn publish(file: &str, url: &str, options: &[&str]) -> Outcome {
    let mut command = command(&[&["whip", "publish", file, url, "--json"], options].concat());
    command.env("SIGHTLINE_API_KEY", KEY);
    finish(command)
}

/// Renders three seconds with a keyframe in each.
fn clip(name: &str, encoder: &str) -> String {
    let source = "-f lavfi -i testsrc2=s=320x240:r=25:d=3 -pix_fmt yuv420p";
    text(clips::rendered(name, &format!("{source} -c:v {encoder}")))
}

const H264: &str = "libx264 -preset ultrafast -bf 2 -g 25";

#[test]
fn what_the_server_refuses_is_told() {
    let file = clip("refused.mp4", H264);
    let cases = [
        (400, 5, "bad offer"),
        (401, 6, "no such key"),
        (409, 5, "4 streams are live already"),
        (415, 5, "not application/sdp"),
        (422, 5, "no servable video codec: offered H264"),
        (429, 1, "too many requests"),
        (503, 1, "no media capacity"),
    ];
    for (status, code, text) in cases {
        let url = serve(move |_| (status, String::new(), text.to_owned()));
        let outcome = publish(&file, &url, &[]);
        assert_eq!(outcome.code, code, "{status}: {}", outcome.stderr);
        let told = format!("sightline: {text} (HTTP {status})\n");
        assert_eq!((outcome.stderr, outcome.stdout), (told, String::new()));
    }
    // An envelope that is longer than what is read of an error is cut like plain text.
    let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(64 << 10));
    let long = serve(move |_| (500, String::new(), long.clone()));
    let outcome = publish(&file, &long, &[]);
    assert!(outcome.stderr.ends_with("xxx... (HTTP 500)\n"), "{}", outcome.stderr);
    let odd = serve(|_| (201, "http://127.0.0.1:1/s".to_owned(), String::new()));
    let outcome = publish(&file, &odd, &[]);
    assert!(outcome.stderr.contains("a Location on another server"), "{}", outcome.stderr);
    // Nothing listens there, and no option names another server.
    let outcome = publish(&file, "http://127.0.0.1:1/whip", &[]);
    assert_eq!(outcome.code, 4, "{}", outcome.stderr);
    let told = "no answer from http://127.0.0.1:1/whip: ";
    assert!(
        outcome.stderr.contains(told) && !outcome.stderr.contains("--server"),
        "{}",
        outcome.stderr
    );
    let turning = serve(|_| (307, "/again".to_owned(), String::new()));
    let outcome = publish(&file, &turning, &[]);
    assert!(outcome.stderr.contains("too many redirects"), "{}", outcome.stderr);
}

#[test]
fn what_cannot_be_published_is_told_before_anything_is_asked() {
    let url = serve(|_| panic!("nothing is asked"));
    let missing = publish("/nonexistent.mp4", &url, &[]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
    let foreign = publish("/nonexistent.mp4", "ftp://127.0.0.1/whip", &[]);
    assert_eq!(foreign.code, 2, "{}", foreign.stderr);
    for options in [["--loss", "101"], ["--jitter", "5001"], ["--count", "0"]] {
        assert_eq!(publish("a", &url, &options).code, 2, "{options:?}");
    }
    let file = clip("mjpeg.avi", "mjpeg -strict unofficial");
    publish(&file, &url, &[]).says(5, "mjpeg cannot be published");
}

/// Passes units to the test, with the session's number.
struct Collect(mpsc::SyncSender<(usize, AccessUnit)>, usize);

impl SessionHandler for Collect {
    fn on_access_unit(&mut self, unit: ReceivedUnit) {
        self.0.try_send((self.1, unit.access_unit)).expect("the test takes them all");
    }

    fn on_event(&mut self, _what: SessionEvent) {}
}

/// Result of a publication: requests without bodies, and the units of each session.
struct Received {
    outcome: Outcome,
    requests: Vec<String>,
    units: Vec<Vec<AccessUnit>>,
}

fn endpoint() -> WebRtcEndpoint {
    WebRtcEndpoint::open(EndpointConfig {
        bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        public_ips: Vec::new(),
        sessions_max: 16,
        connect_within: Duration::from_secs(30),
        lost_after: Duration::from_secs(30),
    })
    .expect("a port")
}

/// Publishes to a receiving endpoint.
fn received(file: &str, options: &[&str]) -> Received {
    let port = endpoint();
    let (sender, receiver) = mpsc::sync_channel(100_000);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    let mut sessions = Vec::new();
    let url = serve(move |asked| {
        assert_eq!(asked.authorization.as_deref(), Some("Bearer verysecretkey"));
        log.lock().expect("no panic").push(asked.line.clone());
        if asked.line.starts_with("DELETE") {
            return (200, String::new(), String::new());
        }
        let number = sessions.len();
        let sink = Box::new(Collect(sender.clone(), number));
        let (session, answer) = port.answer(&asked.body, sink).expect("a good offer");
        sessions.push(session);
        (201, format!("/sessions/{number}"), answer.sdp)
    });
    let outcome = publish(file, &url, options);
    let mut units: Vec<Vec<AccessUnit>> = Vec::new();
    for (number, unit) in receiver.try_iter() {
        units.resize_with(units.len().max(number + 1), Vec::new);
        units[number].push(unit);
    }
    let requests = std::mem::take(&mut *requests.lock().expect("no panic"));
    Received { outcome, requests, units }
}

/// Returns the file's own pictures.
fn pictures(file: &str) -> Vec<AccessUnit> {
    let input = File::open(file).expect("the clip");
    let demuxer = Demuxer::open(Box::new(input), DemuxLimits::default()).expect("a clip");
    demuxer.into_coded_pictures().map(|picture| picture.access_unit).collect()
}

#[test]
fn every_codec_arrives_as_it_is() {
    for (name, encoder) in [
        ("h264.mp4", H264),
        ("h265.mp4", "libx265 -preset ultrafast -x265-params log-level=none:keyint=25"),
        ("vp8.webm", "libvpx -deadline realtime -cpu-used 8 -g 25"),
        ("vp9.webm", "libvpx-vp9 -deadline realtime -cpu-used 8 -g 25"),
        ("av1.mkv", "libaom-av1 -cpu-used 8 -usage realtime -g 25"),
    ] {
        let file = clip(name, encoder);
        let Received { outcome, requests, units } = received(&file, &[]);
        assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
        assert_eq!(requests, ["POST /whip HTTP/1.1", "DELETE /sessions/0 HTTP/1.1"], "{name}");
        let originals = pictures(&file);
        assert_eq!(units[0].len(), originals.len(), "{name}");
        for (index, (found, expected)) in units[0].iter().zip(&originals).enumerate() {
            assert_eq!(found.keyframe, expected.keyframe, "{name} {index}");
            // Received temporal units have a delimiter, which the container omits.
            assert!(found.data.ends_with(&expected.data), "{name} {index}");
        }
        let figures = outcome.json();
        assert_eq!(figures["pictures"], originals.len(), "{name}");
        assert_eq!((&figures["connected"], &figures["lost"]), (&1.into(), &0.into()), "{name}");
    }
}

#[test]
fn a_bad_path_costs_pictures_and_breaks_none() {
    let file = clip("lossy.mp4", H264);
    let options = ["--loss", "5", "--jitter", "60", "--count", "3", "--loop", "--seconds", "6"];
    let Received { outcome, requests, units } = received(&file, &options);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(requests.iter().filter(|line| line.starts_with("DELETE")).count(), 3);
    let originals = pictures(&file);
    for units in &units {
        assert!(units[0].keyframe, "nothing before a start");
        for unit in units {
            let is_whole = originals.iter().any(|original| original.data == unit.data);
            assert!(is_whole, "a unit that was never sent");
        }
    }
    let figures = outcome.json();
    let count = |name: &str| figures[name].as_u64().expect("a number");
    assert_eq!((count("connected"), units.len()), (3, 3));
    assert!(count("lost") > 0 && count("repeated") > 0, "{figures}");
    let arrived = units.iter().map(Vec::len).sum::<usize>() as u64;
    assert!(arrived <= count("pictures"), "{arrived} of {figures}");
}

#[test]
fn a_server_without_media_is_told() {
    let file = clip("silent.mp4", H264);
    let url = serve(|_| (201, "/s".to_owned(), "v=0\r\nno answer".to_owned()));
    publish(&file, &url, &[]).says(1, "session 1: answer: ");
}

#[test]
fn time_that_is_up_before_a_connection_is_no_success() {
    let file = clip("unheard.mp4", H264);
    let url = serve(|asked| {
        if asked.line.starts_with("DELETE") {
            return (200, String::new(), String::new());
        }
        // Its port is closed again before the answer arrives.
        let sink = Box::new(Collect(mpsc::sync_channel(1).0, 0));
        let (_, answer) = endpoint().answer(&asked.body, sink).expect("a good offer");
        (201, "/s".to_owned(), answer.sdp)
    });
    publish(&file, &url, &["--seconds", "1"]).says(4, "session 1 was accepted and never connected");
}
