//! Sink for callers that want one value per frame.

use std::{mem, ops::ControlFlow};

use media::{DeviceMemoryLost, Frame};

use super::{FrameSink, SegmentInfo, SinkStop};

/// Sink that collects what a function makes of each frame and its index.
pub struct FrameCollector<T, F> {
    made: Vec<T>,
    make: F,
}

impl<T, F: FnMut(u64, Frame) -> Result<T, SinkStop>> FrameCollector<T, F> {
    /// Makes a sink of `make`, which must not return a frame in device memory.
    pub fn new(make: F) -> FrameCollector<T, F> {
        FrameCollector { made: Vec::new(), make }
    }
}

impl<T: Send, F: FnMut(u64, Frame) -> Result<T, SinkStop> + Send> FrameSink
    for FrameCollector<T, F>
{
    type Output = Vec<T>;

    fn begin(&mut self, _segment: SegmentInfo) {
        self.made.clear();
    }

    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<SinkStop> {
        match (self.make)(index, frame) {
            Ok(made) => {
                self.made.push(made);
                ControlFlow::Continue(())
            }
            Err(stop) => ControlFlow::Break(stop),
        }
    }

    fn end(&mut self) -> Result<Vec<T>, DeviceMemoryLost> {
        Ok(mem::take(&mut self.made))
    }
}
