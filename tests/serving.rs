//! A real server process over TLS: one API on three versions of HTTP, and clients of others.

mod abuse;
mod certificates;
mod client;
mod clients;
mod differential;
mod live;
