//! Tests that sessions measured by a device, in this process, give the same events as on the CPU.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    thread,
};

use decode::BackendError;
use gate::{
    GateConfig, MeasureError,
    conformance::{Fill, TestPicture},
};
use media::{Codec, Rotation, Subsampling};

use super::*;
use crate::{
    GateBackend,
    channel::{ReceiveBuffer, pair},
    gate_device::{GateDevice, tests::scripted},
    still::JpegEncoder,
};

const SESSIONS: u32 = 5;

/// Returns coded pictures for a session, each with another content.
fn units(session: u32, count: usize) -> Vec<Vec<u8>> {
    let mut encoder = JpegEncoder::new().expect("an encoder");
    let picture = |at: usize| {
        let fill = match at % 7 {
            0 => Fill::Ramp,
            1 => Fill::Checker,
            other => Fill::Flat(30 * other as u8 + session as u8),
        };
        let picture =
            TestPicture { fill, subsampling: Subsampling::Yuv420, ..TestPicture::new(96, 64) };
        picture.frame()
    };
    let mut encode = |at| encoder.encode(&picture(at), Rotation::None).expect("encodes").jpeg;
    (0..count).map(&mut encode).collect()
}

/// Events of the sessions.
type Said = BTreeMap<u32, Vec<WorkerSessionEvent>>;

/// Returns the events of the sessions, and the reports on the device: its loss, or that it was late.
fn play(measuring: GateMeasurement, count: usize) -> (Said, Vec<String>) {
    play_by(DecoderChain::software(), measuring, count)
}

/// Like `play`, with these decoders.
fn play_by(
    decoders: DecoderChain,
    measuring: GateMeasurement,
    count: usize,
) -> (Said, Vec<String>) {
    let (ours, theirs) = pair().expect("a pair");
    // Threads of the pool may outlast the test.
    let theirs: &'static OwnedFd = Box::leak(Box::new(theirs));
    let line = Arc::new(ControlSocket::new(theirs.as_fd()));
    let mut sessions = SessionPool::new(line, Arc::new(decoders), measuring);
    let mut waiting: BTreeMap<u32, std::vec::IntoIter<Vec<u8>>> = BTreeMap::new();
    for session in 0..SESSIONS {
        let spec =
            SessionSpec { stills: true, ..SessionSpec::new(Codec::Mjpeg, GateConfig::default()) };
        sessions.take(WorkerRequest::OpenSession { session, spec }).expect("opens");
        waiting.insert(session, units(session, count).into_iter());
    }
    let mut sent: BTreeMap<u32, i64> = BTreeMap::new();
    let mut next = |session: u32| {
        let data = waiting.get_mut(&session)?.next();
        let at = sent.entry(session).or_default();
        *at += 1;
        Some(match data {
            Some(data) => {
                let pts = Timestamp::from_millis(40 * *at);
                WorkerRequest::AccessUnit { session, pts, keyframe: true, follows_gap: false, data }
            }
            None if *at == count as i64 + 1 => WorkerRequest::CloseSession { session },
            None => return None,
        })
    };
    for session in 0..SESSIONS {
        sessions.take(next(session).expect("a unit")).expect("taken");
    }
    let (mut said, mut losses, mut open) = (Said::new(), Vec::new(), SESSIONS);
    let mut incoming = ReceiveBuffer::default();
    while open > 0 {
        match incoming.next::<WorkerReply>().expect("a reply") {
            Some(WorkerReply::Session { session, event }) => {
                said.entry(session).or_default().push(event)
            }
            Some(WorkerReply::UnitDone { session }) => match next(session) {
                Some(request) => sessions.take(request).expect("taken"),
                None => open -= 1,
            },
            Some(WorkerReply::GateLost { reason } | WorkerReply::DecoderLost { reason }) => {
                losses.push(reason)
            }
            Some(WorkerReply::GateLate) => losses.push(LATE.to_owned()),
            Some(other) => panic!("{other:?}"),
            None => assert!(incoming.wait(ours.as_fd()).expect("open") > 0, "closed"),
        }
    }
    (said, losses)
}

const COUNT: usize = 24;
const LATE: &str = "late";

/// Returns the events of the sessions on the CPU.
fn expected() -> Said {
    let (expected, losses) = play(GateMeasurement::default(), COUNT);
    assert_eq!((expected.len(), losses.len()), (SESSIONS as usize, 0));
    for (session, events) in &expected {
        let last = events.last();
        assert!(
            matches!(last, Some(WorkerSessionEvent::Closed { frames: 24, .. })),
            "{session}: {last:?}"
        );
    }
    expected
}

#[test]
fn sessions_on_a_device_say_what_they_say_on_the_cpu_whenever_it_is_lost() {
    let expected = expected();
    for batches in [0, 1, 9, usize::MAX] {
        let (measuring, given) = scripted::lost_after(batches);
        let (said, losses) = play(measuring, COUNT);
        assert!(said == expected, "lost after {batches}");
        let frames: usize = given.sizes().iter().sum();
        if batches == usize::MAX {
            assert_eq!((frames, losses.len()), (SESSIONS as usize * COUNT, 0), "{losses:?}");
        } else {
            assert_eq!((given.sizes().len(), losses.len()), (batches + 1, 1), "{losses:?}");
            assert!(losses[0].contains("unplugged"), "{losses:?}");
        }
    }
}

/// No machine has a device of this number, and a program without the backend has no device at all.
#[test]
fn a_device_that_opens_no_more_is_said_to_be_lost_and_costs_no_session_anything() {
    let device =
        GateDevice { backend: GateBackend::Cuda, number: 4000, is_named: true, was_there: true };
    let (said, losses) = play(GateMeasurement::open(Some(&device)).expect("the CPU"), COUNT);
    assert!(said == expected(), "the CPU's events");
    assert_eq!(losses.len(), 1, "once for all sessions: {losses:?}");
    assert!(losses[0].starts_with("cuda lost its device: "), "{losses:?}");
}

#[test]
fn a_decoder_that_opens_no_more_is_said_to_be_lost_once_and_software_decodes() {
    let gone = || BackendError::unavailable("it is unplugged");
    let expected = expected();
    for (codec, told) in [(Codec::Mjpeg, vec![gone().to_string()]), (Codec::H264, Vec::new())] {
        let decoders = DecoderChain::without_device(gone(), vec![codec]);
        let (said, losses) = play_by(decoders, GateMeasurement::default(), COUNT);
        assert!(said == expected, "software's events");
        assert_eq!(losses, told, "once for all sessions, and only where it was to decode");
    }
}

#[test]
fn a_device_that_refuses_a_batch_is_kept_and_costs_no_session_anything() {
    let backend = "scripted";
    let refusals = [
        MeasureError::NoRoom(backend, "in use".to_owned()),
        MeasureError::BeyondDevice { backend, bytes: 9, bytes_max: 8 },
    ];
    let expected = expected();
    for error in refusals {
        let (measuring, given) = scripted::refusing(error.clone());
        let (said, losses) = play(measuring, COUNT);
        assert!(said == expected && losses.is_empty(), "{error}: {losses:?}");
        assert_eq!(given.sizes().iter().sum::<usize>(), SESSIONS as usize * COUNT, "{error}");
    }
}

#[test]
fn a_batch_that_a_device_is_late_with_is_told_and_costs_no_session_anything() {
    let expected = expected();
    let (measuring, given) = scripted::late_once();
    let (said, told) = play(measuring.clone(), COUNT);
    assert!(said == expected, "the CPU's events");
    assert!(!told.is_empty(), "{:?}", given.sizes());
    assert!(told.iter().all(|told| told == LATE), "{told:?}");
    assert_eq!(told.len(), measuring.told().late as usize, "each once");
}

#[test]
fn a_device_that_hangs_costs_no_session_anything() {
    let expected = expected();
    for batches in [0, 1, 9] {
        // The guard is held as long as the sessions last, so the device never answers.
        let (measuring, given, _hold) = scripted::hanging_after(batches);
        let (said, losses) = play(measuring, COUNT);
        assert!(said == expected, "hangs after {batches}");
        // On a slow machine the device may be late before it hangs.
        assert!(given.sizes().len() <= batches + 1, "not asked again: {:?}", given.sizes());
        let losses: Vec<String> = losses.into_iter().filter(|told| told != LATE).collect();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert!(losses[0].contains("not answered"), "{losses:?}");
    }
}

#[test]
fn frames_of_several_sessions_share_a_batch() {
    // There is at most one thread per session, here perhaps only one: frames wait without a thread.
    let (measuring, given) = scripted::lost_after(usize::MAX);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    play(measuring, 40);
    let largest = given.sizes().into_iter().max();
    assert!(largest > Some(1), "{threads} threads: {:?}", given.sizes());
}
