//! The file of a recording in progress, as a power cut, a disk or a hand may leave it.
#![no_main]

#[path = "../../timeline/tests/timeline/open_column.rs"]
mod open_column;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    open_column::open_column(bytes);
});
