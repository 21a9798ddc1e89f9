//! One file keeps several engines busy, each at a GOP of its own: the frames stay those of one decoder.

use std::{
    sync::{Condvar, Mutex},
    time::Duration,
};

use proptest::prelude::*;

use super::*;

/// Every way in which GOPs follow each other.
const CLIPS: [(&str, Codec, &[u8]); 4] = [
    ("closed GOPs", Codec::H264, include_bytes!("../../probe/clips/gops.mp4")),
    ("one GOP", Codec::H264, include_bytes!("../../probe/clips/long.mp4")),
    // Pictures shown before their keyframe refer to the GOP before.
    ("open GOPs", Codec::H264, include_bytes!("open-gop-h264.mp4")),
    ("open GOPs with leading pictures", Codec::H265, include_bytes!("open-gop-h265.mp4")),
];

/// Engines that are open, and the most that ever were.
#[derive(Default)]
struct Open {
    now: usize,
    most: usize,
}

type Shared = Arc<(Mutex<Open>, Condvar)>;

/// libav's own decoder on one thread as an engine of a device that has many.
struct Engines {
    open: Shared,
    /// The first packet of an engine waits for so many to be open.
    together: usize,
}

struct Counted {
    inner: Box<dyn Engine>,
    open: Shared,
    waits_for: usize,
}

impl OpenEngine for Engines {
    fn open(
        &self,
        codec: Codec,
        parameters: Option<&Parameters>,
        on_damage: OnDamage,
        limits: Limits,
    ) -> Result<Box<dyn Engine>, BackendError> {
        let inner = open_software(codec, parameters, 1, on_damage, limits).expect("opens");
        let mut open = self.open.0.lock().expect("no panic");
        open.now += 1;
        open.most = open.most.max(open.now);
        self.open.1.notify_all();
        Ok(Box::new(Counted { inner, open: Arc::clone(&self.open), waits_for: self.together }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.0.lock().expect("no panic").now -= 1;
    }
}

impl Engine for Counted {
    fn send(&mut self, packet: &Packet) -> Result<(), AvError> {
        let waits_for = std::mem::take(&mut self.waits_for);
        let open = self.open.0.lock().expect("no panic");
        let too_few = |open: &mut Open| open.most < waits_for;
        let waited = self.open.1.wait_timeout_while(open, Duration::from_secs(60), too_few);
        assert!(!waited.expect("no panic").1.timed_out(), "fewer than {waits_for} engines");
        self.inner.send(packet)
    }

    fn send_end(&mut self) -> Result<(), AvError> {
        self.inner.send_end()
    }

    fn receive(&mut self) -> Result<Output, AvError> {
        self.inner.receive()
    }

    fn reset(&mut self) {
        self.inner.reset();
    }

    fn on_damage(&self) -> OnDamage {
        self.inner.on_damage()
    }

    fn complained(&self) -> bool {
        self.inner.complained()
    }

    fn too_large(&self) -> Option<DecodeError> {
        self.inner.too_large()
    }

    fn lost(&self) -> Option<String> {
        None
    }

    fn name(&self) -> String {
        self.inner.name().replace("software", "engine")
    }
}

/// What engines on so many threads give, and how many of them were open at once; each waits for so
/// many `together`.
fn on_engines(
    (bytes, codec): (&'static [u8], Codec),
    options: &FileOptions,
    together: usize,
) -> (Vec<Seen>, usize) {
    let open = Shared::default();
    let engines = Engines { open: Arc::clone(&open), together };
    let decoders = Decoders::with_engines(Box::new(engines), vec![codec]);
    let demuxer = Demuxer::open(Box::new(Cursor::new(bytes)), Limits::default()).expect("opens");
    let mut seen = Vec::new();
    let report = decode_file_by(&decoders, demuxer, options, Recorder::default, |frames| {
        seen.extend(frames);
        ControlFlow::Continue(())
    })
    .expect("decodes");
    assert!(report.decoder.starts_with("engine:"), "{report:?}");
    assert_eq!((report.fallback, report.damaged_packets, report.truncated), (None, 0, false));
    let most = open.0.lock().expect("no panic").most;
    (seen, most)
}

fn one_decoder(bytes: &'static [u8], options: &FileOptions) -> Vec<Seen> {
    let demuxer = Demuxer::open(Box::new(Cursor::new(bytes)), Limits::default()).expect("opens");
    let options = FileOptions { threads: 1, plan: false, ..options.clone() };
    let mut seen = Vec::new();
    decode_file(demuxer, &options, Recorder::default, |frames| {
        seen.extend(frames);
        ControlFlow::Continue(())
    })
    .expect("decodes");
    seen
}

#[test]
fn gops_of_one_file_are_decoded_beside_each_other() {
    for (name, codec, bytes) in CLIPS {
        // Each of four threads has an engine at a GOP of its own, before one has decoded any.
        let together = if name == "closed GOPs" { 4 } else { 1 };
        let (seen, most) = on_engines((bytes, codec), &every(4), together);
        assert!(seen == one_decoder(bytes, &every(1)), "{name}");
        assert!((together..=4).contains(&most), "{name}: {most}");
        println!("{name}: {most} engines at once");
    }
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
        let rate = rate.and_then(|rate| Rate::new(rate, 1));
        let sampling = rate.map_or(Sampling::Every, Sampling::Fixed);
        let options = FileOptions { sampling, max_frames, ..every(threads) };
        let (seen, _) = on_engines((bytes, codec), &options, 1);
        prop_assert!(seen == one_decoder(bytes, &options), "{}: {:?}", name, options);
    }
}
