//! A column of signals, as a disk or a hand may leave it.
#![no_main]

#[path = "../../tests/fuzz/column.rs"]
mod column;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    column::column(bytes);
});
