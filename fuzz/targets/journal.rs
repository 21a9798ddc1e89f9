//! The last file of a log, as a power cut, a disk or a hand may leave it.
#![no_main]

#[path = "../../tests/fuzz/journal.rs"]
mod journal;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    journal::journal(bytes);
});
