//! Fragments of trickled candidates.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::webrtc::fuzz::fragment(bytes);
});
