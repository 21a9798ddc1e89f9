//! Tests that a job gives the same result if its pixels stay on a device, and after that device is lost.

use std::{sync::OnceLock, time::Duration};

use decode::SinkStop;
use gate::{CpuBackend, MeasureBackend, MeasureError};
use media::{DeviceFrameBuffer, DeviceMemoryLost, DeviceSurface};

use super::*;
use crate::gate_device::DeviceTimeouts;

/// A frame on a device that lets a limited number of pictures be fetched.
struct Kept {
    host: Frame,
    fetches_left: Arc<AtomicU64>,
    fetched: OnceLock<Result<(), DeviceMemoryLost>>,
}

impl DeviceFrameBuffer for Kept {
    fn surface(&self) -> DeviceSurface {
        unreachable!("only a device of CUDA asks")
    }

    fn host(&self) -> Result<&Arc<dyn HostFrameBuffer>, DeviceMemoryLost> {
        let fetch = || {
            let took = self.fetches_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            took.map(drop).map_err(|_| DeviceMemoryLost { reason: "unplugged".to_owned() })
        };
        self.fetched.get_or_init(fetch).clone()?;
        self.host.pixels.host()
    }
}

/// Device that measures the film's frames without fetching them.
struct There(CpuBackend);

impl MeasureBackend for There {
    fn name(&self) -> &'static str {
        "there"
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        let same: Vec<Frame> = frames.iter().map(|kept| frame(kept.source_index)).collect();
        self.0.measure(&same, out)
    }
}

/// Timeouts that no machine exceeds.
const PATIENCE: DeviceTimeouts =
    DeviceTimeouts { late: Duration::from_secs(300), gone: Duration::from_secs(300) };

/// Returns the output for twenty frames of a device that lets `fetches` of them be fetched, and true if that
/// was too few; then the frames are decoded again, elsewhere.
fn with_lost_pixels(asked: Asked, measuring: &GateMeasurement, fetches: u64) -> (Said, bool) {
    let options = options(asked);
    let fetches_left = Arc::new(AtomicU64::new(fetches));
    let kept = |index| {
        let (host, fetches_left) = (frame(index), Arc::clone(&fetches_left));
        let kept = Kept { host: host.clone(), fetches_left, fetched: OnceLock::new() };
        Frame { pixels: Pixels::Device(Arc::new(kept)), ..host }
    };
    let mut is_lost = false;
    let events = events_of(&options, measuring, |job, merger| {
        let mut sink = SegmentSink::new(job);
        fill(&mut sink, 0..0, false, asked.at_ms);
        let given = (0..20).try_for_each(|index| sink.frame(index, kept(index)));
        let first = match given {
            ControlFlow::Break(SinkStop::PixelsLost(lost)) => Err(lost),
            ControlFlow::Break(SinkStop::Ended) => panic!("{:?}", job.take_failure()),
            ControlFlow::Continue(()) => sink.end(),
        };
        // The rest is for the merger: no pixels may remain only on the device.
        fetches_left.store(0, Relaxed);
        is_lost = first.is_err();
        let segment = first.unwrap_or_else(|lost| {
            assert_eq!(lost.reason, "unplugged");
            fill(&mut sink, 0..20, false, asked.at_ms);
            sink.end().expect("in host memory")
        });
        merger.deliver(segment).expect("delivered");
    });
    (Said::of(&options, events), is_lost)
}

/// Returns the fewest fetches that are enough for twenty frames.
fn fetches_needed(asked: Asked, measuring: &GateMeasurement) -> u64 {
    let expected = analyse(&[20], asked);
    for fetches in 0..=20 {
        let (said, is_lost) = with_lost_pixels(asked, measuring, fetches);
        assert_eq!(said, expected, "after {fetches}");
        if !is_lost {
            return fetches;
        }
    }
    panic!("twenty frames are fetched more than once");
}

#[test]
fn pixels_that_go_with_their_device_are_decoded_again_and_nothing_is_missing() {
    for views in
        [None, shown(ChunkBoundary::Frames(8), 3), shown(ChunkBoundary::Span { ms: 300 }, 3)]
    {
        let asked = Asked { views, ..ASKED };
        assert_eq!(fetches_needed(asked, &GateMeasurement::default()), 20, "the CPU measures each");
        let there = Box::new(There(CpuBackend::new()));
        let device = GateMeasurement::on(there, "of a test", PATIENCE).expect("a thread");
        let needed = fetches_needed(asked, &device);
        assert!((1..15).contains(&needed), "only what may be shown is fetched: {needed}");
        println!("{needed} of 20 were fetched, views: {views:?}");
    }
}

#[test]
fn what_is_only_measured_is_never_fetched() {
    let asked = Asked { stills: false, views: None, ..ASKED };
    let there = Box::new(There(CpuBackend::new()));
    let device = GateMeasurement::on(there, "of a test", PATIENCE).expect("a thread");
    assert_eq!(fetches_needed(asked, &device), 0);
}
