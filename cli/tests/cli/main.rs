//! The `sightline` binary as a user sees it: arguments, exit codes, standard output, files.
#![forbid(unsafe_code)]

mod analyze;
mod arguments;
mod demo;
mod gpu_check;
mod log;
mod places;
mod remote;
mod support;
mod terminal;
mod verify;
mod whip;
