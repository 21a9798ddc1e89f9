//! Detection of blocks of a picture that were not decoded.
//!
//! An H.265 slice that ends early leaves coding tree units undecoded, which libav does not report. The
//! picture's memory was cleared, so they are green; but later pictures also take their motion from leftover
//! memory, which depends on the number of threads.

use ffmpeg_next::ffi;

use super::av_frame::{AvFrame, descriptor};

/// Side of the smallest coding tree unit in samples of luma (H.265 7.4.3.2.1, `CtbLog2SizeY` of 4).
const UNIT: usize = 16;

/// Returns true if both chroma samples of a coding tree unit are near zero, a green that no video has.
///
/// Checks the middle sample of each unit, which no filter across its edges reaches; sample adaptive offset
/// may have moved it. Finds nothing in pictures without chroma, and does not see pictures that a stream
/// hides.
pub(super) fn has_holes(frame: &AvFrame) -> bool {
    let Some(descriptor) = descriptor(frame.format()).filter(|format| format.nb_components >= 3)
    else {
        return false;
    };
    let [_, first, second, _] = descriptor.comp;
    // H.265 7.3.8.3: largest value of `sao_offset_abs`.
    let near_zero = (1 << (first.depth.clamp(8, 10) - 5)) - 1;
    let (width, height) = frame.size();
    let halved =
        |size: i32, shift: u8| usize::try_from((size + (1 << shift) - 1) >> shift).unwrap_or(0);
    let width = halved(width, descriptor.log2_chroma_w);
    let height = halved(height, descriptor.log2_chroma_h);
    let (across, down) = (UNIT >> descriptor.log2_chroma_w, UNIT >> descriptor.log2_chroma_h);
    (down / 2..height).step_by(down).any(|y| {
        (across / 2..width).step_by(across).any(|x| {
            is_near_zero(frame, first, (x, y), near_zero)
                && is_near_zero(frame, second, (x, y), near_zero)
        })
    })
}

/// Returns true if the sample of `component` at column and row `(x, y)` is at most `near_zero`.
fn is_near_zero(
    frame: &AvFrame,
    component: ffi::AVComponentDescriptor,
    (x, y): (usize, usize),
    near_zero: u16,
) -> bool {
    let number = |field: i32| usize::try_from(field).unwrap_or(0);
    let (plane, stride) = frame.plane_at(number(component.plane));
    if plane.is_null() || stride <= 0 {
        return false;
    }
    let at = y * number(stride) + x * number(component.step) + number(component.offset);
    // SAFETY: column and row lie within the picture's size, for which libav allocated the plane.
    let sample = unsafe {
        match component.depth {
            ..=8 => u16::from(*plane.add(at)),
            _ => u16::from_le_bytes([*plane.add(at), *plane.add(at + 1)]) >> component.shift,
        }
    };
    sample <= near_zero
}
