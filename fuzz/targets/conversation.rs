//! Replies of an RTSP server, descriptions of its media included.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worker::fuzz::conversation(bytes));
