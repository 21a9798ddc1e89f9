//! Addresses, redirects and heads of answers of other hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport::egress::fuzz::answer(bytes);
});
