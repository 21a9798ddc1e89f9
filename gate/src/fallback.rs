//! Gate backend of a device with the CPU as its fallback; both give the same integers.
//!
//! Each batch is reported once, as measured by one of the two, and a failed device is not used again. Does
//! not log: [`FallbackBackend::failure`] returns the error.

use media::Frame;

use crate::{CpuBackend, FrameMeasurements, MeasureBackend, MeasureError};

/// Measures on a device for as long as it works, then on the CPU.
pub struct FallbackBackend {
    device: Option<Box<dyn MeasureBackend>>,
    cpu: CpuBackend,
    failure: Option<MeasureError>,
}

impl FallbackBackend {
    /// Starts with `device`.
    pub fn new(device: Box<dyn MeasureBackend>) -> FallbackBackend {
        FallbackBackend { device: Some(device), cpu: CpuBackend::new(), failure: None }
    }

    /// Returns the error that ended the use of the device; `None` while it is in use.
    pub fn failure(&self) -> Option<&MeasureError> {
        self.failure.as_ref()
    }
}

impl MeasureBackend for FallbackBackend {
    fn name(&self) -> &'static str {
        self.device.as_ref().map_or_else(|| self.cpu.name(), |device| device.name())
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        if let Some(device) = &mut self.device {
            match device.measure(frames, out) {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_of_device() => return Err(error),
                Err(error) if error.ends_device() => {
                    self.device = None;
                    self.failure = Some(error);
                }
                // The device still works: the next batch may fit.
                Err(_) => {}
            }
        }
        self.cpu.measure(frames, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReferenceBackend, conformance::TestPicture};

    /// Returns these errors in order, and measures with the reference for `None`.
    struct Scripted(Vec<Option<MeasureError>>);

    impl MeasureBackend for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn measure(
            &mut self,
            frames: &[Frame],
            out: &mut Vec<FrameMeasurements>,
        ) -> Result<(), MeasureError> {
            match self.0.remove(0) {
                Some(error) => Err(error),
                None => ReferenceBackend.measure(frames, out),
            }
        }
    }

    fn lost() -> MeasureError {
        MeasureError::DeviceLost("scripted", "unplugged".into())
    }

    #[test]
    fn a_lost_device_is_replaced_once_and_the_integers_stay() {
        let frames =
            [TestPicture::new(70, 50), TestPicture::new(3, 4)].map(|picture| picture.frame());
        let mut expected = Vec::new();
        ReferenceBackend.measure(&frames, &mut expected).expect("measurable");
        let beyond = MeasureError::BeyondDevice { backend: "scripted", bytes: 9, bytes_max: 8 };
        let full = MeasureError::NoRoom("scripted", "in use".into());
        let late = MeasureError::Late("scripted", 9);
        let cases = [
            ("never fails", vec![None, None, None], None),
            ("beyond its limits once", vec![None, Some(beyond), None], None),
            ("full once", vec![Some(full), None, None], None),
            ("late twice", vec![Some(late.clone()), Some(late), None], None),
            // Two answers only: the lost device must not be used for the third batch.
            ("lost at the second batch", vec![None, Some(lost())], Some(lost())),
        ];
        for (name, script, failure) in cases {
            let mut measurer = FallbackBackend::new(Box::new(Scripted(script)));
            for _ in 0..3 {
                let mut measured = Vec::new();
                assert_eq!(measurer.measure(&frames, &mut measured), Ok(()), "{name}");
                assert_eq!(measured, expected, "{name}");
            }
            assert_eq!(measurer.failure(), failure.as_ref(), "{name}");
            assert_eq!(measurer.name() == "scripted", failure.is_none(), "{name}");
        }
    }

    #[test]
    fn a_picture_that_nothing_measures_is_refused_and_the_device_kept() {
        let refused = MeasureError::TooLarge { width: 9000, height: 2 };
        let script = vec![Some(refused.clone()), None];
        let mut measurer = FallbackBackend::new(Box::new(Scripted(script)));
        let frames = [TestPicture::new(8, 8).frame()];
        let mut measured = Vec::new();
        assert_eq!(measurer.measure(&frames, &mut measured), Err(refused));
        assert_eq!(measurer.measure(&frames, &mut measured), Ok(()));
        assert_eq!(measurer.failure(), None);
    }
}
