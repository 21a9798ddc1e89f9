//! Compound RTCP packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::webrtc::fuzz::control(bytes);
});
