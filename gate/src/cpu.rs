//! Measuring on the CPU: the reference that defines the integers, and the choice of its SIMD version.

use media::{Frame, Plane};

use crate::{
    cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS, cell_span},
    measure::{CheckedPlanes, FrameMeasurements, MeasureBackend, MeasureError},
};

/// Reference implementation: one sample at a time, in safe code.
#[derive(Debug, Default)]
pub struct ReferenceBackend;

impl MeasureBackend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "cpu-reference"
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        measure_each(frames, out, |planes, measured| {
            let luma = (&mut measured.luma_cells[..], Some(&mut measured.luma_squares[..]));
            sum_cells(&planes.luma, LUMA_COLUMNS, LUMA_ROWS, luma.0, luma.1);
            for (plane, sums) in planes.chroma.iter().flatten().zip(&mut measured.chroma_cells) {
                sum_cells(plane, CHROMA_COLUMNS, CHROMA_ROWS, sums, None);
            }
        })
    }
}

fn sum_cells(
    plane: &Plane<'_>,
    columns: usize,
    rows: usize,
    sums: &mut [u32],
    mut squares: Option<&mut [u32]>,
) {
    let extent = plane.extent();
    for row in 0..rows {
        for y in cell_span(row, rows, extent.height) {
            let samples = plane.row(y);
            for column in 0..columns {
                let cell = row * columns + column;
                for x in cell_span(column, columns, extent.width) {
                    let value = u32::from(plane.value8(samples, x));
                    sums[cell] += value;
                    if let Some(squares) = &mut squares {
                        squares[cell] += value * value;
                    }
                }
            }
        }
    }
}

/// Measures each frame into a new record; restores `out` on an error.
pub(crate) fn measure_each(
    frames: &[Frame],
    out: &mut Vec<FrameMeasurements>,
    mut measure: impl FnMut(&CheckedPlanes<'_>, &mut FrameMeasurements),
) -> Result<(), MeasureError> {
    let before = out.len();
    for frame in frames {
        let planes = CheckedPlanes::of(frame).inspect_err(|_| out.truncate(before))?;
        let chroma_extent = planes.chroma.map(|[u, _]| u.extent());
        out.push(FrameMeasurements::zeroed(frame.extent, chroma_extent));
        measure(&planes, out.last_mut().expect("just pushed"));
    }
    Ok(())
}

/// Fastest gate backend that this CPU supports, chosen at run time.
#[derive(Debug)]
pub struct CpuBackend {
    #[cfg(target_arch = "x86_64")]
    avx2: Option<crate::simd::Avx2>,
}

impl CpuBackend {
    /// Detects the CPU's features and allocates all memory for measuring.
    pub fn new() -> CpuBackend {
        CpuBackend {
            #[cfg(target_arch = "x86_64")]
            avx2: crate::simd::Avx2::detect(),
        }
    }
}

impl Default for CpuBackend {
    fn default() -> CpuBackend {
        CpuBackend::new()
    }
}

impl MeasureBackend for CpuBackend {
    fn name(&self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        if self.avx2.is_some() {
            return "cpu-avx2";
        }
        ReferenceBackend.name()
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = &mut self.avx2 {
            return measure_each(frames, out, |planes, measured| avx2.measure(planes, measured));
        }
        ReferenceBackend.measure(frames, out)
    }
}
