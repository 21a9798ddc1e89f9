//! Bytes in, bytes out: serves any `axum::Router` on HTTP/1.1 and HTTP/2, and reaches other hosts.
//!
//! Promises that every wait on a peer ends (no byte received, none accepted, too many headers,
//! too many connections), that a drain ends at its deadline, and that no connection is made to an
//! address that was not checked. Knows no route and no run.
#![forbid(unsafe_code)]

mod activity;
mod crowd;
pub mod egress;
mod error;
mod http;
mod idle;
mod listener;
pub mod percent;
mod refusal;
pub mod rtp;
pub mod tls;
pub mod webrtc;

pub use crowd::{Crowd, CrowdLimits};
pub use error::TransportError;
pub use http::{Drained, Ends, Limits, Site, serve};
pub use listener::bind;
pub use refusal::Headers;
