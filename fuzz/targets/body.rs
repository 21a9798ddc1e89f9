//! JSON bodies of requests.
#![no_main]

/// The server's reader of JSON alone: the whole server is much more to build.
#[allow(unused)]
#[path = "../../src/base"]
mod base {
    pub mod json;
    pub mod model_catalog;
}
#[path = "../../tests/fuzz/body.rs"]
mod body;

extern crate self as sightline;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::body(bytes));
