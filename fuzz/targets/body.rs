//! JSON bodies of requests.
#![no_main]

#[path = "../../tests/fuzz/body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::body(bytes));
