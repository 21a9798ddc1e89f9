//! Messages of the media worker and to it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worker::fuzz::message(bytes));
