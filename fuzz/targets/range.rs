//! `Range` headers: what is asked for lies in the file.
#![no_main]

#[path = "../../src/api/files/range.rs"]
mod range;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((size, header)) = bytes.split_first_chunk() else { return };
    let (size, header) = (u64::from_le_bytes(*size), String::from_utf8_lossy(header));
    if let range::Wanted::Part(part) = range::wanted(&header, size) {
        assert!(part.start < part.end && part.end <= size, "{header} of {size}: {part:?}");
    }
});
