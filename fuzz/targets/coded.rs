//! Packets of every codec, as the cutting into segments sees them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    decode::fuzz::packets(bytes);
});
