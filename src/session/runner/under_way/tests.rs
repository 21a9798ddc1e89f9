//! Notes on a disk that fails, and which events say that a job is over.

use std::path::Path;

use media::Rate;
use timeline::{FramesDecoded, NewEvent, Options, RunCompleted, SamplingPolicy, Signals};

use super::*;
use crate::ledger::Fault;

const RUN: RunId = RunId::from_bytes([1; 16]);
const OTHER: RunId = RunId::from_bytes([2; 16]);

fn request(at: u8) -> RequestId {
    RequestId::from_bytes([at; 8])
}

fn note(at: u8) -> Note {
    Note { run: RUN, request: request(at), kind: JobKind::Ingest }
}

fn open(dir: &Path) -> UnderWay {
    UnderWay::new(Ledger::open(&dir.join("ledger")).expect("opens"))
}

/// What the next start finds.
fn noted(jobs: &UnderWay) -> Vec<Note> {
    UnderWay::new(jobs.ledger.clone()).noted().expect("readable")
}

#[test]
fn a_note_that_a_failing_disk_keeps_goes_before_there_is_another() {
    for fault in [Fault::Lost, Fault::Unclear] {
        let dir = tempfile::tempdir().expect("a directory");
        let jobs = open(dir.path());
        jobs.note(note(1)).expect("written");
        let reasoning = Note { kind: JobKind::Reasoning, ..note(2) };
        jobs.note(reasoning).expect("written");
        assert_eq!(noted(&jobs), [note(1), reasoning]);
        // The first is over and its strike fails, and so does the next note's try at it.
        jobs.ledger.fail_next(&[fault, Fault::Lost]);
        jobs.strike(note(1)).expect_err("the disk fails");
        jobs.note(note(3)).expect_err("the disk fails");
        jobs.note(note(3)).expect("written");
        assert_eq!(noted(&jobs), [note(3), reasoning], "{fault:?}");
        // A note that is there although it could not be told.
        jobs.ledger.fail_next(&[Fault::Unclear]);
        jobs.note(note(4)).expect_err("the disk fails");
        assert_eq!(noted(&jobs), [note(3), note(4), reasoning], "{fault:?}");
        jobs.settle().expect("written");
        assert_eq!(noted(&jobs), [note(3), reasoning], "{fault:?}");
        jobs.strike(note(3)).expect("written");
        jobs.strike(reasoning).expect("written");
        assert_eq!(noted(&jobs), [], "{fault:?}");
    }
}

fn decoded(at: u8) -> Event {
    Event::FramesDecoded(FramesDecoded {
        request_id: request(at),
        source_uri: "a.mp4".to_owned(),
        stream_id: "main".parse().expect("a label"),
        sampling_policy: SamplingPolicy::Fixed,
        source_fps: None,
        sample_fps: Rate::new(1, 1),
        decoded_frames: 0,
        width: 2,
        height: 2,
        pixel_format: "yuv420p".to_owned(),
        decoder: None,
        decoder_fallback: None,
        truncated: false,
        signals: Signals::Inline(Vec::new()),
    })
}

fn completed(at: u8) -> Event {
    Event::RunCompleted(RunCompleted {
        request_id: Some(request(at)),
        stream_id: None,
        frames: 0,
        markers: 0,
        index_name: None,
    })
}

#[test]
fn a_job_is_over_where_its_own_last_event_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, _) = Timeline::open(dir.path(), Options::default()).expect("opened");
    log.append_wait(vec![NewEvent { run: RUN, event: decoded(1) }]).expect("durable");
    // More than is looked at in one step.
    for _ in 0..5 {
        let filler = (0..1000).map(|_| NewEvent { run: RUN, event: Event::RunExpired });
        log.append_wait(filler.collect()).expect("durable");
    }
    let rest = [(RUN, decoded(2)), (OTHER, decoded(3)), (RUN, completed(4))];
    let rest = rest.map(|(run, event)| NewEvent { run, event });
    log.append_wait(rest.into()).expect("durable");
    let rows = [
        (1, JobKind::Ingest, true, "an ingest before the latest"),
        (2, JobKind::Ingest, true, "the latest ingest"),
        (3, JobKind::Ingest, false, "another run's"),
        (9, JobKind::Ingest, false, "cut off before its events"),
        (2, JobKind::Reasoning, false, "cut off behind its frames"),
        (4, JobKind::Reasoning, true, "a whole reasoning"),
    ];
    for (at, kind, expected, case) in rows {
        let over = is_over(&log, Note { kind, ..note(at) }).expect("readable");
        assert_eq!(over, expected, "{case}");
    }
}
