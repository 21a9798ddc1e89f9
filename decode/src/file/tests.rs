//! A file whose preferred decoder is lost gives the frames of the reference, whenever the loss happens.

mod parallel;

use std::{
    io::Cursor,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use media::{Codec, DeviceMemoryLost, Frame, FrameRate, Timestamp};

use crate::{
    BackendError, DecodeError, DecoderChain, DemuxLimits, Demuxer, FileOptions, FileReport,
    FrameCollector, FrameSink, LiveDecoder, Sampling, SegmentInfo, SinkStop, decode_file,
    decoder::{DecoderFactory, FrameDecoder, open_software},
    ffi::{AvError, AvFrame, DecoderSetup, Packet},
};

/// Twelve closed GOPs, and one GOP that is cut into pieces for early output.
const CLIPS: [(&str, &[u8]); 2] = [
    ("GOPs", include_bytes!("../probe/clips/gops.mp4")),
    ("pieces", include_bytes!("../probe/clips/long.mp4")),
];

/// Fault of the preferred decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The device is lost when a packet is sent.
    Packet,
    /// The device is lost together with its pictures.
    Picture,
    /// The device does not open a second decoder.
    Open,
    /// The device outputs damaged pictures and reports the damage.
    Damage,
}

/// Device that decodes like the reference until this many packets were sent to all its decoders.
struct Flaky {
    fault: Fault,
    packets_left: Arc<AtomicI64>,
}

struct FlakyEngine {
    fault: Fault,
    packets_left: Arc<AtomicI64>,
    inner: Box<dyn FrameDecoder>,
    is_gone: bool,
    /// Place among decoders that are counted.
    beside: Option<parallel::Beside>,
}

impl DecoderFactory for Flaky {
    fn open(&self, setup: DecoderSetup<'_>) -> Result<Box<dyn FrameDecoder>, BackendError> {
        if self.fault == Fault::Open && self.packets_left.load(Ordering::Relaxed) <= 0 {
            return Err(BackendError::unavailable("open failed: unplugged"));
        }
        let inner = open_software(setup, 1).expect("opens");
        let packets_left = Arc::clone(&self.packets_left);
        let (fault, is_gone, beside) = (self.fault, false, None);
        Ok(Box::new(FlakyEngine { fault, packets_left, inner, is_gone, beside }))
    }
}

impl FrameDecoder for FlakyEngine {
    fn send(&mut self, packet: Option<&Packet>) -> Result<(), AvError> {
        if packet.is_none() {
            return self.inner.send(packet);
        }
        if let Some(beside) = &mut self.beside {
            beside.wait();
        }
        if self.packets_left.fetch_sub(1, Ordering::Relaxed) <= 0 && self.fault != Fault::Open {
            self.is_gone = true;
            if self.fault == Fault::Packet {
                return Err(AvError::IO);
            }
        }
        self.inner.send(packet)
    }

    fn receive(&mut self) -> Result<Option<AvFrame>, AvError> {
        if self.is_gone && self.fault == Fault::Picture {
            Err(AvError::IO)
        } else {
            self.inner.receive()
        }
    }

    fn reset(&mut self) {
        self.inner.reset();
    }

    fn has_reported_damage(&self) -> bool {
        self.inner.has_reported_damage() || (self.is_gone && self.fault == Fault::Damage)
    }

    fn too_large(&self) -> Option<DecodeError> {
        self.inner.too_large()
    }

    fn lost(&self) -> Option<String> {
        (self.is_gone && self.fault != Fault::Damage).then(|| "unplugged".to_owned())
    }

    fn name(&self) -> String {
        self.inner.name().replace("software", "flaky")
    }
}

/// Index, source index, time and luma of a frame.
type Seen = (u64, u64, Timestamp, Vec<u8>);

fn recorder() -> impl FrameSink<Output = Vec<Seen>> {
    FrameCollector::new(|index, frame| {
        let picture = frame.pixels.host().expect("in host memory");
        let luma = picture.luma();
        let rows = (0..luma.extent().height).map(|y| luma.row(y)).collect::<Vec<_>>().concat();
        Ok((index, frame.source_index, frame.pts, rows))
    })
}

fn open(bytes: &'static [u8]) -> Demuxer {
    let demuxer =
        Demuxer::open(Box::new(Cursor::new(bytes)), DemuxLimits::default()).expect("opens");
    demuxer.in_hurry(0)
}

fn every(threads: usize) -> FileOptions {
    FileOptions { sampling: Sampling::Every, max_frames: u64::MAX, threads, plan: true }
}

fn reference(bytes: &'static [u8], options: &FileOptions) -> Vec<Seen> {
    hurried_by(&DecoderChain::software(), bytes, options).1
}

fn flaky(fault: Fault, packets: i64) -> DecoderChain {
    let flaky = Flaky { fault, packets_left: Arc::new(AtomicI64::new(packets)) };
    DecoderChain::with_engines(Box::new(flaky), vec![Codec::H264])
}

fn hurried_by(
    decoders: &DecoderChain,
    bytes: &'static [u8],
    options: &FileOptions,
) -> (FileReport, Vec<Seen>) {
    collected(decoders, open(bytes), options, recorder)
}

/// Decodes a file, and collects what its sinks have seen.
fn collected<S: FrameSink<Output = Vec<Seen>>>(
    decoders: &DecoderChain,
    demuxer: Demuxer,
    options: &FileOptions,
    make_sink: impl Fn() -> S + Sync,
) -> (FileReport, Vec<Seen>) {
    let mut seen = Vec::new();
    let report = decode_file(decoders, demuxer, options, make_sink, |frames| {
        seen.extend(frames);
        ControlFlow::Continue(())
    });
    (report.expect("decodes"), seen)
}

#[test]
fn a_decoder_that_is_lost_costs_no_frame_and_doubles_none() {
    let slow = Sampling::Fixed(FrameRate::new(5, 1).expect("positive"));
    for (name, bytes) in CLIPS {
        for (threads, sampling) in
            [(1, Sampling::Every), (2, Sampling::Every), (4, Sampling::Every), (2, slow)]
        {
            let options = FileOptions { sampling, ..every(threads) };
            let expected = reference(bytes, &options);
            for fault in [Fault::Packet, Fault::Picture, Fault::Open, Fault::Damage] {
                for packets in [0, 1, 9, 64, 65, 130, i64::MAX] {
                    let case = format!("{name}, {fault:?} after {packets}, {options:?}");
                    let (report, seen) = hurried_by(&flaky(fault, packets), bytes, &options);
                    assert!(seen == expected, "{case}: {} of {}", seen.len(), expected.len());
                    assert_eq!(report.damaged_packets, 0, "{case}");
                    check_report(&case, fault, packets, &report);
                }
            }
        }
    }
}

/// Sink that finds, after this many frames of all threads, that the device lost its pictures.
struct Loser<S> {
    seen: S,
    frames_left: Arc<AtomicI64>,
    /// True if the loss is found only at the end of a segment.
    is_late: bool,
    is_lost: bool,
}

fn lost() -> DeviceMemoryLost {
    DeviceMemoryLost { reason: "unplugged".to_owned() }
}

impl<S: FrameSink> FrameSink for Loser<S> {
    type Output = S::Output;

    fn begin(&mut self, segment: SegmentInfo) {
        self.is_lost = false;
        self.seen.begin(segment);
    }

    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<SinkStop> {
        self.is_lost |= self.frames_left.fetch_sub(1, Ordering::Relaxed) == 0;
        if self.is_lost && !self.is_late {
            return ControlFlow::Break(SinkStop::PixelsLost(lost()));
        }
        self.seen.frame(index, frame)
    }

    fn end(&mut self) -> Result<S::Output, DeviceMemoryLost> {
        if self.is_lost { Err(lost()) } else { self.seen.end() }
    }
}

#[test]
fn pixels_that_are_lost_with_their_device_cost_no_frame_and_double_none() {
    let slow = Sampling::Fixed(FrameRate::new(5, 1).expect("positive"));
    for (name, bytes) in CLIPS {
        for (threads, sampling) in [(1, Sampling::Every), (3, Sampling::Every), (2, slow)] {
            let options = FileOptions { sampling, ..every(threads) };
            let expected = reference(bytes, &options);
            for (frames, is_late) in
                [0, 1, 5, 12].into_iter().flat_map(|frames| [(frames, false), (frames, true)])
            {
                let case = format!("{name}, after {frames}, late: {is_late}, {options:?}");
                let decoders = flaky(Fault::Packet, i64::MAX);
                let frames_left = Arc::new(AtomicI64::new(frames));
                let make_sink = || Loser {
                    seen: recorder(),
                    frames_left: Arc::clone(&frames_left),
                    is_late,
                    is_lost: false,
                };
                let (report, seen) = collected(&decoders, open(bytes), &options, make_sink);
                assert!(seen == expected, "{case}: {} of {}", seen.len(), expected.len());
                let reason = report.fallback.unwrap_or_default();
                assert!(reason.ends_with("from the device: unplugged"), "{case}: {reason}");
                assert!(report.decoder.contains("software:h264"), "{case}: {}", report.decoder);
                assert_eq!(report.damaged_packets, 0, "{case}");
            }
        }
    }
}

/// Checks that the report names the decoders used and the reason of the fallback.
fn check_report(case: &str, fault: Fault, packets: i64, report: &FileReport) {
    let (flaky, software) = ("flaky:h264", "software:h264");
    // In file order: with two threads, the one with the first segment may meet the loss.
    let both = [format!("{flaky}+{software}"), format!("{software}+{flaky}")];
    let known = [flaky, software, &both[0], &both[1]];
    assert!(known.contains(&report.decoder.as_str()), "{case}: {report:?}");
    if packets == 0 && fault != Fault::Damage {
        assert_eq!(report.decoder, software, "{case}");
        assert!(report.fallback.is_some(), "{case}");
    }
    match &report.fallback {
        Some(reason) => {
            assert_ne!(packets, i64::MAX, "{case}: {reason}");
            assert!(reason.contains("unplugged"), "{case}: {reason}");
            assert!(report.decoder != flaky || fault == Fault::Open, "{case}: {report:?}");
        }
        None => assert!(report.decoder == flaky || fault == Fault::Damage, "{case}: {report:?}"),
    }
}

#[test]
fn a_device_that_opens_no_more_is_told_and_costs_no_frame() {
    let gone = || BackendError::unavailable("it is unplugged");
    for (name, bytes) in CLIPS {
        for (codec, told) in [(Codec::H264, Some(gone())), (Codec::Vp8, None)] {
            let decoders = DecoderChain::without_device(gone(), vec![codec]);
            let (report, seen) = hurried_by(&decoders, bytes, &every(2));
            assert!(seen == reference(bytes, &every(2)), "{name}");
            assert_eq!(report.decoder, "software:h264", "{name}");
            assert_eq!(decoders.gone(Codec::H264), told.as_ref(), "{name}");
            assert_eq!(report.fallback, told.map(|error| error.to_string()), "{name}");
            let live = LiveDecoder::open(&decoders, Codec::H264, DemuxLimits::default());
            assert_eq!(live.expect("opens").name(), "software:h264", "{name}");
        }
    }
}

#[test]
fn a_source_that_comes_once_is_decoded_by_the_reference() {
    let (_, bytes) = CLIPS[0];
    let decoders = flaky(Fault::Packet, 9);
    let demuxer = Demuxer::open_live(Box::new(Cursor::new(bytes)), DemuxLimits::default());
    let demuxer = demuxer.expect("opens");
    let (report, _) = collected(&decoders, demuxer, &every(2), recorder);
    assert_eq!((report.decoder.as_str(), report.frames), ("software:h264", 96));
    assert_eq!(report.fallback, None);
}
