//! The `sightline` binary as a user sees it: arguments, exit codes, standard output, files.
#![forbid(unsafe_code)]

mod analyze;
mod arguments;
mod commands;
mod demo;
mod export;
mod gpu_check;
mod log;
#[path = "../../../tests/support/no_landlock.rs"]
mod no_landlock;
mod places;
mod release_gates;
mod remote;
mod run;
mod sandbox;
mod support;
mod terminal;
mod verify;
mod whip;
