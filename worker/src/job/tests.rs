//! A job's result does not depend on how its file is cut into segments.

use std::sync::Arc;

use decode::{FrameSink, SegmentInfo};
use media::{
    Frame, HostPicture, PixelLayout, Pixels, Plane, Sample, SampleRange, Subsampling, Timebase,
    Timestamp,
};

use super::{sequence::Sequencer, sink::SegmentSink, *};

const EXTENT: Extent = Extent { width: 160, height: 96 };
const CHROMA: Extent = Extent { width: 80, height: 48 };

/// A picture of its own bytes.
struct Painted {
    luma: Vec<u8>,
    chroma: [Vec<u8>; 2],
}

impl HostPicture for Painted {
    fn luma(&self) -> Plane<'_> {
        Plane::new(&self.luma, 160, EXTENT, Sample::U8, 1).expect("fits")
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        let plane = |data| Plane::new(data, 80, CHROMA, Sample::U8, 1).expect("fits");
        Some([plane(&self.chroma[0]), plane(&self.chroma[1])])
    }
}

/// Frame `index` of a made-up film: drifting patterns, a hard cut every 17 frames, flashes, noise.
fn frame(index: u64) -> Frame {
    let shot = index / 17;
    let flash = if index % 23 == 11 { 70 } else { 0 };
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let luma = (0..160 * 96u64)
        .map(|at| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let noise = if shot % 3 == 2 { state % 48 } else { state % 3 };
            let (x, y) = (at % 160 + index % 17, at / 160);
            let pattern = (x * (3 + shot * 5) + y * (7 + shot * 3)) % 160;
            (pattern + noise + flash).min(255) as u8
        })
        .collect();
    let chroma = [100, 160].map(|base| vec![(base + shot * 7 % 40) as u8; 80 * 48]);
    let layout = PixelLayout {
        subsampling: Subsampling::Yuv420,
        sample: Sample::U8,
        interleaved_chroma: false,
        range: SampleRange::Limited,
    };
    Frame {
        pts: Timestamp::new(index as i64, Timebase::new(1, 25).expect("positive")),
        source_index: index,
        extent: EXTENT,
        layout,
        pixels: Pixels::Host(Arc::new(Painted { luma, chroma })),
    }
}

/// What the film comes to when it is cut into segments of these lengths; `continued` ones are
/// decoded by the sink that had the one before.
fn analyse(lengths: &[u64], continued: bool, stills: bool) -> (Vec<Signal>, Vec<Still>) {
    let said = Mutex::new((Vec::new(), Vec::new()));
    let emit = |event: JobEvent| {
        let mut said = said.lock().expect("no panic");
        match event {
            JobEvent::Signals(signals) => said.0.extend(signals),
            JobEvent::Still(still) => said.1.push(still),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let options = JobOptions {
        sampling: Sampling::Every,
        max_frames: 1000,
        stills,
        gate: GateConfig::default(),
        threads: 1,
    };
    let job = Job::new(&options, Rotation::None, &emit);
    let mut sequencer = Sequencer::new(&job).expect("an encoder");
    let mut sink = SegmentSink::new(&job);
    let mut index = 0;
    for (ordinal, length) in lengths.iter().enumerate() {
        if !continued {
            sink = SegmentSink::new(&job);
        }
        sink.begin(SegmentInfo {
            ordinal: ordinal as u64,
            first_frame_index: index,
            continues_previous: continued && ordinal > 0,
        });
        for _ in 0..*length {
            assert!(sink.frame(index, frame(index)).is_continue());
            index += 1;
        }
        sequencer.deliver(sink.end()).expect("delivered");
    }
    sequencer.finish().expect("finished");
    job.take_failure().expect("no failure");
    said.into_inner().expect("no panic")
}

#[test]
fn how_a_file_is_cut_into_segments_changes_nothing() {
    let whole = analyse(&[240], false, true);
    assert_eq!(whole.0.len(), 240);
    assert!(whole.1.len() > 14, "cuts, keepalives: {}", whole.1.len());
    let cases: [(&str, Vec<u64>); 6] = [
        ("tens", vec![10; 24]),
        ("single frames", vec![1; 240]),
        ("shorter than what is held", vec![5; 48]),
        ("one longer than what is held", vec![12; 20]),
        ("uneven, some empty", vec![1, 0, 60, 3, 40, 0, 0, 11, 25, 100]),
        ("long", vec![100, 140]),
    ];
    for (name, lengths) in cases {
        assert_eq!(lengths.iter().sum::<u64>(), 240, "{name}");
        for continued in [false, true] {
            let cut = analyse(&lengths, continued, true);
            assert!(cut == whole, "{name}, continued: {continued}");
            // Without stills every signal comes from the one window of the file.
            let signals = analyse(&lengths, continued, false).0;
            assert!(signals == whole.0, "{name}, continued: {continued}, no stills");
        }
    }
}

#[test]
fn a_segment_that_starts_over_counts_once() {
    let said = Mutex::new(Vec::new());
    let emit = |event: JobEvent| {
        if let JobEvent::Signals(signals) = event {
            said.lock().expect("no panic").extend(signals);
        }
        ControlFlow::Continue(())
    };
    let options = JobOptions {
        sampling: Sampling::Every,
        max_frames: 1000,
        stills: true,
        gate: GateConfig::default(),
        threads: 1,
    };
    let job = Job::new(&options, Rotation::None, &emit);
    let mut sequencer = Sequencer::new(&job).expect("an encoder");
    let mut sink = SegmentSink::new(&job);
    let info = SegmentInfo { ordinal: 0, first_frame_index: 0, continues_previous: false };
    for _ in 0..2 {
        sink.begin(info);
        for index in 0..20 {
            assert!(sink.frame(index, frame(index)).is_continue());
        }
    }
    sequencer.deliver(sink.end()).expect("delivered");
    sequencer.finish().expect("finished");
    assert_eq!(said.into_inner().expect("no panic"), analyse(&[20], false, true).0);
}

#[test]
fn a_receiver_that_stops_ends_the_job() {
    let emit = |_: JobEvent| ControlFlow::Break(());
    let options = JobOptions {
        sampling: Sampling::Every,
        max_frames: 1000,
        stills: false,
        gate: GateConfig::default(),
        threads: 1,
    };
    let job = Job::new(&options, Rotation::None, &emit);
    let mut sink = SegmentSink::new(&job);
    sink.begin(SegmentInfo { ordinal: 0, first_frame_index: 0, continues_previous: false });
    assert!(sink.frame(0, frame(0)).is_break());
    assert_eq!(job.take_failure(), Err(Fault::Stopped));
}
