//! Makes `sync` use the scheduler's locks and threads.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=schedules");
}
