//! Transport: serves an `axum::Router` on HTTP/1.1, 2 and 3, receives WebRTC, and connects to other hosts.
//!
//! Promises that every wait on a peer ends (no byte received, none accepted, too many headers, too many
//! connections), that a drain ends at its deadline, and that no connection is made to an unchecked address.
//! Knows no route and no run.
#![forbid(unsafe_code)]

mod certificate;
mod connection_limit;
mod connection_state;
pub mod egress;
mod error_response;
mod heads;
mod http;
#[cfg(feature = "http3")]
mod http3;
pub mod percent;
mod respond;
pub mod rtp;
#[cfg(test)]
mod tests;
mod timeouts;
pub mod tls;
pub mod webrtc;

pub use certificate::{CertificateError, CertificatePaths, ReloadingCertificate};
pub use connection_limit::{ConnectionLimiter, ConnectionLimits, Peer};
pub use error_response::ExtraHeaders;
pub use http::{Listener, ServerLimits, ServiceConfig, ShutdownSignals, TransportError, serve};
#[cfg(feature = "http3")]
pub use http3::{QuicListener, serve_quic};
