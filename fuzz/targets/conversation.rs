//! What an RTSP server says, descriptions of its media included.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worker::fuzz::conversation(bytes));
