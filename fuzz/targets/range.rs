//! `Range` headers.
#![no_main]

#[path = "../../tests/fuzz/range.rs"]
mod range;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| range::range(bytes));
