//! Multipart forms of uploads.
#![no_main]

#[path = "../../tests/fuzz/form.rs"]
mod form;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    form::form(bytes);
});
