//! Tests of events that no sound worker sends about a file.

use decode::StreamInfo;
use media::{Codec, Signal, Timebase};

use super::*;
use crate::{FrameImages, FrameRecord, GateBackendReport};

const FRAMES_MAX: u64 = 100;

fn frames(frames: std::ops::Range<u64>) -> JobEvent {
    let of = |frame_index| FrameRecord {
        signal: Signal::plain(frame_index, 40 * frame_index as i64),
        pts: None,
        pictures: FrameImages::default(),
    };
    JobEvent::Frames(frames.map(of).collect())
}

fn opened(width: u32) -> JobEvent {
    JobEvent::Opened(StreamInfo {
        codec: Codec::H264,
        container: "ivf".to_owned(),
        extent: Dimensions { width, height: 16 },
        rotation: Rotation::None,
        layout: None,
        source_rate: None,
        duration: None,
        timebase: Timebase::MILLIS,
        pixel_format: "yuv420p".to_owned(),
        declared_frames: None,
        wall_start: None,
        is_endless: false,
    })
}

fn job() -> JobCheck {
    let options = JobOptions { max_frames: FRAMES_MAX, stills: true, ..JobOptions::default() };
    JobCheck::new(&options, &WorkerLimits::default())
}

#[test]
fn a_job_says_what_adds_up() {
    let report = |frames| FileReport {
        decoder: "software:h264".to_owned(),
        frames,
        source_frames: frames,
        ..FileReport::default()
    };
    let spent = |decode_us| JobEvent::Spent(StageTimings { decode_us, gate_us: 0 });
    let size = |width| Some(Dimensions { width, height: 16 });
    let rows = [
        ("a stream", opened(8192), true),
        ("pictures that nothing decodes", opened(8193), false),
        ("the next frames", frames(10..20), true),
        ("a gap", frames(11..20), false),
        ("frames again", frames(9..20), false),
        ("more frames than asked for", frames(10..FRAMES_MAX + 1), false),
        ("the end", JobEvent::Done(report(10)), true),
        ("another number of frames", JobEvent::Done(report(11)), false),
        (
            "packets without number",
            JobEvent::Done(FileReport { damaged_packets: u64::MAX, ..report(10) }),
            false,
        ),
        (
            "a first picture that nothing decodes",
            JobEvent::Done(FileReport { first_extent: size(8193), ..report(10) }),
            false,
        ),
        ("an hour", spent(3_600_000_000), true),
        ("ages", spent(u64::MAX), false),
    ];
    for (name, event, is_right) in rows {
        let mut job = job();
        job.look(&frames(0..10)).expect(name);
        assert_eq!(job.look(&event).is_ok(), is_right, "{name}");
    }
}

#[test]
fn a_job_says_once_what_is_true_of_all_of_it() {
    let measured = GateBackendReport { measurer: "cpu".to_owned(), lost: None, late: 0 };
    let spent = StageTimings { decode_us: 1, gate_us: 1 };
    for event in [opened(16), JobEvent::Measured(measured), JobEvent::Spent(spent)] {
        let mut job = job();
        job.look(&event).expect("the first");
        assert_eq!(job.look(&event), Err(WireError::Unexpected("repeated")), "{event:?}");
    }
}
