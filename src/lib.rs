//! The server: joins worker, timeline and transport behind the HTTP API.
//!
//! Layers, each of which names only those before it: base, runs, record, deliver, api; then server, config and app.
//! Locks are `parking_lot`'s, which no panic poisons: whoever holds one leaves what the next can go on with.
#![forbid(unsafe_code)]

pub mod api;
pub mod app;
pub mod base;
pub mod config;
pub mod deliver;
pub mod record;
pub mod runs;
pub mod server;
