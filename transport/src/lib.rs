//! Bytes in, bytes out: serves any `axum::Router` on HTTP/1.1 and HTTP/2.
//!
//! Promises that every wait on a peer ends (no byte received, none accepted, too many headers,
//! too many connections) and that a drain ends at its deadline. Knows no route, no run and no
//! credential.
#![forbid(unsafe_code)]

mod error;
mod http;
mod idle;
mod listener;
mod refusal;

pub use error::TransportError;
pub use http::{Drained, Ends, Limits, Site, serve};
pub use listener::bind;
pub use refusal::Headers;
