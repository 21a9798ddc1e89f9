//! Answers of model backends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| infer::fuzz::reply(bytes));
