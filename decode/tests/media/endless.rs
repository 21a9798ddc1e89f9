//! Media that is recorded while it is read: pictures come as they are recorded.

use std::{
    io::{Cursor, ErrorKind, Read, Result, Seek, SeekFrom},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use clips::rendered;
use decode::{DemuxLimits, Demuxer, Earlier};
use media::Timestamp;

use crate::support::*;

/// Source that returns its bytes packet by packet.
struct Made {
    bytes: Cursor<Vec<u8>>,
    read: Arc<AtomicUsize>,
}

impl Read for Made {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let most = out.len().min(1316);
        let len = self.bytes.read(&mut out[..most])?;
        self.read.fetch_max(self.bytes.position() as usize, Relaxed);
        Ok(len)
    }
}

impl Seek for Made {
    /// Supports only seeking to the beginning.
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        match to {
            SeekFrom::Start(0) => self.bytes.seek(to),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }
}

#[test]
fn the_first_picture_beside_sound_waits_for_no_more_than_two_seconds() {
    let inputs = "-f lavfi -i testsrc=s=160x120:r=25 -f lavfi -i sine -t 10";
    let path = rendered("cast.ts", &format!("{inputs} -c:v libx264 -g 50 -c:a aac"));
    let (bytes, read) = (std::fs::read(&path).expect("made"), Arc::new(AtomicUsize::new(0)));
    let all = bytes.len();
    let input = Made { bytes: Cursor::new(bytes), read: Arc::clone(&read) };
    let demuxer = Demuxer::open_live(Box::new(input), DemuxLimits::default()).expect("recognised");
    assert_eq!(demuxer.stream().source_rate.map(|rate| rate.as_f64()), Some(25.0));
    let (mut first, mut pieces) = (None, 0);
    let sink = || recorder(false);
    let report = decode_file(demuxer.endless(), &every(2), sink, |frames| {
        if !frames.is_empty() {
            first.get_or_insert(read.load(Relaxed));
            pieces += 1;
        }
        ControlFlow::Continue(())
    });
    assert_eq!(report.expect("decodes").frames, 250);
    let first = first.expect("pictures");
    assert!(first < all / 5, "{first} of {all} bytes before the first");
    assert!(pieces > 200, "{pieces}: they come by themselves");
}

#[test]
fn a_live_source_may_begin_long_before_its_first_keyframe() {
    let sound = "-f lavfi -i testsrc=s=160x120:r=25 -f lavfi -i sine -t 6";
    let alone = "-f lavfi -i testsrc=s=160x120:r=25 -t 6";
    let video = "-c:v libx264 -g 50 -keyint_min 50 -sc_threshold 0 -bf 0";
    for (name, line) in [
        ("late-sound.ts", format!("{sound} {video} -c:a aac")),
        ("late-alone.ts", format!("{alone} {video}")),
    ] {
        let bytes = std::fs::read(rendered(name, &line)).expect("made");
        // Behind the first keyframe: a server's segments may begin anywhere.
        let from = bytes.len() / 10 / 188 * 188;
        let (bytes, read) = (Cursor::new(bytes[from..].to_vec()), Arc::default());
        let input = Box::new(Made { bytes, read });
        let demuxer = Demuxer::open_live(input, DemuxLimits::default()).expect(name);
        let sink = || recorder(false);
        let flow = |_: Vec<Seen>| ControlFlow::Continue(());
        let report = decode_file(demuxer.endless(), &every(2), sink, flow).expect(name);
        assert!((100..150).contains(&report.frames), "{name}: {} frames", report.frames);
    }
}

#[test]
fn a_connection_whose_first_picture_has_no_time_continues_the_one_before() {
    let path = rendered("untimed.h264", "-f lavfi -i testsrc=s=160x120:r=25:d=1 -bf 0");
    let bytes = std::fs::read(&path).expect("made");
    let demuxer = Demuxer::open_live(Box::new(Cursor::new(bytes)), DemuxLimits::default());
    let [latest, begins_at] = [5000, 9000].map(Timestamp::from_millis);
    let earlier = Earlier { frames: 10, source_frames: 10, latest, begins_at };
    let demuxer = demuxer.expect("opens").endless().after(earlier);
    let (timebase, mut times) = (demuxer.stream().timebase, Vec::new());
    let sink = || recorder(false);
    let report = decode_file(demuxer, &every(2), sink, |frames| {
        let at = |seen: &Seen| Timestamp::new(seen.ticks, timebase).as_millis();
        times.extend(frames.iter().map(at));
        ControlFlow::Continue(())
    });
    report.expect("decodes");
    assert_eq!(times, (0..25).map(|frame| 8960 + 40 * frame).collect::<Vec<i64>>());
}
