//! HLS playlists: every answer of a server that may be one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| worker::fuzz::playlist(bytes));
