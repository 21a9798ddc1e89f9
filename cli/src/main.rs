//! The program `sightline`. A crate of its own, so that `make build` can link for speed what is compiled for size.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    sightline_cli::main()
}
