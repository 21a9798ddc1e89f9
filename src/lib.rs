//! The server: joins worker, timeline and transport behind the HTTP API.
//!
//! Layers, each using only those before it: base, runs, record, deliver, api; then server, config, app.
//! Locks are `parking_lot`'s, without poisoning: code that panics under one must leave valid state.
#![forbid(unsafe_code)]

pub mod api;
pub mod app;
pub mod base;
pub mod config;
pub mod deliver;
pub mod record;
pub mod runs;
pub mod server;
