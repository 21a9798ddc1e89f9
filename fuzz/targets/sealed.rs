//! A sealed file of a log under checksums that are right, as a hand or a fault of its writer may leave it.
#![no_main]

#[path = "../../timeline/tests/timeline/sealed.rs"]
mod sealed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    sealed::sealed(bytes);
});
