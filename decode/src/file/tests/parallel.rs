//! Several decoders decode one file in parallel, each at its own GOP; the frames equal those of one decoder.

use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

use proptest::prelude::*;

use super::*;

/// Clips with all kinds of adjacent GOPs.
const CLIPS: [(&str, Codec, &[u8]); 5] = [
    ("closed GOPs", Codec::H264, include_bytes!("../../probe/clips/gops.mp4")),
    ("one GOP", Codec::H264, include_bytes!("../../probe/clips/long.mp4")),
    // Pictures presented before their keyframe refer to the previous GOP.
    ("open GOPs", Codec::H264, include_bytes!("open-gop-h264.mp4")),
    ("open GOPs with leading pictures", Codec::H265, include_bytes!("open-gop-h265.mp4")),
    ("ten bits", Codec::H265, include_bytes!("../../probe/clips/gops-10.mp4")),
];

/// Number of open decoders, and the highest number so far.
#[derive(Default)]
struct Open {
    ever: usize,
    now: usize,
    most: usize,
}

type Shared = Arc<(Mutex<Open>, Condvar)>;

/// libav's own single-threaded decoder in the role of a device with many decoders.
struct Engines {
    open: Shared,
    /// Number of open decoders for which a decoder's first packet waits.
    together: usize,
    /// Decoder that is lost, and the packet at which it is.
    lost: Option<(usize, i64)>,
}

impl DecoderFactory for Engines {
    fn open(&self, setup: DecoderSetup<'_>) -> Result<Box<dyn FrameDecoder>, BackendError> {
        let inner = open_software(setup, 1).expect("opens");
        let mut open = self.open.0.lock().expect("no panic");
        let is_lost = |&(engine, _): &(usize, i64)| engine == open.ever;
        let packets = self.lost.filter(is_lost).map_or(i64::MAX, |(_, packet)| packet);
        open.ever += 1;
        open.now += 1;
        open.most = open.most.max(open.now);
        self.open.1.notify_all();
        let beside = Some(Beside { open: Arc::clone(&self.open), waits_for: self.together });
        let (packets_left, is_gone) = (Arc::new(AtomicI64::new(packets)), false);
        let fault = Fault::Packet;
        Ok(Box::new(FlakyEngine { fault, packets_left, inner, is_gone, beside }))
    }
}

/// Place of a decoder among the open ones.
pub(super) struct Beside {
    open: Shared,
    /// Number of open decoders for which the first packet waits.
    waits_for: usize,
}

impl Beside {
    /// Waits, once, until enough decoders are open.
    pub(super) fn wait(&mut self) {
        let waits_for = std::mem::take(&mut self.waits_for);
        let open = self.open.0.lock().expect("no panic");
        let too_few = |open: &mut Open| open.most < waits_for;
        let waited = self.open.1.wait_timeout_while(open, Duration::from_secs(60), too_few);
        assert!(!waited.expect("no panic").1.timed_out(), "fewer than {waits_for} engines");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.open.0.lock().expect("no panic").now -= 1;
    }
}

/// Decodes with the engines on this many threads and counts those open at once; each waits until `together`
/// are open.
fn on_engines(
    (bytes, codec): (&[u8], Codec),
    options: &FileOptions,
    together: usize,
    lost: Option<(usize, i64)>,
) -> (FileReport, Vec<Seen>, usize) {
    let open = Shared::default();
    let engines = Engines { open: Arc::clone(&open), together, lost };
    let decoders = DecoderChain::with_engines(Box::new(engines), vec![codec]);
    let (report, seen) = decoded_by(&decoders, bytes, options);
    assert!(report.decoder.contains("flaky:") || lost.is_some(), "{report:?}");
    let most = open.0.lock().expect("no panic").most;
    (report, seen, most)
}

/// Returns the frames of engines without a loss, for an undamaged clip.
fn on_sound_engines(
    clip: (&[u8], Codec),
    options: &FileOptions,
    together: usize,
) -> (Vec<Seen>, usize) {
    let (report, seen, most) = on_engines(clip, options, together, None);
    assert_eq!((report.fallback, report.damaged_packets, report.truncated), (None, 0, false));
    (seen, most)
}

fn decoded_by(
    decoders: &DecoderChain,
    bytes: &[u8],
    options: &FileOptions,
) -> (FileReport, Vec<Seen>) {
    let input = Cursor::new(bytes.to_vec());
    let demuxer = Demuxer::open(Box::new(input), DemuxLimits::default()).expect("opens");
    collected(decoders, demuxer, options, recorder)
}

fn one_decoder(bytes: &[u8], options: &FileOptions) -> (FileReport, Vec<Seen>) {
    let options = FileOptions { threads: 1, plan: false, ..options.clone() };
    decoded_by(&DecoderChain::software(), bytes, &options)
}

#[test]
fn gops_of_one_file_are_decoded_beside_each_other() {
    for (name, codec, bytes) in CLIPS {
        // Each of four threads opens its decoder at its own GOP before one has decoded any.
        let together = if matches!(name, "closed GOPs" | "ten bits") { 4 } else { 1 };
        let (seen, most) = on_sound_engines((bytes, codec), &every(4), together);
        assert!(seen == one_decoder(bytes, &every(1)).1, "{name}");
        assert!((together..=4).contains(&most), "{name}: {most}");
        println!("{name}: {most} engines at once");
    }
}

#[test]
fn open_gops_are_decoded_beside_each_other_where_they_are_long_enough() {
    let source = "-f lavfi -i testsrc2=size=128x96:rate=25:duration=20 -pix_fmt yuv420p";
    let coding = "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=110:bframes=4";
    let path = clips::rendered("open-gops.mp4", &format!("{source} {coding}:open-gop=1"));
    let bytes = std::fs::read(path).expect("made");
    let (seen, most) = on_sound_engines((&bytes, Codec::H265), &every(4), 4);
    assert!(seen == one_decoder(&bytes, &every(1)).1);
    assert_eq!((seen.len(), most), (500, 4));
}

#[test]
fn an_engine_that_is_lost_while_others_are_at_other_gops_costs_no_frame_and_doubles_none() {
    let (name, codec, bytes) = CLIPS[0];
    let slow = Sampling::Fixed(FrameRate::new(5, 1).expect("positive"));
    for sampling in [Sampling::Every, slow] {
        let options = FileOptions { sampling, plan: false, ..every(4) };
        let (expected, frames) = one_decoder(bytes, &options);
        // Each decoder has eight packets in its first GOP.
        for lost in [(0, 0), (0, 5), (1, 0), (2, 3), (3, 7)] {
            let (report, seen, most) = on_engines((bytes, codec), &options, 4, Some(lost));
            let case = format!("{name}, {sampling:?}, engine and packet {lost:?}");
            assert_eq!(most, 4, "{case}");
            assert!(seen == frames, "{case}: {} of {}", seen.len(), frames.len());
            assert_eq!(report.fallback.as_deref(), Some("unplugged"), "{case}");
            let (decoder, fallback) = (report.decoder.clone(), report.fallback.clone());
            assert_eq!(report, FileReport { decoder, fallback, ..expected.clone() }, "{case}");
        }
    }
}

/// Returns the clip with an edit list that hides pictures at its beginning and end.
fn edited(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = bytes.windows(4).position(|name| name == b"elst").expect("an edit list");
    // ISO 14496-12 8.6.6: after version, flags and count come the length in thousandths of a second and
    // the first time in ticks, of which a picture has 512.
    let (length_ms, first): (u32, u32) = (2000, 1024 + 13 * 512);
    bytes[at + 12..at + 16].copy_from_slice(&length_ms.to_be_bytes());
    bytes[at + 16..at + 20].copy_from_slice(&first.to_be_bytes());
    bytes
}

#[test]
fn hidden_pictures_are_hidden_by_engines_too() {
    let (_, codec, bytes) = CLIPS[0];
    let (whole, edited) = (one_decoder(bytes, &every(1)).1.len(), edited(bytes));
    for options in [every(1), every(4), FileOptions { max_frames: 20, ..every(3) }] {
        let (expected, frames) = one_decoder(&edited, &options);
        assert!(expected.frames < whole as u64 - 13, "some are hidden at both ends: {expected:?}");
        let (seen, _) = on_sound_engines((&edited, codec), &options, 1);
        assert!(seen == frames, "{options:?}: {} of {}", seen.len(), frames.len());
    }
}

#[test]
fn a_damaged_gop_is_that_of_one_decoder() {
    let (_, codec, bytes) = CLIPS[0];
    let mut noticed = 0;
    // Positions across the coded pictures, which precede the index.
    for at in (1000..18_000).step_by(1700) {
        let mut damaged = bytes.to_vec();
        damaged[at..at + 3].iter_mut().for_each(|byte| *byte ^= 0x55);
        let (expected, frames) = one_decoder(&damaged, &every(1));
        for threads in [1, 4] {
            let (report, seen, _) = on_engines((&damaged, codec), &every(threads), 1, None);
            assert!(seen == frames, "byte {at} on {threads}");
            assert_eq!(report.damaged_packets, expected.damaged_packets, "byte {at} on {threads}");
            assert_eq!((report.frames, report.fallback), (expected.frames, None));
        }
        noticed += usize::from(expected.damaged_packets > 0);
    }
    assert!(noticed >= 5, "{noticed} of 10");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn as_many_engines_as_there_are_give_the_frames_of_one(
        clip in 0..CLIPS.len(),
        threads in 1..9_usize,
        rate in prop::option::of(1..30_u32),
        max_frames in prop_oneof![Just(u64::MAX), 1..120_u64],
    ) {
        let (name, codec, bytes) = CLIPS[clip];
        let rate = rate.and_then(|rate| FrameRate::new(rate, 1));
        let sampling = rate.map_or(Sampling::Every, Sampling::Fixed);
        let options = FileOptions { sampling, max_frames, ..every(threads) };
        let (seen, _) = on_sound_engines((bytes, codec), &options, 1);
        prop_assert!(seen == one_decoder(bytes, &options).1, "{}: {:?}", name, options);
    }
}
