//! RTP packets of every codec, in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::rtp::fuzz::packets(bytes);
});
