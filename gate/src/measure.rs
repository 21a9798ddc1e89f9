//! Measurements of pixels: exact integer sums, and the trait of the gate backends.

use media::{DeviceMemoryLost, Dimensions, ErrorKind, Frame, Plane};

use crate::cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS};

/// Longest side of a picture that is measured; it keeps every sum of a cell below 2^32.
pub const MAX_SIDE: u32 = 8192;

/// Exact sums over the cells of one picture, of the eight most significant bits of each sample.
///
/// Cells are stored row by row; [`crate::cell_span`] gives the samples of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameMeasurements {
    /// Size of the luma plane.
    pub extent: Dimensions,
    /// Size of each chroma plane; `None` for luma-only pictures, whose chroma sums are 0.
    pub chroma_extent: Option<Dimensions>,
    /// Sum of the luma samples of each cell.
    pub luma_cells: [u32; LUMA_COLUMNS * LUMA_ROWS],
    /// Sum of the squares of the luma samples of each cell.
    pub luma_squares: [u32; LUMA_COLUMNS * LUMA_ROWS],
    /// Sum of the U samples and of the V samples of each cell.
    pub chroma_cells: [[u32; CHROMA_COLUMNS * CHROMA_ROWS]; 2],
}

impl FrameMeasurements {
    /// Returns sums of 0 for a picture of this size.
    pub fn zeroed(extent: Dimensions, chroma_extent: Option<Dimensions>) -> FrameMeasurements {
        FrameMeasurements {
            extent,
            chroma_extent,
            luma_cells: [0; LUMA_COLUMNS * LUMA_ROWS],
            luma_squares: [0; LUMA_COLUMNS * LUMA_ROWS],
            chroma_cells: [[0; CHROMA_COLUMNS * CHROMA_ROWS]; 2],
        }
    }
}

/// Measures the pixels of frames, one call per batch; every backend gives equal integers.
pub trait MeasureBackend: Send {
    /// Returns a short name for logs and `/v1/models`.
    fn name(&self) -> &'static str;

    /// Appends the measurements of each frame to `out`, in order.
    ///
    /// On an error `out` is unchanged.
    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError>;
}

/// Reason that a picture cannot be measured. A device's pair is the gate backend's name and the driver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MeasureError {
    #[error("picture of {width}x{height} is larger than {MAX_SIDE}x{MAX_SIDE}")]
    TooLarge { width: u32, height: u32 },
    /// A plane differs from that given by the frame's extent and layout.
    #[error("{0}")]
    PlaneMismatch(String),
    #[error("picture of {bytes} bytes is larger than the {bytes_max} that {backend} takes")]
    BeyondDevice { backend: &'static str, bytes: u64, bytes_max: u64 },
    /// The device has no memory free for a batch; a later batch may fit.
    #[error("{0} has no memory left: {1}")]
    NoRoom(&'static str, String),
    /// The device did not finish a batch in this many milliseconds and is still at it.
    #[error("{0} timed out after {1} ms")]
    Late(&'static str, u64),
    #[error("{0} lost its device: {1}")]
    DeviceLost(&'static str, String),
    #[error(transparent)]
    PixelsLost(#[from] DeviceMemoryLost),
    #[error("{0} failed: {1}")]
    DeviceFault(&'static str, String),
}

impl MeasureError {
    /// Returns the kind: an oversized picture is the caller's fault, mismatching planes are our bug.
    pub fn kind(&self) -> ErrorKind {
        match self {
            MeasureError::TooLarge { .. } => ErrorKind::InvalidInput,
            MeasureError::BeyondDevice { .. } => ErrorKind::Unsupported,
            MeasureError::NoRoom(..) => ErrorKind::Exhausted,
            MeasureError::Late(..) | MeasureError::DeviceLost(..) | MeasureError::PixelsLost(_) => {
                ErrorKind::Unavailable
            }
            MeasureError::PlaneMismatch(_) | MeasureError::DeviceFault(..) => ErrorKind::Internal,
        }
    }

    /// Returns true if the device is at fault, so that another gate backend may measure the picture.
    pub fn is_of_device(&self) -> bool {
        use MeasureError::{BeyondDevice, Late, NoRoom};
        self.ends_device() || matches!(self, BeyondDevice { .. } | NoRoom(..) | Late(..))
    }

    /// Returns true if the device is unusable from this error on; after others the next batch may succeed.
    pub fn ends_device(&self) -> bool {
        matches!(self, MeasureError::DeviceLost(..) | MeasureError::DeviceFault(..))
    }
}

/// Planes of one host picture, checked against the frame's extent and layout.
pub(crate) struct CheckedPlanes<'a> {
    pub(crate) luma: Plane<'a>,
    pub(crate) chroma: Option<[Plane<'a>; 2]>,
}

impl<'a> CheckedPlanes<'a> {
    /// Returns the planes of a frame, downloaded if they are in device memory. Checks sizes once, so that
    /// measuring a plane cannot fail.
    pub(crate) fn of(frame: &'a Frame) -> Result<CheckedPlanes<'a>, MeasureError> {
        let picture = frame.pixels.host()?;
        let (luma, chroma) = (picture.luma(), picture.chroma());
        let extent = frame.extent;
        if extent.width > MAX_SIDE || extent.height > MAX_SIDE {
            return Err(MeasureError::TooLarge { width: extent.width, height: extent.height });
        }
        check_extent("luma", luma.extent(), extent)?;
        match (chroma, frame.layout.subsampling.chroma_extent(extent)) {
            (None, None) => {}
            (Some(planes), Some(expected)) => {
                for plane in planes {
                    check_extent("chroma", plane.extent(), expected)?;
                }
            }
            _ => {
                let problem = "chroma planes do not match the frame's layout";
                return Err(MeasureError::PlaneMismatch(problem.to_owned()));
            }
        }
        Ok(CheckedPlanes { luma, chroma })
    }
}

fn check_extent(plane: &str, got: Dimensions, expected: Dimensions) -> Result<(), MeasureError> {
    if got == expected {
        return Ok(());
    }
    let [got, expected] = [got, expected].map(|size| format!("{}x{}", size.width, size.height));
    Err(MeasureError::PlaneMismatch(format!("{plane} plane is {got}, not {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::TestPicture;

    #[test]
    fn a_plane_of_another_size_than_its_frame_is_refused() {
        let mut frame = TestPicture::new(64, 40).frame();
        assert!(CheckedPlanes::of(&frame).is_ok());
        frame.extent.width = 62;
        let expected = MeasureError::PlaneMismatch("luma plane is 64x40, not 62x40".to_owned());
        assert_eq!(CheckedPlanes::of(&frame).err(), Some(expected));
    }
}
