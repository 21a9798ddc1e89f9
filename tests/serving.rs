//! A real server process over TLS: one API on three versions of HTTP, and clients of others.
#![allow(missing_docs)]

mod support;

#[path = "serving/abuse.rs"]
mod abuse;
#[path = "serving/certificates.rs"]
mod certificates;
#[path = "serving/client.rs"]
mod client;
#[path = "serving/clients.rs"]
mod clients;
#[path = "serving/differential.rs"]
mod differential;
#[path = "serving/live.rs"]
mod live;
