//! A device for tests: the reference's integers, until it is lost.

use std::sync::{Arc, Mutex, PoisonError};

use gate::{MeasureError, Measurements, Measurer, ReferenceMeasurer};
use media::Frame;

use super::Measuring;

/// Sizes of the batches that a device was given, the one it was lost with included.
#[derive(Clone, Default)]
pub(crate) struct Given(Arc<Mutex<Vec<usize>>>);

impl Given {
    pub fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Scripted {
    given: Given,
    batches: usize,
}

/// A device that is lost after so many batches.
pub(crate) fn lost_after(batches: usize) -> (Measuring, Given) {
    let given = Given::default();
    let device = Box::new(Scripted { given: given.clone(), batches });
    (Measuring::on(device, "of a test"), given)
}

impl Measurer for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        let mut given = self.given.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !frames.is_empty() {
            given.push(frames.len());
        }
        if given.len() > self.batches {
            let reason = "unplugged".to_owned();
            return Err(MeasureError::DeviceLost { backend: "scripted", reason });
        }
        ReferenceMeasurer.measure(frames, out)
    }
}
