//! Packets of a transport, in any order at any time.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::webrtc::fuzz::arrivals(bytes);
});
