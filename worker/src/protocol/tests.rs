//! Tests that messages of every kind survive encoding, and that no bytes make the decoder panic.
//!
//! Long because it has one message of each kind.

use std::{fmt, io};

use decode::{
    BackendError, DecodeBackend, DecodeError, ExcerptContainer, ExcerptStart, FileReport,
    HwDeviceSpec, Sampling, StreamInfo,
};
use gate::{ActivityState, GateConfig, GateState};
use media::{
    Activity, CellBox, DeviceMemoryLost, Dimensions, ErrorKind, FrameRate, PixelLayout, Rotation,
    SampleFormat, SampleRange, Score, Signal, Subsampling, Timebase, WallTime, Zone, Zones,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde::de::DeserializeOwned;

use super::*;
use crate::{
    ChunkBoundary, ChunkImageOptions, ClipSpec, Crop, EmbeddingInput, FrameImages, FrameRecord,
    FrameView, GateBackend, GateBackendReport, NoveltyInput, NoveltySpec, Resume, StageTimings,
    gate_device::GateDevice,
    record::RECORDS_MAX,
    sandbox::RequestedDevice,
    wire::{HEADER_BYTES, TOLD_BYTES_MAX, VERSION, WireError, decode, encode, payload_len},
};

/// Text as long as one hidden character.
const PLAIN: &str = "~~~";
const HIDDEN: &str = "\u{202e}";

fn text() -> String {
    format!("text {PLAIN}")
}

fn score(millionths: u32) -> Score {
    Score::from_millionths(millionths)
}

fn signal(frame_index: u64) -> Signal {
    let region = CellBox { left: 1, top: 2, right: 64, bottom: 40 };
    Signal {
        source_frame_index: Some(u64::MAX),
        perceptual_hash: 0x0123_4567_89ab_cdef,
        luma_mean: score(500_000),
        scene_score: Some(Score::ONE),
        activity: Some(Activity { score: score(1), region, zones: 3 }),
        ..Signal::plain(frame_index, i64::MIN)
    }
}

fn picture() -> EncodedImage {
    EncodedImage { extent: Dimensions { width: 4, height: u32::MAX }, jpeg: vec![0xff; 1000] }
}

fn novelty(cells: usize, side: u32) -> NoveltyInput {
    let picture = EmbeddingInput { side, rgb: vec![7; 3 * (side * side) as usize] };
    NoveltyInput { cells: vec![9; cells], picture }
}

const CELLS: usize = NoveltyInput::COLUMNS * NoveltyInput::ROWS;

/// Three records: with every picture, with the still as its view, and with nothing.
fn records() -> Vec<FrameRecord> {
    let whole = FrameImages {
        still: Some(picture()),
        view: Some(FrameView::Own(picture())),
        clip: Some(picture()),
        novelty: Some(novelty(CELLS, NoveltySpec::SIDE_MIN)),
    };
    let shared = FrameImages { view: Some(FrameView::Still), clip: None, ..whole.clone() };
    let record = |at, pts, pictures| FrameRecord { signal: signal(at), pts, pictures };
    vec![
        record(7, Some(Timestamp::new(-1, Timebase::RTP_VIDEO)), whole),
        record(8, None, shared),
        FrameRecord {
            signal: Signal::plain(9, 0),
            pts: None,
            pictures: FrameImages { novelty: None, ..FrameImages::default() },
        },
    ]
}

fn zone(name_bytes: usize, corners: usize) -> Zone {
    Zone { name: "a".repeat(name_bytes), polygon: vec![(Score::ZERO, Score::ONE); corners] }
}

fn zones(count: usize) -> Zones {
    Zones { zones: vec![zone(Zone::NAME_BYTES_MAX, Zone::CORNERS_MAX); count], only: true }
}

fn views(per_chunk: u8) -> ChunkImageOptions {
    ChunkImageOptions {
        chunks: ChunkBoundary::Span { ms: 1 },
        per_chunk,
        max_edge: Some(64),
        crop: Crop::new(Score::ZERO, score(5), Score::ONE, score(7)),
        novelty: Some(NoveltySpec { side: 32 }),
    }
}

fn options(sampling: Sampling) -> JobOptions {
    let gate = GateState {
        activity: ActivityState { level: Some(7), loud_ms: -3, cut_ms: Some(4) },
        steps: Some((score(8), -5)),
        artifacts_ms: [Some(6), None, Some(-7)],
    };
    let resume = Resume { last: signal(1), gate, begins_at_ms: 9, segment: Some(2) };
    JobOptions {
        sampling,
        max_frames: 9,
        stills: true,
        views: Some(views(1)),
        gate: GateConfig::default(),
        zones: zones(1),
        threads: 2,
        resume: Some(resume),
    }
}

/// Specification with every option, each number set to `number`.
fn spec(number: u32) -> SessionSpec {
    let clip = ClipSpec {
        target_fps: number,
        length_ms: number,
        delay_ms: number,
        pictures: number,
        max_edge: number,
    };
    SessionSpec {
        zones: zones(1),
        stills: true,
        crop: views(1).crop,
        view_edge: Some(number),
        clip: Some(clip),
        novelty: Some(NoveltySpec { side: number }),
        resume: Some((signal(1), GateState::default())),
        ..SessionSpec::new(Codec::Av1, GateConfig::default())
    }
}

fn requests() -> Vec<WorkerRequest> {
    let session = 3;
    let spec = spec(0).within_bounds();
    let device = HwDeviceSpec {
        backend: DecodeBackend::Vaapi,
        device: Some(text()),
        capabilities: Some(text()),
    };
    let gate =
        GateDevice { backend: GateBackend::Cuda, number: 1, is_named: true, was_there: false };
    let confinement = SandboxLimits {
        memory_bytes: u64::MAX,
        cpu_seconds: Some(5),
        parent: 1,
        device: Some(RequestedDevice {
            spec: device,
            codecs: Codec::ALL.to_vec(),
            was_there: true,
        }),
        program: vec![Codec::H265],
        gate: Some(gate),
        libraries: vec![text(), text()],
    };
    let credentials = RtspCredentials { user: text(), password: text() };
    let sources = [
        InputSource::File { len: 5 },
        InputSource::Remote { url: text(), playlists: true },
        InputSource::Rtsp { url: text(), credentials: Some(credentials) },
    ];
    let samplings = [Sampling::Every, Sampling::Every, Sampling::Fixed(FrameRate::SLOWEST)];
    let jobs = sources.into_iter().zip(samplings);
    let jobs =
        jobs.map(|(source, sampling)| WorkerRequest::Job { source, options: options(sampling) });
    let others = [
        WorkerRequest::Confine(confinement),
        WorkerRequest::Resource { url: text(), size: Some(1), seekable: true },
        WorkerRequest::OpenSession { session, spec },
        WorkerRequest::AccessUnit {
            session,
            pts: Timestamp::from_millis(-5),
            keyframe: true,
            follows_gap: false,
            data: vec![1; 1000],
        },
        WorkerRequest::CloseSession { session },
        WorkerRequest::Program,
        WorkerRequest::Shrink { jpeg: vec![2; 1000], edge_max: 64 },
        WorkerRequest::Excerpt { len: 1, from_ms: -2, to_ms: 3 },
        WorkerRequest::Probe,
        WorkerRequest::Look,
    ];
    jobs.chain(others).collect()
}

fn faults() -> Vec<JobFault> {
    let [message, detail] = [(); 2].map(|()| text());
    vec![
        JobFault::Stopped,
        JobFault::Over,
        JobFault::UnpredictedFrame(5),
        JobFault::PixelsLost(DeviceMemoryLost { reason: text() }),
        JobFault::Other { kind: ErrorKind::DataLoss, message: text() },
        JobFault::Source { is_refused: true, message },
        JobFault::Gate(BackendError::unavailable(text())),
        JobFault::Backend(BackendError::unsupported(text())),
        JobFault::Decode(DecodeError::UnsupportedContainer(Some(text()))),
        JobFault::Decode(DecodeError::TooManyBytes { width: 1, height: 2, bytes: 3, max: 4 }),
        JobFault::Decode(DecodeError::WrongCodec { expected: Codec::H264, got: Codec::Vp8 }),
        JobFault::from(DecodeError::Libav { call: text(), detail }),
    ]
}

fn report(missing: usize) -> SandboxReport {
    let missing = vec![text(); missing];
    SandboxReport { landlock_abi: 7, seccomp: true, rlimits: false, missing, refused: 0 }
}

fn replies() -> Vec<WorkerReply> {
    let session = 3;
    let layout = PixelLayout {
        subsampling: Subsampling::Yuv420,
        sample: SampleFormat::U16 { shift: 8 },
        interleaved_chroma: true,
        range: SampleRange::Full,
    };
    let stream = StreamInfo {
        codec: Codec::Mjpeg,
        container: text(),
        extent: Dimensions { width: 1, height: 2 },
        rotation: Rotation::Quarter,
        layout: Some(layout),
        source_rate: Some(FrameRate::ONE),
        duration: Some(Timestamp::from_millis(i64::MAX)),
        timebase: Timebase::MILLIS,
        pixel_format: text(),
        declared_frames: Some(u64::MAX),
        wall_start: Some(WallTime { epoch_ms: -1 }),
        is_endless: true,
    };
    let done = FileReport {
        decoder: text(),
        fallback: Some(text()),
        frames: 1,
        source_frames: 2,
        source_rate: Some(FrameRate::FASTEST),
        truncated: true,
        more_frames: false,
        damaged_packets: 3,
        first_extent: Some(Dimensions { width: 1, height: 2 }),
    };
    let [decoder, reason] = [(); 2].map(|()| Some(text()));
    let codecs = vec![CodecProbeResult { codec: Codec::Vp9, bits: 10, decoder, reason }];
    let start = ExcerptStart { container: ExcerptContainer::Matroska, starts_at_ms: -7 };
    let attempts = [None, Some(-13)].map(|errno| EscapeAttempt { what: text(), errno });
    let measured = GateBackendReport { measurer: text(), lost: Some(text()), late: 1 };
    let jobs = [
        JobEvent::Opened(stream),
        JobEvent::Progress { frames: 1, pts_ms: -1 },
        JobEvent::Segment { next: 5 },
        JobEvent::Frames(records()),
        JobEvent::Measured(measured),
        JobEvent::Spent(StageTimings { decode_us: 1, gate_us: u64::MAX }),
        JobEvent::Done(done),
    ];
    let events = [
        WorkerSessionEvent::Frames(records()),
        WorkerSessionEvent::Damaged { detail: text() },
        WorkerSessionEvent::Closed { frames: 9, decoder: text() },
        WorkerSessionEvent::Failed(JobFault::Stopped),
    ];
    let others = [
        WorkerReply::Confined(report(2)),
        WorkerReply::Open { url: text(), from: 1 },
        WorkerReply::Program { codec: Codec::Mpeg4 },
        WorkerReply::GateLost { reason: text() },
        WorkerReply::GateLate,
        WorkerReply::DecoderLost { reason: text() },
        WorkerReply::UnitDone { session },
        WorkerReply::Shrunk(picture()),
        WorkerReply::Excerpt(ExcerptEvent::Begins(start)),
        WorkerReply::Excerpt(ExcerptEvent::Bytes(vec![3; 1000])),
        WorkerReply::Excerpt(ExcerptEvent::Ended),
        WorkerReply::Probed(attempts.into()),
        WorkerReply::Capabilities(Capabilities { codecs, measurer: text() }),
    ];
    let events = events.map(|event| WorkerReply::Session { session, event });
    let about = jobs.map(WorkerReply::Job).into_iter().chain(events);
    about.chain(faults().into_iter().map(WorkerReply::Failed)).chain(others).collect()
}

fn payload(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).expect("below the bound");
    assert_eq!(
        payload_len(*bytes.first_chunk().expect("a header")),
        Ok(bytes.len() - HEADER_BYTES)
    );
    bytes.split_off(HEADER_BYTES)
}

/// Counts its writes, as the cost of a message.
struct Writes(usize);

impl io::Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += 1;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn survives<T: Message + PartialEq + fmt::Debug>(message: &T) {
    let mut payload = payload(message);
    assert_eq!(decode::<T>(&payload).as_ref(), Ok(message));
    for cut in (0..payload.len().min(1000)).chain([payload.len() - 1]) {
        assert!(decode::<T>(&payload[..cut]).is_err(), "{message:?} cut at {cut}");
    }
    payload.push(0);
    assert_eq!(decode::<T>(&payload), Err(WireError::Trailing(1)), "{message:?}");
    let writes = postcard::to_io(message, Writes(0)).expect("written").0;
    assert!(writes < 1000, "a run of bytes that goes one by one: {message:?}");
}

#[test]
fn messages_survive_the_wire() {
    requests().iter().for_each(survives);
    replies().iter().for_each(survives);
}

/// Checks that a value within its bounds is read, and one beyond is not.
fn bounded<T: DeserializeOwned>(name: &str, within: impl Serialize, beyond: impl Serialize) {
    let written = [postcard::to_stdvec(&within), postcard::to_stdvec(&beyond)];
    let read = written.map(|raw| postcard::from_bytes::<T>(&raw.expect("written")).is_ok());
    assert_eq!(read, [true, false], "{name}");
}

#[test]
fn what_is_read_is_within_its_bounds() {
    let one = Score::SCALE;
    let sample = |shift| SampleFormat::U16 { shift };
    let session = |number| spec(number).within_bounds();
    let frames = |count| JobEvent::Frames(vec![records().remove(2); count]);
    bounded::<Score>("score", one, one + 1);
    bounded::<Dimensions>("width", (1_u32, 1_u32), (0_u32, 1_u32));
    bounded::<Dimensions>("height", (u32::MAX, 1_u32), (1_u32, 0_u32));
    bounded::<Timebase>("numerator", (1_u32, 9_u32), (0_u32, 9_u32));
    bounded::<Timebase>("denominator", (9_u32, 1_u32), (9_u32, 0_u32));
    bounded::<FrameRate>("reduced rate", (2_u32, 1_u32), (4_u32, 2_u32));
    bounded::<FrameRate>("rate", (4000_u32, 1_u32), (4001_u32, 1_u32));
    bounded::<CellBox>("column", (0, 0, 64_u8, 0_u8), (0, 0, 65_u8, 0_u8));
    bounded::<CellBox>("row", (0, 0, 0, 40_u8), (0, 0, 0, 41_u8));
    bounded::<SampleFormat>("shift", sample(8), sample(9));
    bounded::<Crop>("crop", (0_u32, 0_u32, one, one), (1_u32, 0_u32, one, one));
    bounded::<Crop>("empty crop", (0_u32, 0_u32, 1_u32, 1_u32), [0_u32; 4]);
    bounded::<Zones>("zones", zones(16), zones(17));
    bounded::<Zone>("name", zone(64, 3), zone(65, 3));
    bounded::<Zone>("few corners", zone(0, 3), zone(0, 2));
    bounded::<Zone>("corners", zone(0, 32), zone(0, 33));
    bounded::<SessionSpec>("small session", session(0), spec(0));
    bounded::<SessionSpec>("session", session(u32::MAX), spec(u32::MAX));
    bounded::<NoveltyInput>("cells", novelty(CELLS, 32), novelty(CELLS + 1, 32));
    bounded::<NoveltyInput>("side", novelty(CELLS, 512), novelty(CELLS, 513));
    bounded::<JobEvent>("records", frames(RECORDS_MAX), frames(RECORDS_MAX + 1));
    bounded::<SandboxReport>("list", report(LIST_MAX), report(LIST_MAX + 1));
}

#[test]
fn no_text_of_a_worker_hides_anything() {
    let count = |payload: &[u8], text: &str| {
        payload.windows(text.len()).filter(|found| *found == text.as_bytes()).count()
    };
    for reply in replies() {
        let mut said = payload(&reply);
        for at in 0..said.len() {
            if said[at..].starts_with(PLAIN.as_bytes()) {
                said[at..at + PLAIN.len()].copy_from_slice(HIDDEN.as_bytes());
            }
        }
        let told = payload(&decode::<WorkerReply>(&said).expect("a message"));
        let expected = (0, count(&said, HIDDEN));
        assert_eq!((count(&told, HIDDEN), count(&told, "\\u{202e}")), expected, "{reply:?}");
    }
}

#[test]
fn text_of_a_worker_is_cut_and_a_servers_is_whole() {
    let long = "\u{e9}".repeat(TOLD_BYTES_MAX);
    let told = decode(&payload(&WorkerReply::GateLost { reason: long.clone() }));
    assert_eq!(told, Ok(WorkerReply::GateLost { reason: long[..TOLD_BYTES_MAX].to_owned() }));
    let hidden = HIDDEN.repeat(TOLD_BYTES_MAX);
    let Ok(WorkerReply::GateLost { reason }) =
        decode(&payload(&WorkerReply::GateLost { reason: hidden }))
    else {
        panic!("another message")
    };
    assert_eq!(reason.len(), TOLD_BYTES_MAX, "cut once more where escapes made it longer");
    let asked = WorkerRequest::Resource { url: long + HIDDEN, size: None, seekable: false };
    assert_eq!(decode(&payload(&asked)), Ok(asked));
}

#[test]
fn the_call_of_libav_that_failed_arrives() {
    let detail = "cannot allocate memory".to_owned();
    let fault = JobFault::from(DecodeError::Libav { call: "avcodec_open2".to_owned(), detail });
    let Ok(WorkerReply::Failed(arrived)) = decode(&payload(&WorkerReply::Failed(fault))) else {
        panic!("no fault")
    };
    assert_eq!(arrived.to_string(), "avcodec_open2 failed: cannot allocate memory");
    assert_eq!(arrived.kind(), ErrorKind::InvalidInput);
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(mut bytes in vec(any::<u8>(), 1..400)) {
        bytes[0] = VERSION;
        crate::fuzz::message(&bytes);
    }

    #[test]
    fn changed_bytes_are_a_message_or_an_error(of: Index, changes in vec((any::<Index>(), 1u8..), 1..4)) {
        let (requests, replies) = (requests(), replies());
        let messages: Vec<_> =
            requests.iter().map(payload).chain(replies.iter().map(payload)).collect();
        let mut bytes = of.get(&messages).clone();
        for (at, flip) in changes {
            // Most of a long message is a picture, so only its beginning is damaged.
            let at = at.index(bytes.len().min(200));
            bytes[at] ^= flip;
        }
        crate::fuzz::message(&bytes);
    }
}

#[test]
fn a_length_beyond_the_bound_is_refused_before_anything_is_read() {
    assert_eq!(payload_len([0, 0, 0, 4]), Ok(64 << 20));
    assert_eq!(payload_len([1, 0, 0, 4]), Err(WireError::TooLong((64 << 20) + 1)));
    assert_eq!(payload_len([0xff; 4]), Err(WireError::TooLong(u32::MAX)));
}

#[test]
fn another_version_is_named() {
    assert_eq!(decode::<WorkerRequest>(&[9, 6]), Err(WireError::Version(9)));
}
