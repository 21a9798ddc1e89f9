//! A worker binary for the tests of this crate; servers re-execute themselves instead.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if !worker::is_worker_invocation() {
        eprintln!("this is a media worker for tests; nothing to do by hand");
        return ExitCode::FAILURE;
    }
    worker::worker_main()
}
