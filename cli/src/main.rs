//! The program `sightline`, a crate of its own, so that `make build` links for speed but compiles for size.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    sightline_cli::main()
}
