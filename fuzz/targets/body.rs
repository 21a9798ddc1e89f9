//! JSON bodies of requests.
#![no_main]
#![allow(unused)]

/// The server's reader of JSON alone: with the whole server, twice as much would be built.
mod base {
    pub mod catalog;
    pub mod json;
}
#[path = "../../tests/fuzz/body.rs"]
mod body;

extern crate self as sightline;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::body(bytes));
