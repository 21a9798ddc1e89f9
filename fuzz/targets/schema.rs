//! Schemas of callers, and answers that are held against them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| infer::fuzz::schema(bytes));
