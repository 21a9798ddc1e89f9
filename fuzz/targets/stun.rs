//! STUN messages of the port of live video.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::webrtc::fuzz::stun(bytes);
});
