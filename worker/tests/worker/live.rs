//! Live sessions: sends access units of real clips through a worker.

use std::{
    collections::BTreeMap,
    fs::File,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use clips::pick_one;
use decode::{DemuxLimits, Demuxer};
use gate::GateConfig;
use media::{AccessUnit, Codec, Signal, Timestamp};
use worker::{
    EncodedImage, FrameRecord, LiveWorker, LiveWorkerEvent, SessionSpec, Supervisor, WireError,
    WorkerError, WorkerLimits, WorkerSessionEvent,
};

use crate::{
    live_faults::patient,
    support::{alone, annex_b, rendered, run, spec, supervisor},
};

/// Returns the access units of an H.264 file without reordering, 40 ms apart.
pub fn access_units(path: &Path) -> Vec<AccessUnit> {
    let input = Box::new(File::open(path).expect("readable"));
    let demuxer = Demuxer::open(input, DemuxLimits::default()).expect("a stream");
    let units = demuxer.into_coded_pictures().map(|picture| picture.access_unit);
    let timed =
        |(ms, unit): (i64, AccessUnit)| AccessUnit { pts: Timestamp::from_millis(ms), ..unit };
    (0..).step_by(40).zip(units).map(timed).collect()
}

/// Output of all sessions of a worker.
#[derive(Default)]
pub struct Said {
    pub signals: BTreeMap<u32, Vec<Signal>>,
    /// Stills, each with its frame index.
    pub stills: BTreeMap<u32, Vec<(u64, EncodedImage)>>,
    pub records: BTreeMap<u32, Vec<FrameRecord>>,
    pub closed: BTreeMap<u32, u64>,
    pub failed: BTreeMap<u32, String>,
    pub damaged: usize,
    pub ended: Option<WorkerError>,
    /// Reason of the device's loss.
    pub lost: Option<String>,
    /// Number of events after the end.
    pub late: usize,
}

#[derive(Clone, Default)]
pub struct Listener(Arc<(Mutex<Said>, Condvar)>);

impl Listener {
    pub fn take(&self, event: LiveWorkerEvent) -> Result<(), WireError> {
        let mut said = self.0.0.lock().expect("no panic");
        said.late += usize::from(said.ended.is_some());
        match event {
            LiveWorkerEvent::Ended(error) => said.ended = Some(error),
            LiveWorkerEvent::GateLate => {}
            LiveWorkerEvent::GateLost(reason) | LiveWorkerEvent::DecoderLost(reason) => {
                said.lost = Some(reason);
            }
            LiveWorkerEvent::Session { session, event } => match event {
                WorkerSessionEvent::Frames(records) => {
                    for record in records {
                        let frame_index = record.signal.frame_index;
                        said.signals.entry(session).or_default().push(record.signal);
                        let still = record.pictures.still.clone().map(|still| (frame_index, still));
                        said.stills.entry(session).or_default().extend(still);
                        said.records.entry(session).or_default().push(record);
                    }
                }
                WorkerSessionEvent::Damaged { .. } => said.damaged += 1,
                WorkerSessionEvent::Closed { frames, .. } => {
                    said.closed.insert(session, frames);
                }
                WorkerSessionEvent::Failed(fault) => {
                    said.failed.insert(session, fault.to_string());
                }
            },
        }
        self.0.1.notify_all();
        Ok(())
    }

    pub fn wait(
        &self,
        what: &str,
        until: impl Fn(&Said) -> bool,
    ) -> std::sync::MutexGuard<'_, Said> {
        let said = self.0.0.lock().expect("no panic");
        let patience = Duration::from_secs(60);
        let (said, timeout) =
            self.0.1.wait_timeout_while(said, patience, |said| !until(said)).expect("no panic");
        assert!(!timeout.timed_out(), "{what}; {:?}, {:?}", said.ended, said.failed);
        said
    }
}

pub fn start(listener: &Listener, limits: WorkerLimits) -> LiveWorker {
    let listener = listener.clone();
    supervisor().start_live(limits, move |event| listener.take(event)).expect("a worker")
}

/// Pushes a unit; waits while the worker is busy, unlike a camera.
pub fn push(live: &LiveWorker, session: u32, unit: &AccessUnit) {
    let is_busy = || live.load(session).is_some_and(|units| units > 30);
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_busy() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    live.push(session, unit.clone()).expect("there is room");
}

/// Sends units through a session, and passes its output to `until`.
pub fn say(spec: SessionSpec, units: &[AccessUnit], until: impl FnOnce(&Said)) {
    let listener = Listener::default();
    let live = start(&listener, WorkerLimits::default());
    live.open(1, spec).expect("open");
    units.iter().for_each(|unit| push(&live, 1, unit));
    live.close(1).expect("close");
    let said = listener.wait("closed", |said| !said.closed.is_empty() || !said.failed.is_empty());
    assert_eq!(said.failed, BTreeMap::new());
    until(&said);
}

/// Sends the units of one session each in turn, and returns their output.
pub fn together(supervisor: &Supervisor, sources: &[&[AccessUnit]]) -> Said {
    let listener = Listener::default();
    let told = listener.clone();
    let live = supervisor.start_live(patient(), move |event| told.take(event)).expect("starts");
    let sessions = || (0..).zip(sources);
    sessions().for_each(|(session, _)| live.open(session, with_stills()).expect("open"));
    for at in 0..sources[0].len() {
        sessions().for_each(|(session, units)| push(&live, session, &units[at]));
    }
    sessions().for_each(|(session, _)| live.close(session).expect("close"));
    std::mem::take(&mut *listener.wait("all closed", |said| said.closed.len() == sources.len()))
}

/// Asks for signals, and stills of the selected frames.
pub fn with_stills() -> SessionSpec {
    SessionSpec { stills: true, ..signals_alone() }
}

pub fn signals_alone() -> SessionSpec {
    SessionSpec::new(Codec::H264, GateConfig::default())
}

#[test]
fn a_live_session_says_what_the_file_says() {
    let _alone = alone();
    let hashes = |signals: &[Signal]| -> Vec<_> {
        signals.iter().map(|signal| (signal.perceptual_hash, signal.luma_mean)).collect()
    };
    for path in [annex_b("testsrc2"), pick_one("annex-b.264", "screen_oh264-pdf.264")] {
        let (file, name) = (run(spec(&path)).expect("a result"), path.display());
        say(with_stills(), &access_units(&path), |said| {
            assert_eq!(said.closed[&1], file.signals.len() as u64, "{name}");
            assert_eq!(hashes(&said.signals[&1]), hashes(&file.signals), "{name}");
            assert!(said.stills[&1] == file.stills, "stills of {name}");
        });
    }
}

#[test]
fn sessions_beside_each_other_do_not_disturb_each_other() {
    let _alone = alone();
    let sources = ["testsrc2", "mandelbrot"].map(|source| access_units(&annex_b(source)));
    let listener = Listener::default();
    let live = start(&listener, WorkerLimits::default());
    for session in [0, 1, 10, 11] {
        live.open(session, with_stills()).expect("open");
    }
    // Sessions 0 and 1 alternate unit by unit; 10 and 11 follow one after the other.
    for at in 0..sources[0].len() {
        for (session, units) in sources.iter().enumerate() {
            if let Some(unit) = units.get(at) {
                push(&live, session as u32, unit);
            }
        }
    }
    for (session, units) in sources.iter().enumerate() {
        units.iter().for_each(|unit| push(&live, 10 + session as u32, unit));
    }
    for session in [0, 1, 10, 11] {
        live.close(session).expect("close");
    }
    let said = listener.wait("all closed", |said| said.closed.len() == 4);
    assert_eq!(said.closed[&0], sources[0].len() as u64);
    for session in [0, 1] {
        assert_eq!(said.signals[&session], said.signals[&(10 + session)], "session {session}");
        assert!(said.stills[&session] == said.stills[&(10 + session)], "session {session}");
    }
}

#[test]
fn damage_is_said_and_passes() {
    let _alone = alone();
    // GOPs of 25 pictures: behind the damage, number 50 is the next that is shown.
    let mut units = access_units(&annex_b("testsrc2"));
    units[30].data = vec![0, 0, 0, 1, 0x65, 0xff, 0xff, 0xff];
    say(signals_alone(), &units, |said| assert_eq!((said.damaged, said.closed[&1]), (1, 80)));
}

#[test]
fn a_picture_that_never_came_costs_the_rest_of_its_group() {
    let _alone = alone();
    // GOPs of 25 pictures; number 30 is lost.
    let units = access_units(&annex_b("testsrc2"));
    let hashes = |said: &Said, session: u32| -> Vec<(i64, u64)> {
        let signals = said.signals[&session].iter();
        signals.map(|signal| (signal.pts_ms / 40, signal.perceptual_hash)).collect()
    };
    let listener = Listener::default();
    let live = start(&listener, WorkerLimits::default());
    for session in [0, 1] {
        live.open(session, signals_alone()).expect("open");
        for (_, unit) in units.iter().enumerate().filter(|(at, _)| session == 0 || *at != 30) {
            push(&live, session, unit);
        }
        live.close(session).expect("close");
    }
    let said = listener.wait("closed", |said| said.closed.len() == 2);
    let whole = hashes(&said, 0);
    let expected: Vec<_> = whole.iter().filter(|(at, _)| !(30..50).contains(at)).copied().collect();
    assert_eq!(expected.len(), 80);
    assert_eq!(hashes(&said, 1), expected);
    assert_eq!((said.damaged, &said.failed), (1, &BTreeMap::new()));
}

#[test]
fn times_that_jump_lose_no_frame() {
    let _alone = alone();
    let mut units = access_units(&annex_b("testsrc2"));
    // Times jump a day ahead after one second, and to before the start after two.
    let offset = |at: usize| match at {
        0..25 => 0,
        25..50 => 86_400_000,
        _ => -10_000,
    };
    for (at, unit) in units.iter_mut().enumerate() {
        unit.pts = Timestamp::from_millis(unit.pts.as_millis() + offset(at));
    }
    say(with_stills(), &units, |said| {
        assert_eq!(said.damaged, 0);
        let times: Vec<i64> = said.signals[&1].iter().map(|signal| signal.pts_ms).collect();
        let expected: Vec<i64> = (0..units.len()).map(|at| 40 * at as i64 + offset(at)).collect();
        assert_eq!(times, expected, "exact, and each frame once");
        assert!(said.signals[&1].iter().map(|signal| signal.frame_index).eq(0..units.len() as u64));
    });
}

#[test]
fn a_picture_too_large_for_live_ends_its_session_alone() {
    let _alone = alone();
    let one = |size: &str, format: &str| {
        let path = rendered(
            &format!("live-{size}-{format}.264"),
            &format!("color=c=gray:s={size}:r=25,trim=end_frame=1"),
            &format!("-pix_fmt {format}"),
        );
        access_units(&path)
    };
    let streams = [
        one("4096x2320", "yuv420p"),
        one("4096x2304", "yuv444p10le"),
        one("1152x4096", "yuv420p"),
        one("4096x2304", "yuv420p10le"),
        access_units(&annex_b("testsrc2")),
    ];
    let listener = Listener::default();
    let live = start(&listener, WorkerLimits::default());
    for (session, units) in (0..).zip(&streams) {
        live.open(session, signals_alone()).expect("open");
        // A failed session takes no more units, and its first picture is made to fail.
        let taken = if session < 2 { &units[..1] } else { units };
        taken.iter().for_each(|unit| push(&live, session, unit));
        live.close(session).expect("close");
    }
    let said = listener.wait("three closed", |said| said.closed.len() == 3);
    let closed: Vec<(u32, u64)> = said.closed.iter().map(|(&at, &frames)| (at, frames)).collect();
    assert_eq!(closed, [(2, 1), (3, 1), (4, streams[4].len() as u64)]);
    let expected = [
        "picture of 4096x2320 has more than 9437184 pixels",
        "picture of 4096x2304 needs 56623104 bytes; the limit for this stream is 28311552",
    ];
    for (session, expected) in (0..).zip(expected) {
        assert!(said.failed[&session].contains(expected), "{:?}", said.failed);
    }
}
