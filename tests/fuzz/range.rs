//! Properties of reading any `Range` header.

#[path = "../../src/api/files/range.rs"]
#[allow(unused)]
mod parser;

use parser::RangeOutcome;

/// A header after the size of the file in eight bytes.
///
/// A part that is asked for lies in the file.
pub fn range(bytes: &[u8]) {
    let Some((size, header)) = bytes.split_first_chunk() else { return };
    let (size, header) = (u64::from_le_bytes(*size), String::from_utf8_lossy(header));
    if let RangeOutcome::Part(part) = parser::wanted(&header, size) {
        assert!(part.start < part.end && part.end <= size, "{header} of {size}: {part:?}");
    }
}
