//! More than the server can do: it refuses early and says when to ask again, does all that it took on, answers probes,
//! and keeps its memory; its idle subscribers are cheap, and the flood of one principal costs another little.
//!
//! Requests come by a clock, whatever becomes of those before them. Times are told and never judged: counts and memory
//! are. `SIGHTLINE_TEST_LONG` has minutes of it, `SIGHTLINE_OVERLOAD_OUT` names a folder for the figures, and
//! `SIGHTLINE_TEST_SERVER` another build of the server.

mod client;
mod fair;
mod generator;
mod idle;
mod report;
mod steps;
mod tenant;
mod world;
