//! SDP offers, and the answers to them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::webrtc::fuzz::offer(bytes);
});
