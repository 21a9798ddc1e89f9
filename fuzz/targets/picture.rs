//! Pictures of the media worker.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worker::fuzz::picture(bytes));
