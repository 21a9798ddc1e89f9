//! The embedding sidecar's protocol, both directions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| embed::fuzz::sidecar(bytes));
