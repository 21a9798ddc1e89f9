//! Events that a worker in good order never says, of files and of live sessions alike.

use decode::Sampling;
use gate::{GateConfig, Reason};
use media::{Codec, ErrorKind, Zones};

use super::*;
use crate::{
    Chunk, Fault, SelectedFrame, SelectedView, SessionEvent, SessionSpec, ViewSpec,
    jpeg::shortest,
    protocol::{HEADER_BYTES, Reply, decode_told, encode},
    session::SessionCheck,
    wire::TOLD_BYTES_MAX,
};

const EXTENT: Extent = Extent { width: 320, height: 180 };
const FRAMES_MAX: u64 = 100;

fn signals(frames: std::ops::Range<u64>) -> Vec<Signal> {
    let signal = |frame_index| Signal::plain(frame_index, 40 * frame_index as i64);
    frames.map(signal).collect()
}

fn still(frame_index: u64) -> Still {
    Still {
        frame_index,
        pts_ms: 0,
        reason: Reason::SceneCut,
        event_type: EventType::SceneCut,
        extent: EXTENT,
        jpeg: shortest(EXTENT),
    }
}

fn job() -> JobCheck {
    let options = JobOptions {
        sampling: Sampling::Every,
        max_frames: FRAMES_MAX,
        stills: true,
        views: None,
        gate: GateConfig::default(),
        zones: Zones::default(),
        threads: 1,
        resume: None,
    };
    JobCheck::new(&options, &Limits::default())
}

fn session() -> SessionCheck {
    let spec = SessionSpec::new(Codec::H264, GateConfig::default());
    SessionCheck::new(SessionSpec { stills: true, view: Some(ViewSpec { max_edge: None }), ..spec })
}

/// Stills after ten signals and the still of frame 12, and whether each may come.
fn stills() -> Vec<(&'static str, Still, bool)> {
    let of = |extent: Extent| Still { extent, jpeg: shortest(extent), ..still(13) };
    let named = EventType::from_name("<b>");
    vec![
        ("the next", still(13), true),
        ("of a frame whose signals came", still(9), false),
        ("the same again", still(12), false),
        ("a frame before", still(11), false),
        ("text", Still { jpeg: b"<script>".to_vec(), ..still(13) }, false),
        (
            "another size than it says",
            Still { jpeg: shortest(Extent { width: 2, height: 1 }), ..still(13) },
            false,
        ),
        ("a side that no source has", of(Extent { width: 8193, height: 1 }), false),
        ("a name of its own", Still { event_type: named, ..still(13) }, false),
    ]
}

#[test]
fn stills_of_files_and_of_live_sessions_are_pictures_of_the_next_frames() {
    for (name, shown, is_right) in stills() {
        let expected = if is_right { Ok(()) } else { Err(ProtocolError::Invalid("still")) };
        let mut job = job();
        for event in [JobEvent::Signals(signals(0..10)), JobEvent::Still(still(12))] {
            job.look(&event).expect(name);
        }
        assert_eq!(job.look(&JobEvent::Still(shown.clone())), expected, "{name}, a file");
        let mut session = session();
        for event in [SessionEvent::Signals(signals(0..10)), SessionEvent::Still(still(12))] {
            session.look(&event).expect(name);
        }
        assert_eq!(session.look(&SessionEvent::Still(shown)), expected, "{name}, live");
    }
}

#[test]
fn a_job_says_what_adds_up() {
    let report = |frames| FileReport {
        decoder: "software:h264".to_owned(),
        fallback: None,
        frames,
        source_frames: frames,
        source_rate: None,
        truncated: false,
        more_frames: false,
        damaged_packets: 0,
        first_extent: None,
    };
    let views = Vec::new();
    let chunk =
        Chunk { index: 0, first_frame: 0, frames: 10, start_pts_ms: 0, end_pts_ms: 360, views };
    let spent = |decode_us| JobEvent::Spent(Spent { decode_us, gate_us: 0 });
    let rows = [
        ("the next signals", JobEvent::Signals(signals(10..20)), true),
        ("a gap", JobEvent::Signals(signals(11..20)), false),
        ("signals again", JobEvent::Signals(signals(9..20)), false),
        ("more frames than asked for", JobEvent::Signals(signals(10..FRAMES_MAX + 1)), false),
        ("a still past them", JobEvent::Still(still(FRAMES_MAX)), false),
        ("the end", JobEvent::Done(report(10)), true),
        ("another number of frames", JobEvent::Done(report(11)), false),
        (
            "packets without number",
            JobEvent::Done(FileReport { damaged_packets: u64::MAX, ..report(10) }),
            false,
        ),
        ("a chunk that nobody asked for", JobEvent::Chunk(chunk), false),
        ("an hour", spent(3_600_000_000), true),
        ("ages", spent(u64::MAX), false),
    ];
    for (name, event, is_right) in rows {
        let mut job = job();
        job.look(&JobEvent::Signals(signals(0..10))).expect(name);
        assert_eq!(job.look(&event).is_ok(), is_right, "{name}");
    }
}

#[test]
fn a_session_says_what_adds_up() {
    let selected = |frame_index| {
        let pts = media::Timestamp::from_millis(0);
        let view = Some(SelectedView::Own { extent: EXTENT, jpeg: shortest(EXTENT) });
        SessionEvent::Selected(SelectedFrame { frame_index, pts, view, novelty: None })
    };
    let closed = |frames| SessionEvent::Closed { frames, decoder: "software:h264".to_owned() };
    let rows = [
        ("the next signals", SessionEvent::Signals(signals(10..20)), true),
        ("a gap", SessionEvent::Signals(signals(11..20)), false),
        ("the frame of the still", selected(12), true),
        ("another frame", selected(13), false),
        ("the end", closed(10), true),
        ("another number of frames", closed(11), false),
    ];
    for (name, event, is_right) in rows {
        let mut session = session();
        for before in [SessionEvent::Signals(signals(0..10)), SessionEvent::Still(still(12))] {
            session.look(&before).expect(name);
        }
        assert_eq!(session.look(&event).is_ok(), is_right, "{name}");
    }
}

#[test]
fn text_of_a_worker_is_cut_and_escaped() {
    let said = |message: String| {
        let fault = Fault::Other { kind: ErrorKind::InvalidInput, message };
        let mut bytes = Vec::new();
        encode(&Reply::Failed(fault), &mut bytes).expect("below the bound");
        let told = decode_told::<Reply>(&bytes[HEADER_BYTES..]).expect("a message");
        let Reply::Failed(fault) = told else { panic!("another message") };
        fault.to_string()
    };
    assert_eq!(said("a\nERROR b\x1b[2J\u{202e}".to_owned()), "a\\nERROR b\\u{1b}[2J\\u{202e}");
    let long = "\u{e9}".repeat(TOLD_BYTES_MAX);
    assert_eq!(said(long.clone()), long[..TOLD_BYTES_MAX]);
}
