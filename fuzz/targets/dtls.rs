//! DTLS records before they are parsed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::webrtc::fuzz::dtls(bytes);
});
